#include "app/verbs/data/google_spelling.h"

#include <glob.h>

#include <algorithm>
#include <cstddef>
#include <sstream>
#include <string_view>

#include "data/io/error.h"

namespace bert {

std::vector<std::string> in_our_spelling(int argc, char** argv) {
  constexpr std::string_view kNoDo = "--nodo-";
  std::vector<std::string> arguments(argv, argv + argc);
  for (std::string& argument : arguments) {
    if (!argument.starts_with("--")) continue;
    const auto end = argument.begin() + static_cast<std::ptrdiff_t>(std::min(argument.find('='), argument.size()));
    std::replace(argument.begin(), end, '_', '-');
    if (argument.starts_with(kNoDo) && argument.find('=') == std::string::npos)
      argument = "--do-" + argument.substr(kNoDo.size()) + "=false";
  }
  return arguments;
}

std::vector<std::string> split_at_commas(const std::string& list) {
  std::vector<std::string> parts;
  std::istringstream text(list);
  for (std::string part; std::getline(text, part, ',');) parts.push_back(part);
  return parts;
}

std::vector<std::string> files_of_patterns(const std::string& list) {
  std::vector<std::string> files;
  for (const std::string& pattern : split_at_commas(list)) {
    glob_t found{};
    const bool any = ::glob(pattern.c_str(), 0, nullptr, &found) == 0;
    for (size_t i = 0; any && i < found.gl_pathc; ++i) files.emplace_back(found.gl_pathv[i]);
    globfree(&found);
    if (!any) throw InputMissing("--input-file " + pattern + ": no such file");
  }
  return files;
}

}  // namespace bert
