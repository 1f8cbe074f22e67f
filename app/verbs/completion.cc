#include "app/cli/completion.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "app/cli/command_line.h"
#include "app/config/finetune_config.h"
#include "app/config/pretrain_config.h"
#include "app/system/exit_codes.h"
#include "app/verbs/programs.h"
#include "app/verbs/verbs.h"

namespace bert {
namespace {

template <class Config>
std::vector<ConfigKey> keys_of(Config config) {
  std::vector<ConfigKey> keys;
  for (const ConfigField& field : fields_of(config).leaves) {
    ConfigKey key{.name = field.pointer.substr(1), .words = field.allowed};
    std::replace(key.name.begin(), key.name.end(), '/', '.');
    if (std::holds_alternative<bool*>(field.value)) key.words = {"true", "false"};
    if (std::holds_alternative<std::optional<bool>*>(field.value)) key.words = {"true", "false", "null"};
    keys.push_back(std::move(key));
  }
  return keys;
}

}  // namespace

int completion_command(int argc, char** argv) {
  CLI::App app("Prints a script that completes command lines of bert and bertrun: verbs, options, their values, keys.",
               "bert completion");
  app.footer(
      "An installation has the scripts where the shells look for them. Elsewhere: source <(bert completion bash) in "
      "~/.bashrc, source <(bert completion zsh) in ~/.zshrc after compinit, or bert completion fish "
      ">~/.config/fish/completions/bert.fish.\n"
      "Example: bert completion bash >bert.bash");
  std::string shell;
  app.add_option("SHELL", shell, "the shell")->required()->check(CLI::IsMember(shells()));
  if (!parse_command_line(app, argc, argv)) return kOk;
  Programs programs = describe_programs();
  fmt::print("{}", completion_script({.bert = std::move(programs.bert),
                                      .bertrun = std::move(programs.bertrun),
                                      .pretrain_keys = keys_of(PretrainConfig()),
                                      .finetune_keys = keys_of(FinetuneConfig())},
                                     shell));
  return kOk;
}

}  // namespace bert
