#include "data/corpus/encoding.h"

#include <iconv.h>
#include <uchardet.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <new>
#include <stdexcept>

#include "data/text/text_input.h"
#include "data/text/unicode.h"

namespace bert {
namespace {

using namespace std::string_view_literals;

/// More characters of two to four bytes than this, and no invalid byte, are not there by chance.
constexpr int64_t kProof = 10;

/// Latin-1 text has a letter that is invalid UTF-8 in fewer bytes than these, on average.
constexpr int64_t kBytesOfEach = 100;

struct Utf8Counts {
  int64_t multibyte = 0, invalid = 0, zeros = 0;
};

Utf8Counts count_utf8(std::string_view text) {
  Utf8Counts counts;
  while (!text.empty()) {
    const DecodedUtf8 decoded = decode_utf8(text);
    counts.invalid += decoded.value == kInvalidUtf8;
    counts.multibyte += decoded.value != kInvalidUtf8 && decoded.bytes > 1;
    counts.zeros += decoded.value == 0;
    text.remove_prefix(static_cast<size_t>(decoded.bytes));
  }
  return counts;
}

/// The byte order of UTF-32 or UTF-16 without a mark, by the places of the zero bytes: of four bytes of UTF-32 the
/// highest is zero, and the next is at most 0x10. In UTF-16 the high byte of spaces, line breaks and Latin letters is zero.
std::string_view wide_encoding(std::string_view text) {
  constexpr unsigned char kLastPlane = 0x10;
  const std::string_view quads = text.substr(0, text.size() / 4 * 4);
  const auto is_utf32 = [&](size_t highest, size_t next) {
    bool any = false;
    for (size_t i = 0; i < quads.size(); i += 4) {
      if (quads[i + highest] != 0 || static_cast<unsigned char>(quads[i + next]) > kLastPlane) return false;
      any = any || quads.substr(i, 4) != "\0\0\0\0"sv;
    }
    return any;
  };
  if (is_utf32(3, 2)) return "UTF-32LE";
  if (is_utf32(0, 1)) return "UTF-32BE";
  std::array<size_t, 2> zeros{};  // at even and at odd places
  for (size_t i = 0; i < text.size(); ++i) zeros[i % 2] += text[i] == 0;
  if (zeros[0] == 0 && zeros[1] > 1) return "UTF-16LE";
  if (zeros[1] == 0 && zeros[0] > 1) return "UTF-16BE";
  return {};
}

std::string uchardet_name(std::string_view text) {
  const std::unique_ptr<uchardet, void (*)(uchardet_t)> detector(uchardet_new(), uchardet_delete);
  if (detector == nullptr || uchardet_handle_data(detector.get(), text.data(), text.size()) != 0)
    throw std::bad_alloc();
  uchardet_data_end(detector.get());
  return uchardet_get_charset(detector.get());
}

/// `name`, or the more common encoding in which `text` reads the same: ISO-8859-1, or WINDOWS-1252 if it uses the codes
/// from 0x80 to 0x9F, which are control characters in ISO-8859-1.
std::string common_name(const std::string& name, std::string_view text) {
  const bool has_controls = std::ranges::any_of(text, [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x80 && byte < 0xA0;
  });
  const std::string common = has_controls ? "WINDOWS-1252" : "ISO-8859-1";
  const auto converted = [&](const std::string& encoding) {
    std::string out;
    EncodingConverter(encoding).convert(text, true, out);
    return out;
  };
  return is_known_encoding(name) && converted(name) == converted(common) ? common : name;
}

std::string upper_case(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

bool is_wide(const std::string& encoding) {
  const std::string name = upper_case(encoding);
  return name.starts_with("UTF-16") || name.starts_with("UTF16") || name.starts_with("UTF-32") ||
         name.starts_with("UTF32") || name.starts_with("UCS-") || name.starts_with("UCS2") || name.starts_with("UCS4");
}

const iconv_t kNotOpen = reinterpret_cast<iconv_t>(-1);  // NOLINT(performance-no-int-to-ptr): iconv_open(3) says so

iconv_t opened(const std::string& encoding) {
  // glibc reads a slash as the beginning of options, such as //IGNORE, and an empty name as that of the locale.
  if (encoding.empty() || encoding.find('/') != std::string::npos) return kNotOpen;
  return iconv_open("UTF-8", encoding.c_str());
}

bool is_open(iconv_t handle) { return handle != kNotOpen; }

}  // namespace

bool is_known_encoding(const std::string& encoding) {
  const iconv_t handle = opened(encoding);
  if (is_open(handle)) iconv_close(handle);
  return is_open(handle);
}

size_t valid_utf8_bytes(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    uint64_t eight = 0;
    if (at + sizeof eight <= text.size()) std::memcpy(&eight, text.data() + at, sizeof eight);
    constexpr uint64_t kHighBits = 0x8080808080808080U;
    if (at + sizeof eight <= text.size() && (eight & kHighBits) == 0) {
      at += sizeof eight;
      continue;
    }
    const DecodedUtf8 decoded = decode_utf8(text.substr(at));
    if (decoded.value == kInvalidUtf8) return at;
    at += static_cast<size_t>(decoded.bytes);
  }
  return at;
}

std::string find_encoding(std::string_view text) {
  if (text.starts_with("\xFF\xFE\0\0"sv) || text.starts_with("\0\0\xFE\xFF"sv)) return "UTF-32";
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF")) return "UTF-16";
  if (valid_utf8_bytes(text) == text.size() && text.find_first_of("\0\x1B"sv) == std::string_view::npos) return {};
  const Utf8Counts counts = count_utf8(text);
  const auto bytes = static_cast<int64_t>(text.size());
  // More invalid sequences than characters outside of ASCII are not damage, however rare they are: the quotation marks
  // of an English text in Windows-1252. Nor are a few in a short text without any such character.
  const bool other = !is_damaged_text(counts.invalid, bytes) ||
                     (counts.invalid > kProof && counts.invalid > counts.multibyte) ||
                     (counts.invalid > 1 && counts.multibyte == 0 && counts.invalid > bytes / kBytesOfEach);
  if (other || !is_damaged_text(counts.zeros, bytes)) {
    if (counts.zeros > 0) {
      const std::string_view wide = wide_encoding(text);
      return wide.empty() ? "?" : std::string(wide);
    }
    const std::string name = uchardet_name(text);
    return name.empty() || name == "ASCII" || name == "UTF-8" ? "?" : common_name(name, text);
  }
  if (counts.multibyte == 0 && text.find('\x1B') != std::string_view::npos) {  // encodings of seven bits
    std::string name = uchardet_name(text);
    if (name.starts_with("ISO-2022")) return name;
  }
  return {};
}

bool contradicts_encoding(std::string_view text, const std::string& encoding) {
  const std::string name = upper_case(encoding);
  if (name == "UTF-8" || name == "UTF8") return false;
  const Utf8Counts counts = count_utf8(text);
  return counts.invalid == 0 &&
         (counts.multibyte > kProof || (is_wide(encoding) && !text.empty() && counts.zeros == 0));
}

EncodingConverter::EncodingConverter(const std::string& encoding) : handle_(opened(encoding)) {
  if (!is_open(handle_)) throw std::invalid_argument("unknown encoding " + encoding + "; iconv -l lists all");
  constexpr size_t kUnit16 = 2, kUnit32 = 4;
  const std::string name = upper_case(encoding);
  unit_ = !is_wide(encoding)                                                            ? 1
          : name.find("32") != std::string::npos || name.find('4') != std::string::npos ? kUnit32
                                                                                        : kUnit16;
}

EncodingConverter::~EncodingConverter() { iconv_close(handle_); }

int64_t EncodingConverter::convert(std::string_view piece, bool last, std::string& out) {
  constexpr size_t kBufferBytes = size_t{1} << 16;
  rest_.append(piece);
  std::array<char, kBufferBytes> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init): iconv fills it
  char* from = rest_.data();
  size_t left = rest_.size();
  int64_t dropped = 0;
  bool flushed = false;
  while (left > 0 || (last && !flushed)) {
    char* to = buffer.data();
    size_t room = buffer.size();
    flushed = left == 0;  // without input, iconv writes what it has kept back
    const size_t code =
        flushed ? iconv(handle_, nullptr, nullptr, &to, &room) : iconv(handle_, &from, &left, &to, &room);
    const int error = code == static_cast<size_t>(-1) ? errno : 0;
    out.append(buffer.data(), buffer.size() - room);
    if (error == E2BIG || error == 0) continue;
    if (error == EINVAL && !last) break;
    const size_t bytes = std::min(unit_, left);
    from += bytes;
    left -= bytes;
    ++dropped;
  }
  rest_.erase(0, rest_.size() - left);
  return dropped;
}

}  // namespace bert
