#include "app/cli/description.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string_view>
#include <utility>

#include "data/io/text_parts.h"

namespace bert {
namespace {

constexpr std::string_view kExample = "Example: ";

std::string hyphenated(std::string name) {
  std::ranges::replace(name, '_', '-');
  return name;
}

/// Adds the paragraphs of `text` to `paragraphs`, and its examples to `examples`.
void take_text(const std::string& text, std::string& paragraphs, std::vector<std::string>& examples) {
  bool in_example = false;
  for (const std::string& line : split(text, '\n')) {
    const size_t begin = line.find_first_not_of(' ');
    if (begin == std::string::npos) continue;
    if (line.starts_with(kExample)) {
      in_example = true;
      examples.push_back(line.substr(kExample.size()));
    } else if (in_example && begin > 0) {
      examples.push_back(line.substr(begin));
    } else {
      in_example = false;
      paragraphs += (paragraphs.empty() ? "" : "\n") + line;
    }
  }
}

/// CLI11 writes a list of defaults as [8,16].
std::string without_brackets(const std::string& text) {
  return text.starts_with('[') && text.ends_with(']') ? text.substr(1, text.size() - 2) : text;
}

/// Takes the parts of CLI11's name of a type: "TEXT:{ids,tokens}", "INT:from 1 to 64".
void take_type(const std::string& type, OptionDescription& option) {
  const std::string base = type.substr(0, type.find(':'));
  option.number = base == "INT" || base == "UINT" || base == "FLOAT";
  option.overrides = type.find(kKeyValue) != std::string::npos;
  option.value = base == "FLOAT" ? "X" : option.number ? "N" : base;
  if (const size_t begin = type.find('{'); begin != std::string::npos && type.find('}', begin) != std::string::npos) {
    option.words = split(type.substr(begin + 1, type.find('}', begin) - begin - 1), ',');
  } else if (const size_t range = type.find("from "); range != std::string::npos) {
    option.range = type.substr(range);
  }
}

OptionDescription describe(const CLI::Option& option) {
  OptionDescription result;
  result.help = option.get_description();
  result.required = option.get_required();
  result.positional = !option.nonpositional();
  if (option.get_items_expected_max() > 0) take_type(option.get_type_name(), result);
  if (!result.value.empty()) result.default_value = without_brackets(option.get_default_str());
  result.repeats = option.get_items_expected_max() > 1;
  if (result.repeats && option.get_delimiter() != '\0') {
    result.value += std::string(1, option.get_delimiter()) + "...";
    result.repeats = false;
  }
  if (result.positional) {
    result.names = {option.get_option_text().empty() ? option.get_name(true) : option.get_option_text()};
    std::ranges::transform(result.names[0], result.names[0].begin(),
                           [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    return result;
  }
  for (const std::string& letter : option.get_snames()) result.names.push_back("-" + letter);
  const std::vector<std::string>& names = option.get_lnames();
  for (const std::string& name : names) {
    const bool twin = hyphenated(name) != name && std::ranges::find(names, hyphenated(name)) != names.end();
    if (!twin) result.names.push_back("--" + name);
  }
  return result;
}

std::string first_sentence(const std::string& text) {
  std::string line = text.substr(0, text.find('\n'));
  line = line.substr(0, line.find(". "));
  if (line.ends_with('.')) line.pop_back();
  return line;
}

// ---- the text of --help ----

constexpr size_t kWidth = 120, kWidestLeft = 30, kWidestWords = 26;

void add_wrapped(std::string& out, const std::string& text, const std::string& indent) {
  for (const std::string& paragraph : split(text, '\n')) {
    for (const std::string& line : wrapped(paragraph, kWidth - indent.size())) out += indent + line + "\n";
  }
}

/// True if the list of words stands in place of the name of the value.
bool shows_words(const OptionDescription& option) {
  return !option.words.empty() && joined(option.words, "|").size() <= kWidestWords;
}

std::string left_side(const OptionDescription& option) {
  if (option.positional) return option.names[0] + (option.repeats ? "..." : "");
  std::string text = joined(option.names, ", ");
  if (option.value.empty()) return text;
  return text + " " + (shows_words(option) ? joined(option.words, "|") : option.value) + (option.repeats ? "..." : "");
}

std::string right_side(const OptionDescription& option) {
  std::vector<std::string> facts;
  if (!option.words.empty() && !shows_words(option)) facts.push_back("one of " + joined(option.words, ", "));
  if (!option.default_value.empty()) facts.push_back("default " + option.default_value);
  if (option.required && !option.positional) facts.emplace_back("required");
  return option.help + (facts.empty() ? "" : " [" + joined(facts, "; ") + "]");
}

void add_row(std::string& out, const std::string& left, const std::string& right, size_t column) {
  std::string line = "  " + left;
  line.resize(std::max(line.size() + 2, column), ' ');
  // A long left side moves the first line alone: the words that do not fit there go on in the column.
  const std::vector<std::string> first = wrapped(right, line.size() < kWidth ? kWidth - line.size() : 1);
  if (first.empty()) {
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    return;
  }
  out += line + first.front() + "\n";
  std::string rest;
  for (size_t i = 1; i < first.size(); ++i) rest += (rest.empty() ? "" : " ") + first[i];
  add_wrapped(out, rest, std::string(column, ' '));
}

std::string usage_of(const CommandDescription& command) {
  std::string usage = "Usage: " + command.name;
  if (!command.actions.empty()) return usage + " ACTION ... (each has --help with an example)\n";
  usage += " [OPTIONS]";
  for (const OptionDescription& option : command.options) {
    if (!option.positional) continue;
    const std::string name = option.names[0] + (option.repeats ? "..." : "");
    usage += option.required ? " " + name : " [" + name + "]";
  }
  return usage + (command.runs_program ? " [--] PROGRAM ARGUMENTS...\n" : "\n");
}

}  // namespace

CommandDescription describe(const CLI::App& app) {
  CommandDescription command;
  const CLI::App* const parent = app.get_parent();
  command.name = (parent == nullptr ? "" : parent->get_name() + " ") + app.get_name();
  take_text(app.get_description(), command.text, command.examples);
  take_text(app.get_footer(), command.notes, command.examples);
  command.summary = first_sentence(command.text);
  command.runs_program = app.get_prefix_command();
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_group().empty()) command.options.push_back(describe(*option));
  }
  std::ranges::stable_sort(command.options, [](const auto& a, const auto& b) { return a.positional > b.positional; });
  for (const CLI::App* action : app.get_subcommands(nullptr)) command.actions.push_back(describe(*action));
  return command;
}

std::string joined(const std::vector<std::string>& words, const char* separator) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : separator) + word;
  return text;
}

