#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "app/config/finetune_config.h"
#include "app/config/pretrain_config.h"
#include "app/system/crypto.h"
#include "data/io/error.h"
#include "tests/support/text_file.h"
#include "tests/testing.h"

namespace bert {
namespace {

using testing::TemporaryDirectory;
using testing::write_text;

/// A configuration with the required fields and `more` members.
std::string with(const std::string& more) {
  return R"({"run_directory": "run", "data": {"train": ["t"], "vocab_file": "v"})" +
         (more.empty() ? "" : ",\n" + more) + "}";
}

TEST_CASE("sha256 of FIPS 180-4's examples", "[unit][config]") {
  CHECK(sha256("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(sha256(std::string(1000000, 'a')) == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("Default, file, environment and command line win in this order", "[unit][config]") {
  const TemporaryDirectory directory;
  write_text(directory.path("c.json"), with(R"("log_every": 20, "evaluate_every": 0, "checkpoint_every": 30)"));
  CHECK(load_pretrain_config(directory.path("c.json")).log_every == 20);
  CHECK(load_pretrain_config(directory.path("c.json")).max_steps == PretrainConfig{}.max_steps);
  setenv("BERT_CONFIG_LOG_EVERY", "21", 1);
  setenv("BERT_CONFIG_CHECKPOINT_EVERY", "31", 1);
  setenv("BERT_CONFIG_OPTIMIZER__LR", "0.5", 1);
  const PretrainConfig config = load_pretrain_config(directory.path("c.json"), {"log_every=22", "device=cpu"});
  unsetenv("BERT_CONFIG_LOG_EVERY");
  unsetenv("BERT_CONFIG_CHECKPOINT_EVERY");
  unsetenv("BERT_CONFIG_OPTIMIZER__LR");
  CHECK(config.log_every == 22);
  CHECK(config.checkpoint_every == 31);
  CHECK(config.optimizer.lr == 0.5);
  CHECK(config.device == DeviceChoice::kCpu);
}

TEST_CASE("Paths are relative to the file that names them, overrides to the current directory", "[unit][config]") {
  const TemporaryDirectory directory;
  std::filesystem::create_directories(directory.path("base/deep"));
  write_text(directory.path("base/base.json"), with(R"("initial_checkpoint": "../elsewhere")"));
  write_text(directory.path("base/deep/c.json"),
             R"({"extends": "../base.json", "data": {"train": ["a", "/b"]}} // a comment)");
  const PretrainConfig config = load_pretrain_config(directory.path("base/deep/c.json"), {"data.validation=x.shard"});
  CHECK(config.run_directory == directory.path("base/run"));
  CHECK(config.data.train == std::vector<std::string>{directory.path("base/deep/a"), "/b"});
  CHECK(config.data.vocab_file == directory.path("base/v"));
  CHECK(config.data.validation == std::vector<std::string>{(std::filesystem::current_path() / "x.shard").string()});
  CHECK(config.initial_checkpoint == directory.path("elsewhere"));
}

TEST_CASE("What is above a link to a directory is what the system finds there", "[unit][config]") {
  const TemporaryDirectory directory;
  std::filesystem::create_directories(directory.path("here"));
  std::filesystem::create_directories(directory.path("far/deep/inner"));
  std::filesystem::create_directory_symlink(directory.path("far/deep"), directory.path("here/link"));
  std::filesystem::create_directory_symlink("nowhere", directory.path("here/broken"));
  write_text(directory.path("far/base.json"), with(R"("log_every": 33)"));
  write_text(directory.path("here/base.json"), with(R"("log_every": 44)"));
  write_text(directory.path("far/text"), "far");
  const std::string text = R"({"extends": "link/../base.json", "initial_checkpoint": "./link/inner/../../text",
    "data": {"train": ["link/../text", "link/./new/../a", "broken/../text", "../here/../here/text", "/../b", ".."]}})";
  write_text(directory.path("here/c.json"), text);
  const PretrainConfig config = load_pretrain_config(directory.path("here/c.json"));
  CHECK(config.log_every == 33);
  CHECK(config.run_directory == directory.path("far/run"));
  CHECK(config.initial_checkpoint == directory.path("far/text"));
  const std::vector<std::string> train = {directory.path("far/text"),
                                          directory.path("here/link/a"),
                                          directory.path("here/broken/../text"),
                                          directory.path("here/text"),
                                          "/b",
                                          std::filesystem::path(directory.path()).parent_path().string()};
  CHECK(config.data.train == train);
}

TEST_CASE("A configuration may come from a pipe; its paths begin in the current directory", "[unit][config]") {
  const TemporaryDirectory directory;
  write_text(directory.path("base.json"), with(R"("log_every": 20)"));
  const std::string text = R"({"extends": ")" + directory.path("base.json") + R"(", "initial_checkpoint": "first"})";
  std::array<int, 2> ends{};
  REQUIRE(pipe(ends.data()) == 0);
  REQUIRE(::write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  close(ends[1]);
  const PretrainConfig config = load_pretrain_config("/dev/fd/" + std::to_string(ends[0]));
  close(ends[0]);
  CHECK(config.log_every == 20);
  CHECK(config.run_directory == directory.path("run"));
  CHECK(config.initial_checkpoint == (std::filesystem::current_path() / "first").string());
}

TEST_CASE("A resolved configuration reads back as itself", "[unit][config]") {
  const TemporaryDirectory directory;
  write_text(directory.path("c.json"),
             with(R"("precision": "bf16", "seed": 9223372036854775807, "optimizer": {"lr": 1e-05, "eps": 0.1})"));
  const PretrainConfig config = load_pretrain_config(directory.path("c.json"));
  const std::string text = to_json(config);
  const PretrainConfig again = parse_pretrain_config(text, "config.json");
  CHECK(to_json(again) == text);
  CHECK(compare(config, again).empty());
  CHECK(again.seed == INT64_MAX);
  CHECK(config_sha256(config) == config_sha256(again));
  PretrainConfig unreadable = config;
  unreadable.data.train = {"/data/caf\xe9.shard"};  // not UTF-8: the file has U+FFFD instead
  CHECK(compare(unreadable, parse_pretrain_config(to_json(unreadable), "config.json")).empty());
  PretrainConfig other = again;
  other.optimizer.lr = 2e-5;
  CHECK(config_sha256(other) != config_sha256(config));
}

TEST_CASE("Sources are read, written, compared and described as a list of objects", "[unit][config]") {
  const TemporaryDirectory directory;
  const std::string path = directory.path("a.json");
  std::ofstream(path) << R"({"run_directory": "r", "data": {"vocab_file": "v", "sources": [
    {"path": "wiki", "weight": 0.7}, {"path": "/books/"}, {"path": "../b.shard", "name": "other", "weight": 2}]}})";
  const PretrainConfig config = load_pretrain_config(path);
  REQUIRE(config.data.sources.size() == 3);
  CHECK(config.data.sources[0].path == directory.path("wiki"));
  CHECK(config.data.sources[0].weight == 0.7);
  CHECK(config.data.sources[1].weight == 1);
  CHECK(source_name(config.data.sources[0]) == "wiki");
  CHECK(source_name(config.data.sources[1]) == "books");
  CHECK(source_name(config.data.sources[2]) == "other");
  CHECK(training_paths(config.data).size() == 3);
  const PretrainConfig again = parse_pretrain_config(to_json(config), "again");
  CHECK(to_json(again) == to_json(config));
  CHECK(nlohmann::json::parse(to_json(config))["data"]["sources"][2] ==
        nlohmann::json({{"path", config.data.sources[2].path}, {"name", "other"}, {"weight", 2.0}}));
  PretrainConfig heavier = config;
  heavier.data.sources[0].weight = 0.8;
  const auto differences = compare_for_resume(config, heavier);
  REQUIRE(differences.size() == 1);
  CHECK(differences[0].pointer == "/data/sources");
  CHECK(load_pretrain_config(path, {"data.sources=[{\"path\": \"/x\"}]"}).data.sources.size() == 1);
  const auto schema = nlohmann::json::parse(pretrain_config_schema());
  const auto& sources = schema["properties"]["data"]["properties"]["sources"];
  CHECK(sources["type"] == "array");
  CHECK(sources["items"]["properties"]["weight"]["minimum"] == 1e-9);
  CHECK(sources["items"]["additionalProperties"] == false);
  CHECK(sources["default"] == nlohmann::json::array());
}

