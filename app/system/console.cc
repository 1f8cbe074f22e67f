#include "app/system/console.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <climits>
#include <cstdint>

namespace bert {
namespace {

struct Character {
  uint32_t code = 0;
  size_t bytes = 0;  // 0: the text does not begin with valid UTF-8
};

/// The first character of a text that is not empty.
Character first_character(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};  // smaller codes have shorter forms
  if (lead < 0xc2 || lead > 0xf4 || text.size() < bytes) return {};
  uint32_t code = lead & (0x7fU >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3fU);
  }
  const bool surrogate = 0xd800 <= code && code <= 0xdfff;
  return code < kLeast[bytes] || surrogate || code > 0x10ffff ? Character{} : Character{code, bytes};
}

/// True for a character that controls a terminal or the order of the characters around it.
bool controls(uint32_t code) {
  const auto in = [code](uint32_t first, uint32_t last) { return first <= code && code <= last; };
  return code < 0x20 || in(0x7f, 0x9f) || code == 0x61c || in(0x200e, 0x200f) || in(0x2028, 0x202e) ||
         in(0x2066, 0x2069);
}

}  // namespace

std::string printable(std::string_view text, std::string_view kept) {
  std::string result;
  while (!text.empty()) {
    const Character next = first_character(text);
    const size_t bytes = next.bytes == 0 ? 1 : next.bytes;
    const std::string_view character = text.substr(0, bytes);
    if (next.bytes == 0) {
      result += fmt::format("\\x{:02x}", static_cast<uint8_t>(text[0]));
    } else if (!controls(next.code) || kept.find(character) != std::string_view::npos) {
      result += character;
    } else {
      result += next.code < 0x100 ? fmt::format("\\x{:02x}", next.code) : fmt::format("\\u{:04x}", next.code);
    }
    text.remove_prefix(bytes);
  }
  return result;
}

std::string shortened(std::string_view text, size_t bytes) {
  if (text.size() <= bytes) return std::string(text);
  while (bytes > 0 && (static_cast<uint8_t>(text[bytes]) & 0xc0) == 0x80) --bytes;
  return std::string(text.substr(0, bytes));
}

void say(const std::string& text) {
  constexpr int kPatience_ms = 200;
  // A pipe takes up to PIPE_BUF bytes at once or not at all.
  const std::string line = shortened("bertrun: " + printable(text), PIPE_BUF - 1) + "\n";
  pollfd ready{STDERR_FILENO, POLLOUT, 0};
  if (poll(&ready, 1, kPatience_ms) <= 0) return;
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace bert
