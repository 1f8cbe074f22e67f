#include "app/checkpoint/fit.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <sstream>

#include "app/system/errors.h"
#include "app/system/torch_errors.h"

namespace bert {

void fit_checkpoint(const std::string& what, const std::vector<ConfigDifference>& differences,
                    const std::vector<std::string>& prefixes, const std::function<void()>& load) {
  try {
    load();
  } catch (const c10::Error& error) {
    if (is_out_of_memory(error)) throw;
    std::string message = what + " does not fit this configuration:";
    for (const ConfigDifference& d : differences) {
      const bool shapes =
          std::ranges::any_of(prefixes, [&](const std::string& prefix) { return d.pointer.starts_with(prefix); });
      if (shapes) message += "\n  " + d.pointer + ": was " + d.before + ", now " + d.after;
    }
    constexpr int kLines = 4;  // the error may name every tensor
    std::istringstream lines(error.what_without_backtrace());
    std::string line;
    for (int i = 0; i < kLines && std::getline(lines, line); ++i) message += "\n  " + line;
    throw ConfigError(message);
  }
}

}  // namespace bert
