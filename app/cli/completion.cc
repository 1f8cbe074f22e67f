#include "app/cli/completion.h"

#include <algorithm>
#include <functional>

#include "data/io/text_parts.h"

namespace bert {
namespace {

/// `text` as a word of bash and zsh.
std::string quoted(const std::string& text) { return "'" + replaced(text, "'", R"('\'')") + "'"; }

/// `text` as a word of fish, whose quotes know the backslash.
std::string fish_quoted(const std::string& text) {
  return "'" + replaced(replaced(text, "\\", "\\\\"), "'", "\\'") + "'";
}

/// The name of the set of keys that the overrides of a command have; empty for a command without overrides.
std::string key_set(const CommandDescription& command) {
  const bool takes_keys =
      std::ranges::any_of(command.options, [](const OptionDescription& option) { return option.overrides; });
  if (!takes_keys) return "";
  if (command.name.starts_with("bert config ")) return "all";
  return command.name == "bert finetune" ? "finetune" : "pretrain";
}

/// The sets of keys by name. "all" has the keys of both kinds of runs.
std::vector<std::pair<std::string, std::vector<ConfigKey>>> key_sets(const CompletedPrograms& programs) {
  std::vector<ConfigKey> all = programs.pretrain_keys;
  for (const ConfigKey& key : programs.finetune_keys) {
    const auto same = [&](const ConfigKey& other) { return other.name == key.name; };
    if (std::ranges::none_of(all, same)) all.push_back(key);
  }
  return {{"pretrain", programs.pretrain_keys}, {"finetune", programs.finetune_keys}, {"all", all}};
}

void for_each_command(const CommandDescription& command,
                      const std::function<void(const CommandDescription& command)>& visit) {
  visit(command);
  for (const CommandDescription& action : command.actions) for_each_command(action, visit);
}

// ---- bash and zsh: tables, which a function reads ----

/// The options of a command by kind, as words of one string each.
struct OptionLists {
  std::string flags, numbers, choices;  // a choice is --option=A|B

  explicit OptionLists(const CommandDescription& command) {
    const auto add = [](std::string& list, const std::string& word) { list += (list.empty() ? "" : " ") + word; };
    for (const OptionDescription& option : command.options) {
      if (option.positional) continue;
      for (const std::string& name : option.names) {
        if (option.value.empty()) add(flags, name);
        if (option.number) add(numbers, name);
        if (!option.words.empty()) add(choices, name + "=" + joined(option.words, "|"));
      }
    }
  }

