#include "app/cli/command_line.h"

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <utility>

#include "app/cli/description.h"
#include "app/cli/removed_options.h"
#include "app/parse/nearest_word.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"

namespace bert {
namespace {

// Note [Arguments in brackets]
// CLI11 takes a value that begins with [ and ends with ] for a list: "[MASK] is [MASK]" would become "MASK] is [MASK",
// and [a,b] two values. So an argument that ends with ] or with the guard character gets a guard character at its end
// before CLI11 reads it. Every option, and remaining_arguments(), removes that character again.
constexpr char kGuard = '\x1f';  // ASCII's unit separator

/// In describe_command(), the description that the next command line fills in instead of being parsed.
CommandDescription* wanted_description = nullptr;

std::string guarded_argument(std::string argument) {
  if (argument.ends_with(']') || argument.ends_with(kGuard)) argument += kGuard;
  return argument;
}

void take_guard_off(std::string& value) {
  if (value.ends_with(kGuard)) value.pop_back();
}

/// Makes every option of `app` remove the guard from its values and refuse an empty value. Options of a launcher (with
/// prefix_command() set) may be empty, as in torchrun, and prompts.
void take_values_as_they_are(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    const bool may_be_empty = app.get_prefix_command() || option->get_name().ends_with("-prompt");
    const auto take_value = [may_be_empty](std::string& value) {
      take_guard_off(value);
      return std::string(value.empty() && !may_be_empty ? "the value is empty" : "");
    };
    if (option->get_items_expected_max() > 0) option->transform(CLI::Validator(take_value, ""));
  }
  for (CLI::App* verb : app.get_subcommands(nullptr)) take_values_as_they_are(*verb);
}

CommandDescription describe(const ActionVerb& verb) {
  CommandDescription description;
  description.name = verb.program;
  description.examples = {verb.example};
  for (const Action& action : verb.actions) {
    description.actions.push_back(describe_command(action.run, std::string(action.name)));
    description.actions.back().summary = action.help;
  }
  return description;
}

void check_subcommand(const CLI::App& app, int argc, char** argv) {
  std::vector<std::string> known;
  for (const CLI::App* verb : app.get_subcommands(nullptr)) known.push_back(verb->get_name());
  const std::string word = argc > 1 ? argv[1] : "";
  if (known.empty() || word.starts_with('-') || std::ranges::find(known, word) != known.end()) return;
  throw UsageError(unknown_word("action", word, known, app.get_name()));
}

void check_removed(const CLI::App& app, int argc, char** argv) {
  const std::string program =
      app.get_subcommands(nullptr).empty() || argc < 2 ? app.get_name() : app.get_name() + " " + argv[1];
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (app.get_option_no_throw(argument.substr(0, argument.find('='))) != nullptr) continue;  // of this verb by now
    if (const std::string sentence = removed_option(program, argument); !sentence.empty())
      throw UsageError(sentence + "; see " + program + " --help");
  }
}

}  // namespace

CommandDescription describe_command(int (*run)(int argc, char** argv), const std::string& name) {
  CommandDescription description;
  std::string word = name;
  char* argv[] = {word.data(), nullptr};
  CommandDescription* const outer = std::exchange(wanted_description, &description);
  try {
    run(1, argv);
  } catch (...) {
    wanted_description = outer;
    throw;
  }
  wanted_description = outer;
  return description;
}

bool parse_command_line(CLI::App& app, int argc, char** argv) {
  if (wanted_description != nullptr) {
    *wanted_description = describe(app);
    return false;
  }
  check_subcommand(app, argc, argv);
  check_removed(app, argc, argv);
  take_values_as_they_are(app);
  std::vector<std::string> arguments;  // in reverse order, as CLI11's parse() expects them
  for (int i = argc - 1; i > 0; --i) arguments.push_back(guarded_argument(argv[i]));
  try {
    app.parse(std::move(arguments));
    return true;
  } catch (const CLI::CallForHelp&) {
    const CLI::App* shown = &app;
    while (!shown->get_subcommands().empty()) shown = shown->get_subcommands().front();
    std::cout << help_text(describe(*shown));
    return false;
  } catch (const CLI::ParseError& error) {
    std::string message = error.what();
    message.erase(std::remove(message.begin(), message.end(), kGuard), message.end());
    throw UsageError(message + "; see " + app.get_name() + " --help");
  }
}

std::vector<std::string> remaining_arguments(const CLI::App& app) {
  std::vector<std::string> arguments = app.remaining();
  for (std::string& argument : arguments) take_guard_off(argument);
  return arguments;
}

std::string unknown_word(const std::string& what, const std::string& word, const std::vector<std::string>& known,
                         const std::string& program) {
  std::string text = word.empty() ? "no " + what + " is named" : "no " + what + " '" + word + "'";
  const std::string near = nearest_word(word, known);
  if (!near.empty()) return text + "; did you mean '" + near + "'? See " + program + " --help";
  text += "; it is one of";
  for (const std::string& name : known) text += (name == known.front() ? " " : ", ") + name;
  return text + "; see " + program + " --help";
}

std::function<void(const std::string& message)> say_in(std::string program) {
  return
      [program = std::move(program)](const std::string& message) { fmt::print(stderr, "{}: {}\n", program, message); };
}

int run_action(const ActionVerb& verb, int argc, char** argv) {
  if (wanted_description != nullptr) {
    *wanted_description = describe(verb);
    return kOk;
  }
  const std::string name = argc > 1 ? argv[1] : "";
  if (name == "--help" || name == "-h") {
    std::cout << help_text(describe(verb));
    return kOk;
  }
  std::vector<std::string> known;
  for (const Action& action : verb.actions) {
    if (action.name == name) {
      set_program(verb.program + " " + name);
      return action.run(argc - 1, argv + 1);
    }
    known.emplace_back(action.name);
  }
  throw UsageError(unknown_word("action", name, known, verb.program));
}

}  // namespace bert
