#include "app/cli/man_page.h"

#include <algorithm>
#include <cctype>
#include <sstream>
#include <utility>

namespace bert {
namespace {

/// `text` as roff prints it: no escape, no hyphen that becomes a dash, no request at the beginning of a line.
std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    const bool begins = result.empty() || result.back() == '\n';
    if (begins && (c == '.' || c == '\'')) result += "\\&";
    if (c == '\\') {
      result += "\\e";
    } else if (c == '-') {
      result += "\\-";
    } else if (c == '^') {
      result += "\\(ha";
    } else if (c == '~') {
      result += "\\(ti";
    } else if (c == '`') {
      result += "\\(ga";
    } else if (c == '\'') {
      result += "\\(aq";
    } else {
      result += c;
    }
  }
  return result;
}

/// `text` on lines of a moderate length, each sentence of it as it is.
std::string filled(const std::string& text) {
  constexpr size_t kWidth = 100;
  std::string result;
  std::istringstream paragraphs(text);
  bool first = true;
  for (std::string paragraph; std::getline(paragraphs, paragraph);) {
    if (!std::exchange(first, false)) result += ".PP\n";
    for (const std::string& line : wrapped(paragraph, kWidth)) result += escaped(line) + "\n";
  }
  return result;
}

std::string upper(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

std::string synopsis(const CommandDescription& command) {
  std::string text = "\\fB" + escaped(command.name) + "\\fR";
  if (!command.actions.empty()) return text + " \\fIACTION\\fR ...\n";
  text += " [\\fIOPTIONS\\fR]";
  for (const OptionDescription& option : command.options) {
    if (!option.positional) continue;
    const std::string name = "\\fI" + escaped(option.names[0]) + "\\fR" + (option.repeats ? "..." : "");
    text += option.required ? " " + name : " [" + name + "]";
  }
  return text + (command.runs_program ? " [\\fB\\-\\-\\fR] \\fIPROGRAM\\fR \\fIARGUMENTS\\fR...\n" : "\n");
}

std::string option_entry(const OptionDescription& option) {
  std::string text = ".TP\n";
  for (const std::string& name : option.names)
    text += (name == option.names.front() ? "" : ", ") + ("\\fB" + escaped(name) + "\\fR");
  if (!option.positional && !option.value.empty()) text += " \\fI" + escaped(option.value) + "\\fR";
  if (option.repeats) text += "...";
  std::string help = option.help;
  const auto add = [&](const std::string& fact) { help += (help.empty() ? "" : ". ") + fact; };
  if (!option.words.empty()) {
    std::string words;
    for (const std::string& word : option.words) words += (words.empty() ? "One of " : ", ") + word;
    add(words);
  }
  if (!option.range.empty()) add("A number " + option.range);
  if (!option.default_value.empty()) add("Default: " + option.default_value);
  if (option.required) add("Required");
  std::ranges::replace(help, '\n', ' ');
  return text + "\n" + filled(help.ends_with('.') ? help : help + ".");
}

std::string options_of(const CommandDescription& command) {
  std::string text;
  for (const OptionDescription& option : command.options) text += option_entry(option);
  return text;
}

std::string examples_of(const CommandDescription& command) {
  std::string text;
  for (const std::string& example : command.examples) text += escaped(example) + "\n";
  return text.empty() ? text : ".PP\n.nf\n" + text + ".fi\n";
}

/// The part of an action, and of its own actions.
std::string action_part(const CommandDescription& action) {
  std::string text = ".SH " + escaped(upper(action.name)) + "\n";
  if (action.actions.empty()) text += synopsis(action) + ".PP\n";
  text += filled(action.text.empty() ? action.summary + "." : action.text);
  if (action.actions.empty()) text += options_of(action);
  if (!action.notes.empty()) text += ".PP\n" + filled(action.notes);
  text += examples_of(action);
  for (const CommandDescription& inner : action.actions) text += action_part(inner);
  return text;
}

}  // namespace

std::string man_page_name(const CommandDescription& command) {
  std::string name = command.name;
  std::ranges::replace(name, ' ', '-');
  return name;
}

std::string man_page(const CommandDescription& command, const ManPageContext& context, bool list_actions) {
  const std::string name = man_page_name(command);
  std::string page = ".\\\" Written by `bert man`.\n.TH " + escaped(upper(name)) + " 1 \"\" \"bert " +
                     escaped(context.version) + "\" \"bert\"\n";
  page += ".SH NAME\n" + escaped(name) + " \\- " + escaped(command.summary) + "\n";
  page += ".SH SYNOPSIS\n" + synopsis(command);
  page += ".SH DESCRIPTION\n" + filled(command.text.empty() ? command.summary + "." : command.text);
  if (!command.notes.empty()) page += ".PP\n" + filled(command.notes);
  if (list_actions) {
    page += ".SH COMMANDS\n";
    for (const CommandDescription& action : command.actions)
      page += ".TP\n\\fB" + escaped(man_page_name(action)) + "\\fR(1)\n" + escaped(action.summary) + ".\n";
  }
  if (command.actions.empty() || list_actions) page += ".SH OPTIONS\n" + options_of(command);
  if (!list_actions) {
    for (const CommandDescription& action : command.actions) page += action_part(action);
  }
  if (const std::string examples = examples_of(command); !examples.empty())
    page += ".SH EXAMPLES\n" + examples.substr(4);
  page += ".SH EXIT STATUS\n" + filled(context.exit_codes);
  page += ".SH SEE ALSO\n";
  for (const std::string& other : context.see_also)
    page += "\\fB" + escaped(other) + "\\fR(1)" + (other == context.see_also.back() ? "\n" : ",\n");
  return page;
}

}  // namespace bert
