// A file that is being downloaded, over several attempts and processes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "data/download/digest.h"
#include "data/io/descriptor.h"

namespace bert {

/// The file on a server that a part belongs to. Numbers and text are absent where the server sent none.
struct PartSource {
  std::string url;  // that was asked for, before redirects
  std::string etag, last_modified;
  std::optional<int64_t> bytes;  // of the whole file
};

/// The bytes of a download until it is whole: TARGET.part. Beside it TARGET.part.source says, in lines "key value",
/// what the bytes belong to, so that another process can continue. TARGET appears when all is there. A part without
/// that file, or of a file with another published checksum, starts anew. Failures throw IoError with the path, and on a
/// full disk with the bytes needed and free.
class PartialFile {
 public:
  /// Opens or creates the part of `target`. Throws IoError if another process has it open, too.
  PartialFile(const std::string& target, PublishedDigest published);

  [[nodiscard]] int64_t size() const { return size_; }
  [[nodiscard]] const PartSource& source() const { return source_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  /// The checksum of the bytes so far; "" if none is published.
  [[nodiscard]] std::string digest() const { return digest_ ? digest_->hexadecimal() : ""; }

  /// Drops all bytes. Those that follow belong to `source`.
  void restart(const PartSource& source);
  void append(std::string_view bytes);
  /// Gives the part its final name.
  void commit();
  /// Removes the part.
  void discard();

 private:
  void read_source();
  void write_source() const;

  std::string target_, path_, source_path_;
  PublishedDigest published_;
  Descriptor descriptor_;
  int64_t size_ = 0;
  PartSource source_;
  std::optional<Digest> digest_;
};

}  // namespace bert
