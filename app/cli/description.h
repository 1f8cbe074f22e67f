// Descriptions of command lines. The text of --help, the completion of shells and the man pages are made of them.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace bert {

/// The name of a value that is KEY=VALUE of a configuration: type_name() of the argument with the overrides.
inline constexpr const char* kKeyValue = "KEY=VALUE";

/// An option, or an argument without a name.
struct OptionDescription {
  std::vector<std::string> names;  // "-m", "--module"; of an argument without a name only that of its value, "CONFIG"
  std::string help;
  std::string value;               // name of the value, "TEXT"; empty: a flag
  std::vector<std::string> words;  // the values that it may have; empty: others
  std::string range;               // of a number: "from 1 to 64"
  std::string default_value;       // empty: none
  bool positional = false, required = false, repeats = false;
  bool number = false, overrides = false;  // the kind of the value; else a text, which may be a file
};

/// A command with its options and its actions: `bert`, `bert data` or `bert data create`.
struct CommandDescription {
  std::string name;     // "bert data create"
  std::string summary;  // its line in a list of commands: the first sentence of the text, without the full stop
  std::string text;     // paragraphs, divided by line feeds
  std::string notes;    // paragraphs for the end
  std::vector<std::string> examples;
  std::vector<OptionDescription> options;  // arguments without a name first
  std::vector<CommandDescription> actions;
  bool runs_program = false;  // a program with its arguments follows the options
};

/// The description of `app`. Lines "Example: COMMAND" of its description and its footer, and the indented lines after
/// them, are the examples. The spelling of an option with underscores is left out where there is one with hyphens.
CommandDescription describe(const CLI::App& app);

/// The text of --help: at most 120 columns.
std::string help_text(const CommandDescription& command);

/// The words, one after another, with the separator between them.
std::string joined(const std::vector<std::string>& words, const char* separator);

/// The name of an action without its verb: "create" of "bert data create".
std::string last_word(const std::string& name);

/// The words of `text` in lines of at most `width` characters.
std::vector<std::string> wrapped(const std::string& text, size_t width);

}  // namespace bert
