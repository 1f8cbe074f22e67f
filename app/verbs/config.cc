#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/cli/command_line.h"
#include "app/cli/description.h"
#include "app/config/finetune_config.h"
#include "app/config/pretrain_config.h"
#include "app/config/reference.h"
#include "app/config/starting_file.h"
#include "app/system/crypto.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "app/verbs/output_paths.h"
#include "app/verbs/verbs.h"
#include "data/io/files.h"

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
    app.add_option("OVERRIDES", overrides, "a.b.c=value sets a key")->type_name(kKeyValue);
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

constexpr const char* kPretrain = "pretrain";

std::string schema_of(const std::string& task) {
  return task == kPretrain ? pretrain_config_schema() : finetune_config_schema();
}

/// Prints `text`, or writes it to `output` if that names a file.
void write_or_print(const std::string& text, const std::string& output) {
  output.empty() ? fmt::print("{}", text) : write_file(output, text);
}

int schema(int argc, char** argv) {
  CLI::App app("Prints the JSON Schema of configurations: keys, ranges, defaults, descriptions. Editors take it.",
               "bert config schema");
  app.footer(
      "A configuration names the file in \"$schema\", and VS Code, IntelliJ and others then complete and check keys.\n"
      "Example: bert config schema --task finetune --output finetune.schema.json");
  std::string task = kPretrain, output;
  app.add_option("--task", task, "of bert pretrain or of bert finetune")
      ->check(CLI::IsMember({kPretrain, "finetune"}))
      ->capture_default_str();
  app.add_option("--output", output, "file to write, instead of standard output");
  if (!parse_command_line(app, argc, argv)) return kOk;
  check_outputs({{"--output", output}}, {});
  write_or_print(schema_of(task), output);
  return kOk;
}

int start(int argc, char** argv) {
  CLI::App app("Writes a configuration to start from: the keys that people change, each with its meaning as a comment.",
               "bert config new");
  app.footer(
      "The values are those of the recipe in configs/.\n"
      "Example: bert config new --task sst2 --output sst2.json");
  std::string task = kPretrain, output;
  app.add_option("--task", task, "pretrain, or the task of bert finetune")
      ->check(CLI::IsMember(starting_tasks()))
      ->capture_default_str();
  app.add_option("--output", output, "file to write, instead of standard output");
  if (!parse_command_line(app, argc, argv)) return kOk;
  check_outputs({{"--output", output}}, {});
  write_or_print(starting_file(task), output);
  return kOk;
}

int reference(int argc, char** argv) {
  CLI::App app("Prints the reference of all keys as Markdown: type, range, default, meaning.", "bert config reference");
  app.footer("Example: bert config reference >configs/reference.md");
  if (!parse_command_line(app, argc, argv)) return kOk;
  write_or_print(config_reference(), "");
  return kOk;
}

int config_diff(int argc, char** argv) {
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

constexpr Action kConfigActions[] = {
    {"new", start, "writes a commented file to start from"},
    {"validate", validate, "reports every error, or \"valid\""},
    {"show", show, "prints the resolved configuration"},
    {"schema", schema, "prints the JSON Schema, for editors"},
    {"reference", reference, "prints all keys with their meaning"},
    {"diff", config_diff, "compares two configurations key by key"},
};

}  // namespace

int config_command(int argc, char** argv) {
  return run_action({.program = "bert config",
                     .example = "bert config show configs/quickstart.json max_steps=100",
                     .actions = kConfigActions},
                    argc, argv);
}

}  // namespace bert
