// SHA-1 and SHA-256 of bytes that arrive in pieces, by OpenSSL's libcrypto.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

struct evp_md_ctx_st;

namespace bert {

/// A checksum that the publisher of a file gives. Empty strings stand for none.
struct PublishedDigest {
  std::string algorithm;    // "sha1" or "sha256"
  std::string hexadecimal;  // lowercase
};

class Digest {
 public:
  /// `algorithm` is "sha1" or "sha256" (FIPS 180-4). Throws std::runtime_error for any other.
  explicit Digest(const std::string& algorithm);

  void update(const void* data, size_t bytes);
  /// The digest of all bytes so far, in lowercase hexadecimal digits.
  [[nodiscard]] std::string hexadecimal() const;

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

/// The digest of a whole file. Throws InputMissing, IoError.
std::string digest_of_file(const std::string& path, const std::string& algorithm);

}  // namespace bert
