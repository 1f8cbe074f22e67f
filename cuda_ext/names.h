// Words for the values of enumerations. An enumeration with words has a function names_of(Enum), which returns them in
// the order of the values.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>

namespace bert {

template <class Enum>
const char* name_of_value(Enum value) {
  return names_of(value)[static_cast<size_t>(value)];
}

/// The value with this name; empty if there is none.
template <class Enum>
std::optional<Enum> value_named(std::string_view name) {
  const auto names = names_of(Enum{});
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

/// The name of an enumeration's value; other values as they are.
template <class T>
decltype(auto) name_or_value(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    return name_of_value(value);
  } else {
    return (value);
  }
}

}  // namespace bert