  [[nodiscard]] std::string assignments() const {
    std::string text;
    if (!flags.empty()) text += " flags=" + quoted(flags);
    if (!numbers.empty()) text += " numbers=" + quoted(numbers);
    if (!choices.empty()) text += " choices=" + quoted(choices);
    return text;
  }
};

/// The words of an argument without a name: `bert evaluate TASK`.
std::vector<std::string> words_of_argument(const CommandDescription& command) {
  for (const OptionDescription& option : command.options) {
    if (option.positional && !option.words.empty()) return option.words;
  }
  return {};
}

std::vector<std::string> long_options(const CommandDescription& command) {
  std::vector<std::string> names;
  for (const OptionDescription& option : command.options) {
    if (!option.positional) names.push_back(option.names.back());
  }
  return names;
}

/// The branch of a command in the function that describes commands. `list` makes the lists of actions and options.
std::string branch(const CommandDescription& command, const std::string& lists) {
  std::string text = "    " + quoted(command.name) + ")\n      " + lists + OptionLists(command).assignments();
  if (const std::string words = joined(words_of_argument(command), " "); !words.empty())
    text += " words_of=" + quoted(words);
  if (const std::string keys = key_set(command); !keys.empty()) text += " keys=" + keys;
  return text + " ;;\n";
}

/// The branches of the function that prints a set of keys, each key as KEY=A|B.
std::string key_branches(const CompletedPrograms& programs) {
  std::string text;
  for (const auto& [name, keys] : key_sets(programs)) {
    text += "    " + name + ") echo '";
    for (const ConfigKey& key : keys) text += key.name + "=" + joined(key.words, "|") + " ";
    text += "' ;;\n";
  }
  return text;
}

std::string bash_branches(const CompletedPrograms& programs) {
  std::string text;
  const auto add = [&](const CommandDescription& command) {
    std::vector<std::string> actions;
    for (const CommandDescription& action : command.actions) actions.push_back(last_word(action.name));
    std::string lists = "options=" + quoted(joined(long_options(command), " "));
    if (!actions.empty()) lists += " actions=" + quoted(joined(actions, " "));
    text += branch(command, lists);
  };
  for_each_command(programs.bert, add);
  for_each_command(programs.bertrun, add);
  return text;
}

constexpr const char* kBash = R"script(# bash completion of bert and bertrun, written by `bert completion bash`.

# _bert_describe COMMAND: sets the actions and the options of a command. Of the options, `flags` have no value, `numbers` a number, and
# `choices` (--option=A|B) one of some words. `keys` names the set of keys that the command takes.
_bert_describe() {
  actions= options= flags= numbers= choices= words_of= keys=
  case $1 in
@COMMANDS@  esac
}

# _bert_keys SET: the keys of a configuration, each as KEY=A|B
_bert_keys() {
  case $1 in
@KEYS@  esac
}

# _bert_words NAME LIST: the words A and B of NAME=A|B in the list
_bert_words() {
  local entry
  for entry in $2; do
    [[ $entry != "$1="* ]] || echo "${entry#*=}" | tr '|' ' '
  done
}

# _bert_reply WORDS PREFIX [BEFORE]: offers the words that begin with PREFIX. BEFORE stands before them where bash does not divide at '='.
_bert_reply() {
  local word
  while read -r word; do
    [[ $COMP_WORDBREAKS == *=* ]] || word=${3-}$word
    COMPREPLY+=("$word")
  done < <(compgen -W "$1" -- "$2")
}

_bert() {
  local line=${COMP_LINE:0:COMP_POINT} current= place previous option= value before= i=1
  local actions options flags numbers choices words_of keys
  local -a typed
  COMPREPLY=()
  read -ra typed <<<"$line"
  if [[ $line != *[[:space:]] ]]; then
    current=${typed[-1]}
    unset 'typed[-1]'
  fi
  place=${typed[0]##*/}
  if [[ $place == bertrun ]]; then
    _bert_describe bertrun
    while [[ i -lt ${#typed[@]} && ${typed[i]} == -* ]]; do
      if [[ ${typed[i]} == -- ]]; then
        i=$((i + 1))
        break
      fi
      [[ ${typed[i]} == *=* || " $flags " == *" ${typed[i]} "* ]] || i=$((i + 1))
      i=$((i + 1))
    done
    if [[ i -lt ${#typed[@]} ]]; then
      [[ ${typed[i]##*/} == bert ]] || return
      place=bert i=$((i + 1))
    fi
  fi
  while _bert_describe "$place"; [[ i -lt ${#typed[@]} && " $actions " == *" ${typed[i]} "* ]]; do
    place+=" ${typed[i]}" i=$((i + 1))
  done

  previous=${typed[-1]}
  if [[ $current == --*=* ]]; then
    option=${current%%=*} value=${current#*=} before=${current%%=*}=
  elif [[ $previous == -* && $previous != -- && $previous != *=* && " $flags " != *" $previous "* ]]; then
    option=$previous value=$current
  fi
  if [[ -n $option ]]; then
    if [[ " $numbers " == *" $option "* ]]; then
      compopt +o default 2>/dev/null
    else
      _bert_reply "$(_bert_words "$option" "$choices")" "$value" "$before"
    fi
  elif [[ $current == -* ]]; then
    _bert_reply "$options" "$current"
  elif [[ -n $actions ]]; then
    _bert_reply "$actions" "$current"
    compopt +o default 2>/dev/null
  elif [[ $place == bertrun ]]; then
    _bert_reply bert "$current"
  elif [[ -n $words_of && i -eq ${#typed[@]} ]]; then
    _bert_reply "$words_of" "$current"
  elif [[ -n $keys && " ${typed[*]:i} " == *.json\ * ]]; then
    if [[ $current == *=* ]]; then
      _bert_reply "$(_bert_words "${current%%=*}" "$(_bert_keys "$keys")")" "${current#*=}" "${current%%=*}="
    else
      _bert_reply "$(_bert_keys "$keys" | sed 's/=[^ ]*/=/g')" "$current"
      [[ ${#COMPREPLY[@]} -eq 0 ]] || compopt -o nospace 2>/dev/null
    fi
  fi
}
complete -o default -F _bert bert bertrun
)script";

std::string zsh_branches(const CompletedPrograms& programs) {
  std::string text;
  const auto described = [](const std::string& name, const std::string& help) {
    return quoted(replaced(name, ":", "\\:") + ":" + replaced(help, "\n", " "));
  };
  const auto add = [&](const CommandDescription& command) {
    std::string actions, options;
    for (const CommandDescription& action : command.actions)
      actions += described(last_word(action.name), action.summary) + " ";
    for (const OptionDescription& option : command.options) {
      if (!option.positional) options += described(option.names.back(), option.help) + " ";
    }
    text += branch(command, "options=(" + options + ")" + (actions.empty() ? "" : " actions=(" + actions + ")"));
  };
  for_each_command(programs.bert, add);
  for_each_command(programs.bertrun, add);
  return text;
}

constexpr const char* kZsh = R"script(#compdef bert bertrun
# zsh completion of bert and bertrun, written by `bert completion zsh`.

# _bert_describe COMMAND: sets the actions and the options of a command. Of the options, `flags` have no value, `numbers` a number, and
# `choices` (--option=A|B) one of some words. `keys` names the set of keys that the command takes.
_bert_describe() {
  actions=() options=() flags= numbers= choices= words_of= keys=
  case $1 in
@COMMANDS@  esac
}

# _bert_keys SET: the keys of a configuration, each as KEY=A|B
_bert_keys() {
  case $1 in
@KEYS@  esac
}

# _bert_offer NAME LIST: offers the words A and B of NAME=A|B in the list, or files where the list has none
_bert_offer() {
  local entry
  local -a found
  for entry in ${=2}; do
    [[ $entry != $1=* ]] || found=(${(s:|:)${entry#*=}})
  done
  if (( $#found )); then compadd -a found; else _files; fi
}

_bert() {
  local place=${words[1]:t} previous=${words[CURRENT-1]} option= i=2
  local flags numbers choices words_of keys
  local -a actions options names
  if [[ $place == bertrun ]]; then
    _bert_describe bertrun
    while (( i < CURRENT )) && [[ ${words[i]} == -* ]]; do
      if [[ ${words[i]} == -- ]]; then
        (( i++ ))
        break
      fi
      [[ ${words[i]} == *=* || " $flags " == *" ${words[i]} "* ]] || (( i++ ))
      (( i++ ))
    done
    if (( i < CURRENT )); then
      if [[ ${words[i]:t} != bert ]]; then
        _files
        return
      fi
      place=bert
      (( i++ ))
    fi
  fi
  while true; do
    _bert_describe $place
    names=(${actions%%:*})
    (( i < CURRENT && ${names[(Ie)${words[i]}]} )) || break
    place+=" ${words[i]}"
    (( i++ ))
  done

  if [[ $PREFIX == --*=* ]]; then
    option=${PREFIX%%=*}
    compset -P '*='
  elif [[ $previous == -* && $previous != -- && $previous != *=* && " $flags " != *" $previous "* ]]; then
    option=$previous
  fi
  if [[ -n $option ]]; then
    if [[ " $numbers " == *" $option "* ]]; then _message number; else _bert_offer $option "$choices"; fi
  elif [[ $PREFIX == -* ]]; then
    _describe -o option options
  elif (( $#actions )); then
    _describe action actions
  elif [[ $place == bertrun ]]; then
    compadd bert
    _files
  elif [[ -n $words_of ]] && (( i == CURRENT )); then
    compadd ${=words_of}
  elif [[ -n $keys && "${words[*]}" == *.json* ]]; then
    if [[ $PREFIX == *=* ]]; then
      option=${PREFIX%%=*}
      compset -P '*='
      _bert_offer $option "$(_bert_keys $keys)"
    else
      names=(${=$(_bert_keys $keys)})
      names=(${names%%=*})
      compadd -S '=' -a names
      _files
    fi
  else
    _files
  fi
}

if [[ $funcstack[1] == _bert ]]; then _bert "$@"; else compdef _bert bert bertrun; fi
)script";

// ---- fish: a line for each option ----

std::string fish_option(const OptionDescription& option) {
  std::string line;
  for (const std::string& name : option.names)
    line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  if (!option.words.empty()) {
    line += " -x -a " + fish_quoted(joined(option.words, " "));
  } else if (option.number) {
    line += " -x";
  } else if (!option.value.empty()) {
    line += " -r -F";
  }
  return line + " -d " + fish_quoted(replaced(option.help, "\n", " "));
}

std::string fish_lines(const CompletedPrograms& programs) {
  std::string text;
  const auto add = [&](const CommandDescription& command) {
    const std::string start = "  complete -c $program -n " + fish_quoted("__bert_at " + command.name);
    for (const CommandDescription& action : command.actions)
      text += start + " -f -a " + last_word(action.name) + " -d " + fish_quoted(action.summary) + "\n";
    for (const OptionDescription& option : command.options) {
      if (!option.positional) text += start + fish_option(option) + "\n";
    }
    if (const auto words = words_of_argument(command); !words.empty())
      text += start + " -f -a " + fish_quoted(joined(words, " ")) + "\n";
    if (const std::string keys = key_set(command); !keys.empty())
      text += start + " -a " + fish_quoted("(__bert_keys " + keys + ")") + "\n";
  };
  for_each_command(programs.bert, add);
  for_each_command(programs.bertrun, add);
  return text;
}

std::string fish_actions(const CompletedPrograms& programs) {
  std::string text;
  for_each_command(programs.bert, [&](const CommandDescription& command) {
    if (command.actions.empty()) return;
    text += "    case " + fish_quoted(command.name) + "\n      printf '%s\\n'";
    for (const CommandDescription& action : command.actions) text += " " + last_word(action.name);
    text += "\n";
  });
  return text;
}

std::string fish_keys(const CompletedPrograms& programs) {
  std::string text;
  for (const auto& [name, keys] : key_sets(programs)) {
    text += "    case " + name + "\n      printf '%s\\n'";
    for (const ConfigKey& key : keys) {
      text += " " + key.name + "=";
      for (const std::string& word : key.words) text += " " + key.name + "=" + word;
    }
    text += "\n";
  }
  return text;
}

constexpr const char* kFish = R"script(# fish completion of bert and bertrun, written by `bert completion fish`.

# __bert_actions COMMAND: the actions of a command, a line each
function __bert_actions
  switch "$argv"
@ACTIONS@  end
end

# __bert_at COMMAND: true if the line has come to this command
function __bert_at
  set -l typed (commandline -opc)
  set -l place (string replace -r '.*/' '' -- $typed[1])
  set -e typed[1]
  if test "$place" = bertrun
    for i in (seq (count $typed))
      if string match -qr '^(.*/)?bert$' -- $typed[$i]
        set place bert
        set -e typed[1..$i]
        break
      end
    end
  end
  for word in $typed
    contains -- $word (__bert_actions $place); or break
    set place $place $word
  end
  test "$place" = "$argv"
end

# __bert_keys SET: the keys of a configuration, if the line has the name of one
function __bert_keys
  string match -q '*.json*' -- (commandline -opc); or return
  switch $argv
@KEYS@  end
end

for program in bert bertrun
@COMMANDS@  complete -c $program -n '__bert_at bertrun' -a bert
end
)script";

}  // namespace

std::vector<std::string> shells() { return {"bash", "zsh", "fish"}; }

std::string completion_script(const CompletedPrograms& programs, const std::string& shell) {
  if (shell == "fish") {
    return replaced(replaced(replaced(kFish, "@ACTIONS@", fish_actions(programs)), "@KEYS@", fish_keys(programs)),
                    "@COMMANDS@", fish_lines(programs));
  }
  const bool bash = shell == "bash";
  return replaced(replaced(bash ? kBash : kZsh, "@COMMANDS@", bash ? bash_branches(programs) : zsh_branches(programs)),
                  "@KEYS@", key_branches(programs));
}

}  // namespace bert
