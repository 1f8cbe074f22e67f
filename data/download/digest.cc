#include "data/download/digest.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>
#include <cerrno>
#include <stdexcept>
#include <vector>

#include "data/io/descriptor.h"
#include "data/io/error.h"
#include "data/io/io_errors.h"

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
  constexpr size_t kPiece = size_t{1} << 20;
  Digest digest(algorithm);
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file && errno == ENOENT) throw InputMissing(path + ": no such file");
  if (!file) throw_io_error(path, "open", errno);
  std::vector<char> piece(kPiece);
  for (ssize_t got; (got = read(file.get(), piece.data(), piece.size())) != 0;) {
    if (got < 0 && errno != EINTR) throw_io_error(path, "read", errno);
    if (got > 0) digest.update(piece.data(), static_cast<size_t>(got));
  }
  return digest.hexadecimal();
}

}  // namespace bert
