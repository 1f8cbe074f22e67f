// A file of lines that a run appends to, and cuts back when it goes on from a checkpoint.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "data/io/files.h"

namespace bert {

/// Each line is written as a whole.
class LineFile {
 public:
  using Keep = std::function<bool(std::string_view line)>;

  /// Opens `path` for appending. First drops an incomplete last line and the lines for which `keep` is false. Throws
  /// IoError.
  LineFile(const std::string& path, const Keep& keep);
  /// Appends `line` and a line end. Throws IoError with the path, and for a full disk with the needed and the free
  /// bytes.
  void write(std::string_view line);
  /// True if the file had lines that were kept.
  [[nodiscard]] bool kept_lines() const { return kept_lines_; }

 private:
  bool kept_lines_ = false;
  AppendedFile file_;
};

}  // namespace bert
