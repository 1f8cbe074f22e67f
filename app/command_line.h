// Command lines of the verbs: CLI11 with our exit codes, and no unknown flag ignored.
#pragma once

#include <CLI/CLI.hpp>
#include <iostream>
#include <string>

#include "app/exit_codes.h"

namespace bert {

/// Parses argv (argv[0] is the verb). Returns false when --help was asked for and printed: the verb then ends with 0.
/// Throws UsageError.
inline bool parse_command_line(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return true;
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    return false;
  } catch (const CLI::ParseError& error) {
    throw UsageError(std::string(error.what()) + "; see " + app.get_name() + " --help");
  }
}

}  // namespace bert
