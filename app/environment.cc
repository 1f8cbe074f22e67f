#include "app/environment.h"

#include <cstdlib>

namespace bert {

std::string variable_or(const char* name, const std::string& fallback) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : fallback;
}

std::string temporary_directory() {
  const std::string directory = variable_or("TMPDIR", "");
  return directory.empty() ? "/tmp" : directory;
}

}  // namespace bert
