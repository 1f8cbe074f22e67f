// The files that paths on a command line stand for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bert {

/// The file that marks a directory of extracted text (extracted_text.h) as unfinished.
inline constexpr const char* kUnfinishedExtraction = ".extract.unfinished";

struct InputFile {
  std::string path;
  int64_t bytes = 0;        // as stored
  bool regular = true;      // false: a pipe or device, which can be read once
  int64_t modified_ns = 0;  // time of the last change, since 1970
};

struct InputFiles {
  std::vector<InputFile> files;
  int64_t skipped = 0;  // below directories: names that begin with a full stop, and what is no file or directory
};

/// A path that is a file stands for itself; one that is a directory, for all files below it, sorted by the bytes of
/// their names, directory by directory. Symbolic links are followed, but not into a directory that is being searched.
/// Throws InputMissing if a path or the target of a link is not there, or if a directory has no file, IoError if a file
/// may not be read, and DataError for a directory with an unfinished extraction.
InputFiles find_input_files(const std::vector<std::string>& paths);

/// A text that changes if a file's name, size or time of change does: "2 files, 1234 bytes, 0123456789abcdef". Empty if
/// one is a pipe or a device.
std::string identity_of(const std::vector<InputFile>& files);

}  // namespace bert
