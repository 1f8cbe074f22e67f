// Small helpers for pieces of markup.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace bert {

inline constexpr size_t kNone = std::string_view::npos;

inline bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/// `text` without ASCII white space at both ends.
inline std::string_view trim(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

inline char ascii_lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
inline bool is_ascii_letter(char c) { return ascii_lower(c) >= 'a' && ascii_lower(c) <= 'z'; }
inline bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }

inline std::string ascii_lower(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](char c) { return ascii_lower(c); });
  return lower;
}

/// True if `text` begins with `lower`, which has no upper case, in any case.
inline bool starts_with_any_case(std::string_view text, std::string_view lower) {
  return std::ranges::equal(lower, text.substr(0, lower.size()),
                            [](char want, char got) { return want == ascii_lower(got); });
}

/// True if a parenthesis is open at the end of `text`, in its last line and not far away.
inline bool is_in_parentheses(std::string_view text) {
  constexpr size_t kFar = 300;  // bytes
  text.remove_prefix(text.size() - std::min(text.size(), kFar));
  text.remove_prefix(text.rfind('\n') + 1);  // npos + 1 is 0
  const size_t open = text.rfind('('), closed = text.rfind(')');
  return open != std::string_view::npos && (closed == std::string_view::npos || closed < open);
}

/// A set of bytes.
using ByteSet = std::array<bool, 256>;

constexpr ByteSet byte_set(std::string_view bytes) {
  ByteSet set{};
  for (const char c : bytes) set[static_cast<uint8_t>(c)] = true;
  return set;
}

/// Appends `in` from `at` on to `out`, up to the next byte of `stop`. Returns the place of that byte, or the size.
inline size_t copy_until(const ByteSet& stop, std::string_view in, size_t at, std::string& out) {
  size_t end = at;
  while (end < in.size() && !stop[static_cast<uint8_t>(in[end])]) ++end;
  out.append(in, at, end - at);
  return end;
}

/// Number of characters `c` from `at` on.
inline size_t run_length(std::string_view text, char c, size_t at) {
  return std::min(text.find_first_not_of(c, at), text.size()) - at;
}

}  // namespace bert
