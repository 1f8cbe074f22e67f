// What a command is about to write, against what it reads.
#pragma once

#include <string>
#include <vector>

namespace bert {

/// A path and what named it, for messages: "--output".
struct NamedPath {
  std::string name, path;
};

/// Refuses outputs whose writing would destroy something: a file that is one of `inputs` or another output, also under
/// another name or through links, and a file beside a MANIFEST.json, which is a checkpoint's. Empty paths stand for
/// options that were not given. Throws UsageError; IoError where the output is no regular file, or none can be made
/// there. Call it before the work.
void check_outputs(const std::vector<NamedPath>& outputs, const std::vector<NamedPath>& inputs);

/// `paths`, all under one name.
std::vector<NamedPath> named_paths(const std::string& name, const std::vector<std::string>& paths);

}  // namespace bert
