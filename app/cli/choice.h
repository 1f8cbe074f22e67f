// Options whose values are the words of an enumeration.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cuda_ext/names.h"

namespace bert {

/// Adds an option that takes one of the words of the enumeration. The present value is its default.
template <class Enum>
CLI::Option* add_choice(CLI::App& app, const std::string& flag, Enum& value, const std::string& help) {
  const auto names = names_of(value);
  return app
      .add_option_function<std::string>(
          flag, [&value](const std::string& word) { value = value_named<Enum>(word).value(); }, help)
      ->check(CLI::IsMember(std::vector<std::string>(names.begin(), names.end())))
      ->default_str(name_of_value(value));
}

}  // namespace bert