TEST_CASE("auto stands for a number that is found later", "[unit][config]") {
  const TemporaryDirectory directory;
  const std::string path = directory.path("a.json");
  std::ofstream(path) << R"({"run_directory": "r", "data": {"train": "t", "vocab_file": "v"}, "global_batch_size": 7,
    "micro_batch_size": "auto"})";
  const PretrainConfig config = load_pretrain_config(path);
  CHECK(config.micro_batch_size == RunConfig::kFromMemory);
  CHECK(nlohmann::json::parse(to_json(config))["micro_batch_size"] == "auto");
  CHECK(parse_pretrain_config(to_json(config), "again").micro_batch_size == RunConfig::kFromMemory);
  CHECK(load_pretrain_config(path, {"micro_batch_size=7"}).micro_batch_size == 7);
  CHECK(load_pretrain_config(path, {"micro_batch_size=7", "micro_batch_size=auto"}).micro_batch_size ==
        RunConfig::kFromMemory);
  const auto schema = nlohmann::json::parse(pretrain_config_schema())["properties"]["micro_batch_size"];
  CHECK(schema["anyOf"] ==
        nlohmann::json::parse(R"([{"type": "integer", "minimum": 1, "maximum": 1048576}, {"const": "auto"}])"));
  CHECK(schema["default"] == 8);
}

