// The text of one file as UTF-8, in pieces.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "data/corpus/decompression.h"
#include "data/corpus/encoding.h"

namespace bert {

/// Reads one file from its beginning to its end: unpacks, converts, and drops invalid UTF-8. Holds some pieces of
/// kPieceBytes, and a decoder.
class TextSource {
 public:
  /// Opens the file and looks at its beginning. `encoding` is a name for iconv(3), or empty for UTF-8. Throws
  /// InputMissing, IoError, and DataError if the file is in another encoding, or is something other than text.
  TextSource(const std::string& path, const std::string& encoding);

  /// The next piece: valid UTF-8, without a part of a character. Valid until the next call. Empty at the end. Throws
  /// IoError, and DataError for a damaged file, and at the end for one with too much that is not text.
  std::string_view next();

  [[nodiscard]] const std::string& path() const { return file_.path(); }
  [[nodiscard]] int64_t stored_bytes() const { return file_.offset(); }
  [[nodiscard]] int64_t text_bytes() const { return text_bytes_; }
  [[nodiscard]] int64_t invalid_sequences() const { return invalid_; }

 private:
  void fill(size_t bytes);
  void check_encoding(std::string_view head);
  void check_is_text() const;

  StoredFile file_;
  const std::string encoding_;
  const std::unique_ptr<ByteStream> bytes_;
  std::optional<EncodingConverter> converter_;
  std::string raw_, converted_, cleaned_;
  size_t cut_ = 0;  // bytes at the end of raw_ that belong to the next piece: the beginning of a character
  bool begun_ = false, ended_ = false, finished_ = false;
  int64_t text_bytes_ = 0, invalid_ = 0, zeros_ = 0;
  int64_t first_invalid_ = 0;  // place in the text
};

}  // namespace bert
