// The reference of keys, starting files, and the schema that editors take.
#include "app/config/starting_file.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/config/finetune_config.h"
#include "app/config/pretrain_config.h"
#include "app/config/reference.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "app/verbs/verbs.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "tests/places.h"
#include "tests/support/command_testing.h"
#include "tests/support/text_file.h"
#include "tests/testing.h"

namespace bert {
namespace {

using testing::CommandResult;
using testing::Contains;
using testing::run_command;
using testing::TemporaryDirectory;
using testing::write_text;

CommandResult config(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "config");
  return run_command(config_command, arguments);
}

/// The keys in which two configurations differ, without those that `set` names.
template <class Config>
std::vector<std::string> other_keys(const Config& a, const Config& b, const std::vector<std::string>& set) {
  std::vector<std::string> keys;
  for (const ConfigDifference& difference : compare(a, b)) {
    if (std::find(set.begin(), set.end(), difference.pointer) == set.end()) keys.push_back(difference.pointer);
  }
  return keys;
}

}  // namespace

TEST_CASE("configs/reference.md is the reference of this program", "[unit][config]") {
  INFO("mend it with: build/bert config reference >configs/reference.md");
  CHECK(read_file(BERT_SOURCE_DIR "/configs/reference.md") == config_reference());
}

TEST_CASE("The reference has every key of both kinds of runs with type, range, default and help", "[unit][config]") {
  const CommandResult printed = config({"reference"});
  CHECK(printed.code == kOk);
  CHECK(printed.out == config_reference());
  const auto check_keys = [&](auto&& of) {
    for (const ConfigField& field : fields_of(of).leaves) {
      std::string key = field.pointer.substr(1);
      std::replace(key.begin(), key.end(), '/', '.');
      CAPTURE(key);
      CHECK_THAT(printed.out, Contains("\n| `" + key + "` | "));
    }
  };
  check_keys(PretrainConfig());
  check_keys(FinetuneConfig());
  for (const char* row :
       {"| `optimizer.lr` | number: 0 to 10 | `0.006`, fine-tuning `2e-05` | peak learning rate | fixed |\n",
        "| `seed` | integer: from 0 | `42` | seed of the initialisation, the order of the data and dropout | fixed |\n",
        "| `optimizer.bias_correction` | boolean | `true` | not bert_adam: divide the moments by 1 - beta^step | fixed "
        "|",
        "| `device` | string: `auto`, `cpu`, `cuda` | `\"auto\"` | auto: cuda if there is a GPU | may change |\n",
        "| `data.train` | paths | `[]` | shards to train on: files or directories | fixed |\n",
        "| `data.sources[].weight` | number: 1e-09 to 1000000000 | `1.0` | share of the sequences",
        "| `micro_batch_size` | integer or `auto`: 1 to 1048576 | `8`, fine-tuning `32` |"}) {
    CHECK_THAT(printed.out, Contains(row));
  }
}

TEST_CASE("Every starting file is valid and has the numbers of its recipe", "[unit][config]") {
  const TemporaryDirectory directory;
  const std::string file = directory.path("new.json");
  const std::vector<std::string> tasks = starting_tasks();
  REQUIRE(tasks.size() == 20);  // pretrain and the 19 tasks of bert finetune
  for (const std::string& task : tasks) {
    CAPTURE(task);
    REQUIRE(config({"new", "--task", task, "--output", file}).code == kOk);
    const CommandResult valid = config({"validate", file});
    CHECK(valid.err.empty());
    CHECK_THAT(valid.out, Contains("valid"));
    const std::string text = read_file(file);
    CHECK(config({"new", "--task", task}).out == text);
    CHECK_THAT(text, Contains("  // peak learning rate\n    \"lr\": "));
    if (task == "pretrain") {
      CHECK(other_keys(load_pretrain_config(file), load_pretrain_config(BERT_SOURCE_DIR "/configs/pretrain-adam.json"),
                       {"/run_directory", "/evaluate_every", "/data/train", "/data/validation", "/data/vocab_file",
                        "/amp/init_scale"})
                .empty());
      continue;
    }
    CHECK(load_finetune_config(file).task == task);
    CHECK(other_keys(load_finetune_config(file), load_finetune_config(BERT_SOURCE_DIR "/configs/" + task + ".json"),
                     {"/run_directory", "/initial_checkpoint", "/data/directory"})
              .empty());
  }
  const CommandResult unknown = config({"new", "--task", "sst3"});
  CHECK(unknown.code == kUsage);
  CHECK_THAT(unknown.err, Contains("sst3") && Contains("sst2"));
}

TEST_CASE("Every member of a starting file has a comment above it", "[unit][config]") {
  for (const std::string& task : starting_tasks()) {
    CAPTURE(task);
    std::istringstream lines(starting_file(task));
    std::string before;
    int64_t members = 0;
    for (std::string line; std::getline(lines, line); before = line) {
      CHECK(line.size() <= 120);
      const size_t begin = line.find_first_not_of(' ');
      if (begin == std::string::npos || line[begin] != '"') continue;
      ++members;
      CAPTURE(line);
      CHECK_THAT(before, Contains(std::string(begin, ' ') + "// "));
    }
    CHECK(members >= 20);
  }
}

TEST_CASE("bert config schema writes a file", "[unit][config]") {
  const TemporaryDirectory directory;
  const std::string file = directory.path("schema.json");
  CHECK(config({"schema", "--task", "finetune", "--output", file}).out.empty());
  CHECK(read_file(file) == finetune_config_schema());
  CHECK(config({"schema"}).out == pretrain_config_schema());
  const auto schema = nlohmann::json::parse(read_file(file));
  CHECK(schema["$schema"] == "https://json-schema.org/draft/2020-12/schema");
  CHECK(schema["properties"]["$schema"]["type"] == "string");
  CHECK(schema["properties"]["extends"]["type"] == "string");
  CHECK(config({"schema", "finetune"}).code == kUsage);
}

TEST_CASE("A configuration may name its schema, which does not count", "[unit][config]") {
  const TemporaryDirectory directory;
  const std::string base = directory.path("base.json"), file = directory.path("c.json"),
                    plain = directory.path("p.json");
  const std::string members = R"("run_directory": "r", "data": {"train": ["t"], "vocab_file": "v"})";
  write_text(base,
             "// comment\n{/* here too */ \"$schema\": \"https://example.org/a.json\", // and here\n" + members + "}");
  write_text(file, R"({"$schema": "b.json", "extends": "base.json", "seed": 7})");
  write_text(plain, "{\"seed\": 7, " + members + "}");
  CHECK(config_sha256(load_pretrain_config(file)) == config_sha256(load_pretrain_config(plain)));
  CHECK_THAT(to_json(load_pretrain_config(file)), !Contains("$schema"));
  CHECK(config({"diff", file, plain}).out.empty());
  write_text(file, "{\"$schema\": 1, " + members + "}");
  CHECK_THROWS_WITH(load_pretrain_config(file),
                    Contains("c.json:1:13: /$schema: want the address of a JSON Schema, got 1"));
  // It is a member of the file, not of an object in it, nor of the command line.
  write_text(file, "{\"model\": {\"$schema\": \"b.json\"}, " + members + "}");
  CHECK_THROWS_WITH(load_pretrain_config(file), Contains("/model/$schema: unknown key"));
  CHECK_THROWS_WITH(load_pretrain_config(plain, {"$schema=b.json"}), Contains("/$schema: unknown key"));
}

}  // namespace bert
