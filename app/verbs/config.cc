#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/cli/command_line.h"
#include "app/config/pretrain_config.h"
#include "app/system/exit_codes.h"
#include "app/verbs/verbs.h"

namespace bert {
namespace {

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
  const PretrainConfig config = load_pretrain_config(arguments.path, arguments.overrides);
  fmt::print("{}: valid, sha256 {}\n", arguments.path, config_sha256(config));
  return kOk;
}

int show(int argc, char** argv) {
  CLI::App app("Prints the resolved configuration, every key with its value.", "bert config show");
  app.footer("Example: bert config show configs/quickstart.json max_steps=100 optimizer.lr=1e-3");
  const ConfigArguments arguments(app);
  if (!parse_command_line(app, argc, argv)) return kOk;
  fmt::print("{}", to_json(load_pretrain_config(arguments.path, arguments.overrides)));
  return kOk;
}

int schema(int argc, char** argv) {
  CLI::App app("Prints the JSON Schema: keys, ranges, defaults, descriptions.", "bert config schema");
  app.footer("Example: bert config schema >bert.schema.json");
  if (!parse_command_line(app, argc, argv)) return kOk;
  fmt::print("{}", pretrain_config_schema());
  return kOk;
}

int diff(int argc, char** argv) {
  CLI::App app("Prints a line of JSON for every key in which two configurations differ.", "bert config diff");
  app.footer("Example: bert config diff configs/bert-base.json configs/bert-large.json");
  std::string path, other;
  app.add_option("A", path, "JSON file")->required();
  app.add_option("B", other, "JSON file")->required();
  if (!parse_command_line(app, argc, argv)) return kOk;
  for (const ConfigDifference& difference : compare(load_pretrain_config(path), load_pretrain_config(other))) {
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
