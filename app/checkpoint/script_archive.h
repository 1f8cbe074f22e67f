// A TorchScript archive as its tensors and its files.
#pragma once

#include <map>
#include <string>

#include "cuda_ext/state_dict.h"

namespace bert {

struct ScriptArchive {
  // The tensors among the module's attributes, by path. They are mapped files, which must not be written to: clone() gives
  // a copy.
  StateDict tensors;
  std::map<std::string, std::string> files;  // ExtraFiles of model/torchscript.h, by name
};

/// Reads an archive of torch::jit::Module::save(). Every byte is compared with its checksum. The code inside is not
/// compiled. Throws InputMissing, IoError; DataError for another file, for a damaged one, and for an archive without a
/// module.
ScriptArchive read_script_archive(const std::string& path);

}  // namespace bert
