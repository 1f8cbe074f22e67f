// The files that paths on a command line stand for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bert {

struct InputFile {
  std::string path;
  int64_t bytes = 0;    // as stored
  bool regular = true;  // false: a pipe or device, which can be read once
};

struct InputFiles {
  std::vector<InputFile> files;
  int64_t hidden = 0;  // files and directories below directories that were skipped: their names begin with a full stop
};

/// A path that is a file stands for itself; one that is a directory, for all files below it, sorted by the bytes of
/// their names, directory by directory. Symbolic links are followed. Throws InputMissing if a path is not there or a
/// directory has no file, IoError if a file may not be read, DataError if links form a loop.
InputFiles find_input_files(const std::vector<std::string>& paths);

}  // namespace bert
