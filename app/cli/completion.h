// Completion of command lines in bash, zsh and fish.
#pragma once

#include <string>
#include <vector>

#include "app/cli/description.h"

namespace bert {

/// A key of a configuration: "optimizer.type".
struct ConfigKey {
  std::string name;
  std::vector<std::string> words;  // the values that it may have; empty: others
};

/// Everything that is completed.
struct CompletedPrograms {
  CommandDescription bert, bertrun;
  std::vector<ConfigKey> pretrain_keys, finetune_keys;
};

/// The names of the shells.
std::vector<std::string> shells();

/// A script that completes verbs, actions, options, their values, files, and the keys of a configuration where a
/// command takes overrides after the name of a *.json file. It completes `bert` behind bertrun, too. `shell` is one of
/// shells().
std::string completion_script(const CompletedPrograms& programs, const std::string& shell);

}  // namespace bert
