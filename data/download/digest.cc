#include "data/download/digest.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>
#include <stdexcept>
#include <vector>

#include "data/io/files.h"

namespace bert {
namespace {

void check(int result) {
  if (result != 1) throw std::runtime_error("libcrypto: a checksum could not be computed");
}

}  // namespace

void Digest::Free::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

Digest::Digest(const std::string& algorithm) : context_(EVP_MD_CTX_new()) {
  const EVP_MD* kind = EVP_get_digestbyname(algorithm.c_str());
  if (kind == nullptr) throw std::runtime_error("libcrypto has no digest " + algorithm);
  check(EVP_DigestInit_ex(context_.get(), kind, nullptr));
}

void Digest::update(const void* data, size_t bytes) { check(EVP_DigestUpdate(context_.get(), data, bytes)); }

std::string Digest::hexadecimal() const {
  const std::unique_ptr<evp_md_ctx_st, Free> copy(EVP_MD_CTX_new());  // so that more bytes may follow
  check(EVP_MD_CTX_copy_ex(copy.get(), context_.get()));
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
  unsigned int count = 0;
  check(EVP_DigestFinal_ex(copy.get(), bytes.data(), &count));
  std::string text;
  for (unsigned int i = 0; i < count; ++i) text += fmt::format("{:02x}", bytes[i]);
  return text;
}

std::string digest_of_file(const std::string& path, const std::string& algorithm) {
  Digest digest(algorithm);
  const MappedFile file(path);
  digest.update(file.data(), static_cast<size_t>(file.size()));
  file.expect_whole();
  return digest.hexadecimal();
}

}  // namespace bert
