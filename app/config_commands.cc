#include "app/config_commands.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/command_line.h"
#include "app/config.h"

namespace bert {

int config_command(int argc, char** argv) {
  CLI::App app("Checks and shows configurations.", "bert config");
  app.require_subcommand(1);
  app.footer("Example: bert config show configs/quickstart.json max_steps=100 optimizer.lr=1e-3");
  std::string path, other;
  std::vector<std::string> overrides;

  CLI::App* validate = app.add_subcommand("validate", "Reports every error, or prints \"valid\"");
  validate->add_option("CONFIG", path, "JSON file")->required();
  validate->add_option("OVERRIDES", overrides, "a.b.c=value");
  validate->callback([&] {
    const PretrainConfig config = load_pretrain_config(path, overrides);
    fmt::print("{}: valid, sha256 {}\n", path, config_sha256(config));
  });

  CLI::App* show = app.add_subcommand("show", "Prints the resolved configuration, every key with its value");
  show->add_option("CONFIG", path, "JSON file")->required();
  show->add_option("OVERRIDES", overrides, "a.b.c=value");
  show->callback([&] { fmt::print("{}", to_json(load_pretrain_config(path, overrides))); });

  app.add_subcommand("schema", "Prints the JSON Schema: keys, ranges, defaults, descriptions")->callback([] {
    fmt::print("{}", pretrain_config_schema());
  });

  CLI::App* diff = app.add_subcommand("diff", "Prints a line of JSON for every key in which two configurations differ");
  diff->add_option("A", path, "JSON file")->required();
  diff->add_option("B", other, "JSON file")->required();
  diff->callback([&] {
    for (const ConfigDifference& difference : compare(load_pretrain_config(path), load_pretrain_config(other))) {
      fmt::print("{{\"key\": {}, \"a\": {}, \"b\": {}}}\n", nlohmann::json(difference.pointer).dump(),
                 difference.before, difference.after);
    }
  });

  parse_command_line(app, argc, argv);
  return 0;
}

}  // namespace bert
