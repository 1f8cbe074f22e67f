// The formats of files and frames that others may have made, for tests/fuzz/mutations.cc.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/fuzz/mutator.h"

namespace bert::testing {

struct Format {
  std::string name;
  /// Checksums or MACs cover every byte: every change must be refused.
  bool sealed = false;
  /// Reads a changed copy; without a mutator, the valid one. Throws the same exceptions as the program.
  std::function<void(Mutator*)> read;
};

/// A format of files, named to content. One of them at a time is changed; it is spliced with another of them, or with
/// `other`, a valid file of the format that is not read. `read` gets the directory that holds the files.
Format format_of_files(const std::string& name, bool sealed, const std::string& directory,
                       const std::map<std::string, std::string>& files,
                       const std::function<void(const std::string& directory)>& read, const std::string& other = "");

/// All formats. Their files are written into `directory` once, and again at every read.
std::vector<Format> mutation_formats(const std::string& directory);

}  // namespace bert::testing
