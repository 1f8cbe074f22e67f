// Command lines of the verbs: CLI11 with our exit codes, no unknown flag ignored, and every argument taken as it is.
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

/// Parses argv (argv[0] is the verb). Returns false when --help was asked for and printed: the verb then ends with 0.
/// Throws UsageError, also for a value that is empty and for a subcommand that does not exist.
bool parse_command_line(CLI::App& app, int argc, char** argv);

/// What the options of a parsed command line have left over, where the application has prefix_command() set.
std::vector<std::string> remaining_arguments(const CLI::App& app);

/// "no action 'lits'; did you mean 'list'? ..." for the word that stands where one of `known` was expected. `what` is
/// what such a word is called, `program` what --help belongs to; an empty `word` stands for none.
std::string unknown_word(const std::string& what, const std::string& word, const std::vector<std::string>& known,
                         const std::string& program);

/// Says a sentence on standard error in the name of `program`.
std::function<void(const std::string& message)> say_in(std::string program);

/// One of the things that a verb does, with a command line of its own: `bert data create`.
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

/// Runs the action that argv[1] names, or prints what there is to choose for --help. Throws UsageError.
int run_action(const ActionVerb& verb, int argc, char** argv);

/// A check that an option's value is a number in [low, high], both included. NaN and what is no number are outside.
template <class Number>
CLI::Validator number_in(Number low, Number high) {
  const std::string range = fmt::format("from {} to {}", low, high);
  return {[=](std::string& text) {
            Number value{};
            errno = 0;  // a number that does not fit comes back as the nearest one that does
            const bool inside =
                CLI::detail::lexical_cast(text, value) && errno != ERANGE && value >= low && value <= high;
            if (!inside) return fmt::format("want a number {}, got {}", range, text);
            if (std::is_floating_point_v<Number> && underflows(text, static_cast<double>(value)))
              return fmt::format("want a number {}, got {}, which does not fit a double", range, text);
            return std::string();
          },
          range};
}

/// Most sequences, tokens and steps that an option may ask for: more is a mistake, not a wish.
inline constexpr int64_t kManyTimes = 1'000'000'000, kManySequences = 1 << 20;

}  // namespace bert
