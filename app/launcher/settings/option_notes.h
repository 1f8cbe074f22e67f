// The notes of bertrun on options that have no effect.
#pragma once

#include <set>
#include <string>

#include "app/launcher/settings/options.h"

namespace bert {

/// Prints a line that begins with "note: ".
void note(const std::string& text);

/// `name` with - in place of _.
std::string dashed(std::string name);

/// Prints a note on each option of torchrun that has no meaning here, or no effect beside the others. `given`: the names
/// of the options on the command line.
void print_notes(const LaunchOptions& options, const LaunchConfig& config, const std::set<std::string>& given);

}  // namespace bert
