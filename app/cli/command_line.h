// Command lines of the verbs: CLI11 with the exit codes of bert. An unknown flag is an error; arguments are not
// altered.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "app/parse/underflow.h"

namespace bert {

struct CommandDescription;  // description.h

/// The description of the command line of a verb or of an action, with those of its actions. `run` ends where it would
/// parse its command line.
CommandDescription describe_command(int (*run)(int argc, char** argv), const std::string& name);

/// Parses argv (argv[0] is the verb). Returns false after it has printed the text of --help: the verb then returns kOk.
/// Throws UsageError for a wrong command line, also for an empty value and for an unknown subcommand.
bool parse_command_line(CLI::App& app, int argc, char** argv);

/// The arguments after the options of a parsed command line, if `app` has prefix_command() set.
std::vector<std::string> remaining_arguments(const CLI::App& app);

/// The message for a `word` that is not one of `known`: "no action 'lits'; did you mean 'list'? See bert data --help".
/// `what` is the name of the kind of word ("action"), `program` the command that has --help. `word` is empty if the
/// command line has none.
std::string unknown_word(const std::string& what, const std::string& word, const std::vector<std::string>& known,
                         const std::string& program);

/// A function that prints "PROGRAM: MESSAGE" on standard error.
std::function<void(const std::string& message)> say_in(std::string program);

/// An action of a verb, with its own command line: `create` of `bert data create`.
struct Action {
  std::string_view name;
  int (*run)(int argc, char** argv);
  std::string_view help;
};

struct ActionVerb {
  std::string program;  // "bert data"
  std::string example;  // a command line of one of its actions
  std::span<const Action> actions;
};

/// Runs the action that argv[1] names, or prints the list of actions for --help. Throws UsageError.
int run_action(const ActionVerb& verb, int argc, char** argv);

/// A CLI11 check that the value of an option is a number in [low, high], both included. It refuses NaN and any other
/// text.
template <class Number>
CLI::Validator number_in(Number low, Number high) {
  const std::string range = fmt::format("from {} to {}", low, high);
  return {[=](std::string& text) {
            Number value{};
            errno = 0;  // ERANGE: the number does not fit, and `value` is the nearest one that does
            const bool inside =
                CLI::detail::lexical_cast(text, value) && errno != ERANGE && value >= low && value <= high;
            if (!inside) return fmt::format("want a number {}, got {}", range, text);
            if (std::is_floating_point_v<Number> && underflows(text, static_cast<double>(value)))
              return fmt::format("want a number {}, got {}, which does not fit a double", range, text);
            return std::string();
          },
          range};
}

/// The largest numbers of steps, and of sequences, that an option takes: more is a mistyped number.
inline constexpr int64_t kManyTimes = 1'000'000'000, kManySequences = 1 << 20;

}  // namespace bert
