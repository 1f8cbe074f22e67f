#include "data/text/text_input.h"

#include <fmt/format.h>

#include <algorithm>

#include "data/io/error.h"
#include "data/text/unicode.h"

namespace bert {
namespace {

constexpr int64_t kAlwaysAllowed = 10, kBytesOfEach = 100;
constexpr size_t kCheckedForZeros = 1 << 16;  // bytes

/// True for a bzip2 header: "BZh", the size of the blocks, then the mark of the first block (the digits of pi) or of
/// the end (the digits of its square root).
bool is_bzip2(std::string_view text) {
  constexpr size_t kMark = 4;
  return text.starts_with("BZh") && text.size() > kMark && text[3] >= '1' && text[3] <= '9' &&
         (text.substr(kMark).starts_with("\x31\x41\x59\x26\x53\x59") ||
          text.substr(kMark).starts_with("\x17\x72\x45\x38\x50\x90"));
}

struct Format {
  std::string_view beginning, name;
};

using namespace std::string_view_literals;
constexpr Format kFormats[] = {
    {"\x1F\x8B"sv, "gzip"},  // RFC 1952
    {"\xFD"sv
     "7zXZ\0"sv,
     "xz"},                          // The .xz File Format, 2.1.1.1
    {"\x28\xB5\x2F\xFD"sv, "zstd"},  // RFC 8878, 3.1.1
    {"PK\x03\x04"sv, "zip"},         // APPNOTE.TXT, 4.3.7
};

/// A skippable frame, with which pzstd begins (RFC 8878, 3.1.2).
bool is_skippable_zstd(std::string_view text) {
  return text.size() > 3 && (static_cast<unsigned char>(text[0]) & 0xF0U) == 0x50U &&
         text.substr(1).starts_with("\x2A\x4D\x18");
}

}  // namespace

std::string_view packed_format(std::string_view text) {
  if (is_bzip2(text)) return "bzip2";
  if (is_skippable_zstd(text)) return "zstd";
  for (const Format& format : kFormats) {
    if (text.starts_with(format.beginning)) return format.name;
  }
  return {};
}

void check_is_plain_text(const std::string& name, std::string_view text) {
  if (const std::string_view format = packed_format(text); !format.empty())
    throw DataError(fmt::format("{}: is {}; unpack it first", name, format));
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF"))
    throw DataError(name + ": is UTF-16; make it UTF-8: iconv -f UTF-16 -t UTF-8");
  const std::string_view start = text.substr(0, kCheckedForZeros);
  const auto zeros = static_cast<int64_t>(std::ranges::count(start, '\0'));
  if (!is_damaged_text(zeros, static_cast<int64_t>(start.size())))
    throw DataError(fmt::format("{}: is not text: {} of its first {} bytes are 0", name, zeros, start.size()));
}

bool is_damaged_text(int64_t invalid, int64_t bytes) {
  return invalid <= kAlwaysAllowed || invalid <= bytes / kBytesOfEach;
}

void check_share_of_invalid(const std::string& name, std::string_view text, int64_t invalid) {
  const auto bytes = static_cast<int64_t>(text.size());
  if (is_damaged_text(invalid, bytes)) return;
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
