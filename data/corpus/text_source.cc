#include "data/corpus/text_source.h"

#include <fmt/format.h>

#include <algorithm>

#include "data/io/error.h"
#include "data/text/text_input.h"
#include "data/text/unicode.h"

namespace bert {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 18;
constexpr size_t kLookedAt = size_t{1} << 20;  // bytes at the beginning of a file that tell its encoding

/// Number of bytes at the end of `text` that begin a character of UTF-8 and do not finish it.
size_t cut_character(std::string_view text) {
  for (size_t bytes = 1; bytes <= std::min<size_t>(3, text.size()); ++bytes) {
    const auto lead = static_cast<unsigned char>(text[text.size() - bytes]);
    if ((lead & 0xC0U) == 0x80U) continue;  // a continuation byte
    const size_t needed = lead >= 0xF0U ? 4 : lead >= 0xE0U ? 3 : lead >= 0xC0U ? 2 : 1;
    return needed > bytes ? bytes : 0;
  }
  return 0;
}

}  // namespace

TextSource::TextSource(const std::string& path, const std::string& encoding)
    : file_(path), encoding_(encoding), bytes_(unpacked(file_)) {
  fill(kLookedAt);
  check_encoding(std::string_view(raw_).substr(0, raw_.size() - (ended_ ? 0 : cut_character(raw_))));
  if (!encoding_.empty()) converter_.emplace(encoding_);
}

/// Adds bytes to raw_ until it has `bytes` or the file ends.
void TextSource::fill(size_t bytes) {
  size_t used = raw_.size();
  raw_.resize(std::max(bytes, used));
  while (!ended_ && used < raw_.size()) {
    const size_t got = bytes_->read(raw_.data() + used, raw_.size() - used);
    ended_ = got == 0;
    used += got;
  }
  raw_.resize(used);
}

void TextSource::check_encoding(std::string_view head) {
  if (!encoding_.empty()) {
    if (contradicts_encoding(head, encoding_)) {
      throw DataError(
          fmt::format("{}: is UTF-8, not {}; read it apart from other files, without --encoding", path(), encoding_));
    }
    return;
  }
  const std::string found = find_encoding(head);
  if (found.empty()) return;
  size_t at = valid_utf8_bytes(head);
  at = std::min(at, head.find('\0'));
  const std::string place = fmt::format("{}: byte {}: ", path(), at);
  if (found == "?")
    throw DataError(place +
                    "is not text in UTF-8, nor in another encoding that can be told. Name a text file, or its encoding "
                    "with --encoding.");
  throw DataError(
      fmt::format("{}is not UTF-8, but probably {}. Read it with --encoding {}, or make it UTF-8: iconv -f {} -t UTF-8",
                  place, found, found, found));
}

std::string_view TextSource::next() {
  while (!finished_) {
    if (begun_) raw_.erase(0, raw_.size() - cut_);
    fill(kPieceBytes);
    finished_ = ended_;
    std::string_view piece = raw_;
    if (converter_) {
      converted_.clear();
      invalid_ += converter_->convert(raw_, finished_, converted_);
      piece = converted_;
    } else {
      cut_ = finished_ ? 0 : cut_character(raw_);
      piece.remove_suffix(cut_);
    }
    const auto bytes = static_cast<int64_t>(piece.size());
    if (const size_t valid = valid_utf8_bytes(piece); valid < piece.size()) {
      if (invalid_ == 0) first_invalid_ = text_bytes_ + static_cast<int64_t>(valid);
      cleaned_ = piece;
      invalid_ += drop_invalid_utf8(cleaned_);
      piece = cleaned_;
    }
    zeros_ += std::ranges::count(piece, '\0');
    text_bytes_ += bytes;
    if (!begun_ || finished_) check_is_text();
    begun_ = true;
    if (!piece.empty()) return piece;
  }
  return {};
}

void TextSource::check_is_text() const {
  if (!is_damaged_text(zeros_, text_bytes_)) {
    throw DataError(fmt::format("{}: is not text: {} of its first {} bytes are zero. Name a text file.", path(), zeros_,
                                text_bytes_));
  }
  if (is_damaged_text(invalid_, text_bytes_)) return;
  if (converter_) {
    throw DataError(
        fmt::format("{}: is not {}: {} places of {} bytes mean nothing in it. Name its encoding with "
                    "--encoding.",
                    path(), encoding_, invalid_, text_bytes_));
  }
  throw DataError(path(), first_invalid_,
                  fmt::format("is not UTF-8, nor are {} places of {} bytes in all; expected at most one in a hundred. "
                              "Name a text file, or its encoding with --encoding.",
                              invalid_, text_bytes_));
}

}  // namespace bert
