// Files that tests write.
#pragma once

#include <fstream>
#include <string>
#include <string_view>

namespace bert::testing {

/// Makes a file of these bytes. Returns its path.
inline std::string write_text(const std::string& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

}  // namespace bert::testing