std::string last_word(const std::string& name) { return name.substr(name.rfind(' ') + 1); }

std::vector<std::string> wrapped(const std::string& text, size_t width) {
  std::vector<std::string> lines;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (lines.empty() || lines.back().size() + 1 + word.size() > width) {
      lines.push_back(word);
    } else {
      lines.back() += " " + word;
    }
  }
  return lines;
}

std::string help_text(const CommandDescription& command) {
  std::string out = usage_of(command);
  add_wrapped(out, command.text, "");
  std::vector<std::pair<std::string, std::string>> rows;
  for (const CommandDescription& action : command.actions) rows.emplace_back(last_word(action.name), action.summary);
  if (command.actions.empty()) {
    for (const OptionDescription& option : command.options) rows.emplace_back(left_side(option), right_side(option));
  }
  size_t widest = 0;  // of the left sides, but for a few long ones
  for (const auto& [left, right] : rows) {
    if (left.size() <= kWidestLeft) widest = std::max(widest, left.size());
  }
  for (const auto& [left, right] : rows) add_row(out, left, right, widest + 4);
  add_wrapped(out, command.notes, "");
  for (size_t i = 0; i < command.examples.size(); ++i)
    out += (i == 0 ? std::string(kExample) : std::string(kExample.size(), ' ')) + command.examples[i] + "\n";
  return out;
}

}  // namespace bert
