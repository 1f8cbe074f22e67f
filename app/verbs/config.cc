#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/cli/command_line.h"
#include "app/config/finetune_config.h"
#include "app/config/pretrain_config.h"
#include "app/system/crypto.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "app/verbs/verbs.h"

namespace bert {
namespace {

/// The resolved configuration as JSON: of fine-tuning if it names a task, otherwise of pre-training.
std::string load(const std::string& path, const std::vector<std::string>& overrides) {
  return names_task(path, overrides) ? to_json(load_finetune_config(path, overrides))
                                     : to_json(load_pretrain_config(path, overrides));
}

/// The arguments of an action that takes one configuration.
struct ConfigArguments {
  std::string path;
  std::vector<std::string> overrides;

  explicit ConfigArguments(CLI::App& app) {
    app.add_option("CONFIG", path, "JSON file")->required();
    app.add_option("OVERRIDES", overrides, "a.b.c=value sets a key");
  }
};

int validate(int argc, char** argv) {
  CLI::App app("Reports every error of a configuration, or prints \"valid\".", "bert config validate");
  app.footer("Example: bert config validate configs/quickstart.json max_steps=100");
  const ConfigArguments arguments(app);
  if (!parse_command_line(app, argc, argv)) return kOk;
  const std::string json = load(arguments.path, arguments.overrides);
  fmt::print("{}: valid, sha256 {}\n", arguments.path, sha256(json));
  return kOk;
}

int show(int argc, char** argv) {
  CLI::App app("Prints the resolved configuration, every key with its value.", "bert config show");
  app.footer("Example: bert config show configs/quickstart.json max_steps=100 optimizer.lr=1e-3");
  const ConfigArguments arguments(app);
  if (!parse_command_line(app, argc, argv)) return kOk;
  fmt::print("{}", load(arguments.path, arguments.overrides));
  return kOk;
}

int schema(int argc, char** argv) {
  CLI::App app("Prints the JSON Schema: keys, ranges, defaults, descriptions.", "bert config schema");
  app.footer("Example: bert config schema >bert.schema.json");
  std::string kind = "pretrain";
  app.add_option("KIND", kind, "of bert pretrain or of bert finetune")
      ->check(CLI::IsMember({"pretrain", "finetune"}))
      ->capture_default_str();
  if (!parse_command_line(app, argc, argv)) return kOk;
  fmt::print("{}", kind == "pretrain" ? pretrain_config_schema() : finetune_config_schema());
  return kOk;
}

int diff(int argc, char** argv) {
  CLI::App app("Prints a line of JSON for every key in which two configurations differ.", "bert config diff");
  app.footer("Example: bert config diff configs/bert-base.json configs/bert-large.json");
  std::string path, other;
  app.add_option("A", path, "JSON file")->required();
  app.add_option("B", other, "JSON file")->required();
  if (!parse_command_line(app, argc, argv)) return kOk;
  if (names_task(path, {}) != names_task(other, {}))
    throw UsageError(path + " and " + other + ": one is of pre-training, the other of fine-tuning");
  const std::vector<ConfigDifference> differences =
      names_task(path, {}) ? compare(load_finetune_config(path), load_finetune_config(other))
                           : compare(load_pretrain_config(path), load_pretrain_config(other));
  for (const ConfigDifference& difference : differences) {
    fmt::print("{{\"key\": {}, \"a\": {}, \"b\": {}}}\n", nlohmann::json(difference.pointer).dump(), difference.before,
               difference.after);
  }
  return kOk;
}

constexpr Action kActions[] = {
    {"validate", validate, "reports every error, or \"valid\""},
    {"show", show, "prints the resolved configuration"},
    {"schema", schema, "prints the JSON Schema"},
    {"diff", diff, "compares two configurations key by key"},
};

}  // namespace

int config_command(int argc, char** argv) {
  return run_action({.program = "bert config",
                     .example = "bert config show configs/quickstart.json max_steps=100",
                     .actions = kActions},
                    argc, argv);
}

}  // namespace bert
