// Small helpers for pieces of markup.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace bert {

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
  std::transform(lower.begin(), lower.end(), lower.begin(), [](char c) { return ascii_lower(c); });
  return lower;
}

/// True if `text` begins with `lower`, which has no upper case, in any case.
inline bool starts_with_any_case(std::string_view text, std::string_view lower) {
  return text.size() >= lower.size() && std::equal(lower.begin(), lower.end(), text.begin(),
                                                   [](char want, char got) { return want == ascii_lower(got); });
}

}  // namespace bert
