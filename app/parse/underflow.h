#pragma once

#include <string_view>

namespace bert {

/// True if `text` is a number other than 0 that is too close to 0 for a double; `value` is the result of reading it.
inline bool underflows(std::string_view text, double value) {
  const bool hexadecimal = text.find_first_of("xX") != std::string_view::npos;  // strtod reads hexadecimal numbers, too
  const std::string_view digits = text.substr(0, text.find_first_of(hexadecimal ? "pP" : "eE"));
  return value == 0 && digits.find_first_not_of("+-0.xX") != std::string_view::npos;
}

}  // namespace bert