TEST_CASE("null stands for a setting that follows another", "[unit][config]") {
  const TemporaryDirectory directory;
  const std::string path = directory.path("c.json");
  const auto load = [&](const std::string& value) {
    std::ofstream(path) << R"({"run_directory": "r", "data": {"train": "t", "vocab_file": "v", "strip_accents": )"
                        << value << "}}";
    return load_pretrain_config(path).data.tokenizer;
  };
  CHECK(load("false").strip_accents == false);
  CHECK(load("true").strip_accents == true);
  CHECK_FALSE(load("null").strip_accents.has_value());
  CHECK(load("null").strips_accents());
  CHECK_THROWS_WITH(load("\"no\""), testing::Contains("/data/strip_accents: want true, false or null, got \"no\""));
  load("false");
  PretrainConfig config = load_pretrain_config(path);
  CHECK(parse_pretrain_config(to_json(config), "again").data.tokenizer.strip_accents == false);
  config = load_pretrain_config(path, {"data.strip_accents=null", "data.do_lower_case=false"});
  CHECK_FALSE(config.data.tokenizer.strips_accents());
  CHECK(nlohmann::json::parse(to_json(config))["data"]["strip_accents"].is_null());
  const auto schema = nlohmann::json::parse(pretrain_config_schema())["properties"]["data"]["properties"];
  CHECK(schema["strip_accents"]["type"] == nlohmann::json::parse(R"(["boolean", "null"])"));
  CHECK(schema["strip_accents"]["default"].is_null());
}

TEST_CASE("The formats of a run's reports are a list of known words with jsonl", "[unit][config]") {
  const TemporaryDirectory directory;
  const std::string path = directory.path("a.json");
  std::ofstream(path) << R"({"run_directory": "r", "data": {"train": "t", "vocab_file": "v"}})";
  const auto load = [&](const std::vector<std::string>& overrides) { return load_pretrain_config(path, overrides); };
  const PretrainConfig usual = load({});
  CHECK(usual.report == std::vector<std::string>{"console", "jsonl", "tensorboard"});
  CHECK(load({"report=jsonl"}).report == std::vector<std::string>{"jsonl"});
  const PretrainConfig other = load({R"(report=["jsonl", "tensorboard", "histograms"])", "report_port=9100"});
  CHECK(parse_pretrain_config(to_json(other), "again").report == other.report);
  CHECK(compare(usual, other).size() == 2);
  CHECK(compare_for_resume(usual, other).empty());

  const auto wrong = [&](const std::vector<std::string>& overrides, const std::string& message) {
    CAPTURE(message);
    CHECK_THROWS_WITH(load(overrides), testing::Contains(message));
  };
  wrong({R"(report=["console", "tensorboard"])"}, "/report: want a list with jsonl, got [console, tensorboard]");
  wrong({"report=[]"}, "/report: want a list with jsonl, got []");
  wrong({R"(report=["jsonl", "jsonl"])"}, "/report: want each format once, got [jsonl, jsonl]");
  wrong({R"(report=["jsonl", "tensorbord"])"}, "did you mean \"tensorboard\"?");
  wrong({"report=dlloger"}, "did you mean \"dllogger\"?");
  wrong({R"(report=["jsonl", "histograms"])"}, "/report: want tensorboard with histograms");
  wrong({"report_port=70000"}, "/report_port: want an integer in [0, 65535], got 70000");

  const auto schema = nlohmann::json::parse(pretrain_config_schema())["properties"]["report"];
  CHECK(schema["anyOf"][0]["items"]["enum"].size() == 8);
  CHECK(schema["anyOf"][1]["enum"].size() == 8);
  CHECK(schema["default"] == nlohmann::json(usual.report));
}

