// Checks of the paths that a verb writes against those that it reads.
#pragma once

#include <string>
#include <vector>

namespace bert {

/// A path and the option that named it, for messages: "--output".
struct NamedPath {
  std::string name, path;
};

/// Refuses outputs that would destroy something. Throws UsageError for a file that is one of `inputs` or another
/// output, also under another name or through links, and for a file of a checkpoint (in a directory with a
/// MANIFEST.json). Throws IoError if the output exists and is not a regular file, or if it cannot be created. An empty
/// path stands for an option that was not given. Call it before the work.
void check_outputs(const std::vector<NamedPath>& outputs, const std::vector<NamedPath>& inputs);

/// Refuses an output directory that would destroy something. Throws UsageError if it is the input, lies in a checkpoint,
/// or has files; with `overwrite`, files of one model (regular files, of which one is config.json or model.safetensors)
/// are allowed. Throws IoError for a file. Call it before the work.
void check_output_directory(const NamedPath& output, const NamedPath& input, bool overwrite);

/// `paths`, each with the same name.
std::vector<NamedPath> named_paths(const std::string& name, const std::vector<std::string>& paths);

}  // namespace bert
