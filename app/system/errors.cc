#include "app/system/errors.h"

#include <utility>

namespace bert {
namespace {

std::string join(const std::vector<ConfigProblem>& problems) {
  std::string text;
  for (const ConfigProblem& problem : problems) {
    if (!text.empty()) text += '\n';
    text += problem.where;
    if (!problem.pointer.empty()) text += ": " + problem.pointer;
    text += ": " + problem.message;
  }
  return text;
}

}  // namespace

ConfigError::ConfigError(const std::string& message) : std::runtime_error(message), problems{{"", "", message}} {}
ConfigError::ConfigError(std::vector<ConfigProblem> found)
    : std::runtime_error(join(found)), problems(std::move(found)) {}

}  // namespace bert
