#include "app/system/environment.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>

namespace bert {

std::string variable_or(const char* name, const std::string& fallback) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : fallback;
}

std::string temporary_directory() {
  for (const std::string& directory : {variable_or("TMPDIR", ""), variable_or("TEMP", ""), variable_or("TMP", ""),
                                       std::string("/tmp"), std::string("/var/tmp")}) {
    std::error_code ignored;
    if (std::filesystem::is_directory(directory, ignored) && access(directory.c_str(), W_OK | X_OK) == 0)
      return directory;
  }
  return "/tmp";
}

}  // namespace bert
