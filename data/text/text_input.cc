#include "data/text/text_input.h"

#include <fmt/format.h>

#include "data/io/error.h"
#include "data/text/unicode.h"

namespace bert {
namespace {

/// True for a bzip2 header: "BZh", the size of the blocks, then the mark of the first block (the digits of pi) or of
/// the end (the digits of its square root).
bool is_bzip2(std::string_view text) {
  constexpr size_t kMark = 4;
  return text.starts_with("BZh") && text.size() > kMark && text[3] >= '1' && text[3] <= '9' &&
         (text.substr(kMark).starts_with("\x31\x41\x59\x26\x53\x59") ||
          text.substr(kMark).starts_with("\x17\x72\x45\x38\x50\x90"));
}

struct Format {
  std::string_view beginning, name, advice;
};

using namespace std::string_view_literals;
constexpr Format kFormats[] = {
    {"\x1F\x8B"sv, "gzip", "unpack it first"},  // RFC 1952
    {"\xFD"sv
     "7zXZ\0"sv,
     "xz", "unpack it first"},                          // The .xz File Format, 2.1.1.1
    {"\x28\xB5\x2F\xFD"sv, "zstd", "unpack it first"},  // RFC 8878, 3.1.1
    {"PK\x03\x04"sv, "zip", "unpack it first"},         // APPNOTE.TXT, 4.3.7
    {"\xFF\xFE"sv, "UTF-16", "make it UTF-8: iconv -f UTF-16 -t UTF-8"},
    {"\xFE\xFF"sv, "UTF-16", "make it UTF-8: iconv -f UTF-16 -t UTF-8"},
};

}  // namespace

void check_is_plain_text(const std::string& name, std::string_view text) {
  if (is_bzip2(text)) throw DataError(name + ": is bzip2; unpack it first");
  for (const Format& format : kFormats) {
    if (text.starts_with(format.beginning))
      throw DataError(fmt::format("{}: is {}; {}", name, format.name, format.advice));
  }
}

void check_share_of_invalid(const std::string& name, std::string_view text, int64_t invalid) {
  constexpr int64_t kAlwaysAllowed = 10, kBytesOfEach = 100;
  const auto bytes = static_cast<int64_t>(text.size());
  if (invalid <= kAlwaysAllowed || invalid <= bytes / kBytesOfEach) return;
  size_t at = 0;
  while (at < text.size()) {
    const DecodedUtf8 decoded = decode_utf8(text.substr(at));
    if (decoded.value == kInvalidUtf8) break;
    at += static_cast<size_t>(decoded.bytes);
  }
  throw DataError(
      name, static_cast<int64_t>(at),
      fmt::format("is not UTF-8, nor are {} places of {} bytes in all; expected at most one in {}. Name a text "
                  "file, or make it UTF-8: iconv -f LATIN1 -t UTF-8",
                  invalid, bytes, kBytesOfEach));
}

void throw_no_text(const NoText& read) {
  if (read.paths.empty()) throw DataError("no text: no file is named");
  std::string name = read.paths.front();
  if (read.paths.size() > 1) name += fmt::format(" and {} more", read.paths.size() - 1);
  std::string why = "0 bytes";
  if (read.bytes > 0) {
    why = fmt::format("{} bytes of {}white space and control characters", read.bytes,
                      read.invalid_sequences > 0 ? "invalid UTF-8, " : "");
  }
  throw DataError(fmt::format("{}: no text: {}. Name a file with text in UTF-8.", name, why));
}

}  // namespace bert