TEST_CASE("The configuration in an old checkpoint may have removed keys whose values keep their meaning",
          "[unit][config]") {
  const auto read = [](const std::string& key, const std::string& value) {
    const size_t slash = key.find('/');
    std::string text = "\"" + key.substr(slash == std::string::npos ? 0 : slash + 1) + "\": " + value;
    if (slash != std::string::npos) text = "\"" + key.substr(0, slash) + "\": {" + text + "}";
    return key.starts_with("distillation") || key.ends_with("_column")
               ? to_json(parse_finetune_config("{" + text + "}", "state.json"))
               : to_json(parse_pretrain_config("{" + text + "}", "state.json"));
  };
  struct Removed {
    const char *key, *kept, *changed;  // changed: null if no value changes what a run computes
  };
  for (const auto& [key, kept, changed] : {Removed{"amp/backoff_factor", "0.5", "0.25"},
                                           {"amp/growth_factor", "2.0", "4.0"},
                                           {"amp/growth_interval", "2000", "5"},
                                           {"amp/min_scale", "1.0", "0.0"},
                                           {"data/log_sample_ids", "true", nullptr},
                                           {"data/tag_column", "-1", "1"},
                                           {"data/word_column", "0", "1"},
                                           {"distillation/relation_heads", "0", "4"},
                                           {"distillation/trust_teacher", "false", "true"},
                                           {"distillation/value_weight", "1.0", "0.5"},
                                           {"distributed/bucket_mb", "3", nullptr},
                                           {"distributed/debug", "true", nullptr},
                                           {"initial_parts", "\"all\"", "\"heads\""},
                                           {"optimizer/decoupled_weight_decay", "true", "false"},
                                           {"optimizer/eps_inside_sqrt", "false", "true"},
                                           {"optimizer/grad_averaging", "true", "false"},
                                           {"optimizer/max_trust_ratio", "0.0", "10.0"},
                                           {"optimizer/min_trust_ratio", "0.0", "0.01"},
                                           {"report_histograms", "true", nullptr},
                                           {"report_layers", "true", nullptr},
                                           {"report_textfile", "\"a.prom\"", nullptr}}) {
    CAPTURE(key);
    const std::string text = read(key, kept);
    CHECK((text == to_json(PretrainConfig()) || text == to_json(FinetuneConfig())));
    if (changed != nullptr) CHECK_THROWS_WITH(read(key, changed), testing::Contains("is no key any more: "));
  }
}

TEST_CASE("What may change when a run resumes", "[unit][config]") {
  PretrainConfig before;
  PretrainConfig after;
  after.run_directory = "/elsewhere";
  after.stop_at_step = after.checkpoint_every = after.evaluate_every = after.log_every = after.keep_checkpoints = 7;
  after.device = DeviceChoice::kCpu;
  after.profile.steps = "10-15";
  after.micro_batch_size = 4;
  after.num_threads = 1;
  after.distributed.backend = CollectiveBackend::kGloo;
  after.distributed.timeout_seconds = 1;
  CHECK(compare(before, after).size() == 12);
  CHECK(compare_for_resume(before, after).empty());
  after.model.hidden_size = 1024;
  after.data.train = {"a"};
  const std::vector<ConfigDifference> want = {{"/model/hidden_size", "768", "1024"}, {"/data/train", "[]", "[\"a\"]"}};
  CHECK(compare_for_resume(before, after) == want);
}

TEST_CASE("An absent configuration is InputMissing", "[unit][config]") {
  CHECK_THROWS_AS(load_pretrain_config("/nonexistent/c.json"), InputMissing);
}

}  // namespace
}  // namespace bert
