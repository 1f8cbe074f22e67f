// Command lines: arguments that are taken unchanged, arguments that are refused, and the messages.
#include "app/cli/command_line.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "app/checkpoint/files.h"
#include "app/checkpoint/safetensors.h"
#include "app/checkpoint/state.h"
#include "app/cli/removed_options.h"
#include "app/parse/nearest_word.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "app/system/fail_point.h"
#include "app/verbs/verbs.h"
#include "data/io/files.h"
#include "tests/support/command_testing.h"
#include "tests/testing.h"

namespace bert {
namespace {

using testing::CommandResult;
using testing::Contains;
using testing::run_command;
using testing::TemporaryDirectory;

struct Values {
  std::vector<std::string> texts, inputs;
  std::vector<int64_t> lengths;
  std::string name;
};

Values parse(std::vector<std::string> arguments) {
  CLI::App app("", "test");
  Values values;
  app.add_option("TEXT", values.texts, "");
  app.add_option("--input", values.inputs, "");
  app.add_option("--length", values.lengths, "")->delimiter(',')->check(number_in<int64_t>(1, 64));
  app.add_option("--name", values.name, "");
  arguments.insert(arguments.begin(), "test");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  const bool parsed = parse_command_line(app, static_cast<int>(argv.size()), argv.data());
  REQUIRE(parsed);
  return values;
}

/// True if number_in(0.5, 1.0) accepts `value`.
bool in_range(const std::string& value) {
  std::string text = value;
  return number_in(0.5, 1.0)(text).empty();
}

}  // namespace

TEST_CASE("Arguments are not altered, even in brackets", "[unit]") {
  const std::vector<std::string> texts = {"[MASK]", "[MASK] is, in fact, [MASK]", "[a,b]", "[]", "x]\x1f", "\x1f", "]"};
  CHECK(parse(texts).texts == texts);
  std::vector<std::string> options = {"--input"};
  options.insert(options.end(), texts.begin(), texts.end());
  CHECK(parse(options).inputs == texts);
  CHECK(parse({"--input=[a,b]", "--name=[c]"}).inputs == std::vector<std::string>{"[a,b]"});
  CHECK(parse({"--name", "[c]"}).name == "[c]");
  CHECK(parse({"--length", "3,4"}).lengths == std::vector<int64_t>{3, 4});
  CHECK_THROWS_WITH(parse({"--length", "[3,4]"}), Contains("want a number from 1 to 64, got [3"));
  const CommandResult vocab = run_command(vocab_command, {"vocab", "--input", "[y]", "--size", "9", "--output", "x"});
  CHECK(vocab.code == kInputMissing);
  CHECK_THAT(vocab.err, Contains("[y]: no such file"));
}

TEST_CASE("An empty value and an unknown option are refused by name", "[unit]") {
  CHECK_THROWS_WITH(parse({"--name", ""}), Contains("--name: the value is empty"));
  CHECK_THROWS_WITH(parse({""}), Contains("TEXT: the value is empty"));
  CHECK_THROWS_WITH(parse({"--nmae", "x]"}), Contains("--nmae") && !Contains("\x1f"));
}

TEST_CASE("An option that is gone is refused with what replaced it", "[unit]") {
  const auto refusal = [](int (*verb)(int, char**), std::vector<std::string> arguments) {
    const CommandResult result = run_command(verb, std::move(arguments));
    CHECK(result.code == kUsage);
    return result.err;
  };
  CHECK_THAT(refusal(evaluate_command, {"evaluate", "sst2", "--text-column=body"}),
             Contains("--text-column no longer exists: write data.text_column=NAME; see bert evaluate --help"));
  CHECK_THAT(refusal(plan_command, {"plan", "c.json", "--ports", "4"}),
             Contains("--ports no longer exists: --network"));
  CHECK_THAT(refusal(evaluate_command, {"evaluate", "pretraining", "--max-seq-length", "64"}),
             Contains("--checkpoint") && !Contains("no longer exists"));  // this action has the option
  CHECK(removed_option("bert data download squad", "--retries") != "");
  CHECK(removed_option("bert predict", "--batch-size").empty());
}

TEST_CASE("A range takes its ends and no NaN", "[unit]") {
  for (const std::string value : {"0.5", "1", "0.75"}) CHECK(in_range(value));
  for (const std::string value : {"nan", "-nan", "NAN", "inf", "-inf", "0.4999", "1.0001", "x", "", "0.6x"}) {
    CAPTURE(value);
    CHECK_FALSE(in_range(value));
  }
  // A number other than 0 that a double would round to 0 is refused, as in a configuration.
  for (const std::string value : {"0", "0.0", "-0", "0e5", "0e-400", "1e-300", "0x0p1", "5e-324"}) {
    CAPTURE(value);
    std::string text = value;
    CHECK(number_in(-1.0, 1.0)(text).empty());
  }
  for (const std::string value : {"1e-400", "-1e-400", "0.03e-350", "1e-5000", "0xAp-2000"}) {
    CAPTURE(value);
    std::string text = value;
    CHECK_THAT(number_in(-1.0, 1.0)(text), Contains("want a number from -1 to 1, got " + value));
  }
  const std::vector<std::string> create = {"data", "create", "--input", "a", "--vocab", "b", "--output", "c"};
  std::vector<std::string> tiny = create;
  tiny.insert(tiny.end(), {"--masked-lm-prob", "1e-400"});
  const CommandResult underflow = run_command(data_command, tiny);
  CHECK(underflow.code == kUsage);
  CHECK_THAT(underflow.err,
             Contains("--masked-lm-prob: want a number from 0 to 1, got 1e-400, which does not fit a double"));
  for (const std::string option :
       {"--masked-lm-prob", "--short-seq-prob", "--validation-share", "--validation-masked-lm-prob"}) {
    std::vector<std::string> arguments = create;
    arguments.insert(arguments.end(), {"--validation-output", "d", option, "nan"});
    const CommandResult result = run_command(data_command, arguments);
    CHECK(result.code == kUsage);
    CHECK_THAT(result.err, Contains(option + ": want a number from 0") && Contains("got nan"));
  }
  const CommandResult coverage = run_command(
      vocab_command, {"vocab", "--input", "a", "--size", "9", "--output", "x", "--character-coverage", "nan"});
  CHECK_THAT(coverage.err, Contains("--character-coverage: want a number from 0.5 to 1, got nan"));
  const CommandResult plan = run_command(plan_command, {"plan", "c.json", "--mfu", "nan"});
  CHECK(plan.code == kUsage);
  CHECK_THAT(plan.err, Contains("--mfu: want a number from 0.001 to 1, got nan"));
  for (const std::string row : {"-1", "9223372036854775808", "99999999999999999999999"}) {
    const CommandResult shown = run_command(data_command, {"data", "show", "a.shard", "--row", row});
    CHECK(shown.code == kUsage);
    CHECK_THAT(shown.err, Contains("--row: want a number from 0 to 9223372036854775807, got " + row));
  }
}

TEST_CASE("The nearest word is at most two edits away", "[unit]") {
  const std::vector<std::string> words = {"list", "verify", "diff", "average"};
  CHECK(nearest_word("lits", words) == "list");
  CHECK(nearest_word("verfy", words) == "verify");
  CHECK(nearest_word("LIST", words) == "list");
  CHECK(nearest_word("FP16", {"bf16", "fp16"}) == "fp16");
  CHECK(nearest_word("bogus", words).empty());
  CHECK(nearest_word("relu", {"gelu", "gelu_new"}).empty());  // other functions, not mistyped ones
  CHECK(nearest_word("silu", {"gelu", "gelu_new"}).empty());
  CHECK(nearest_word("", words).empty());
}

TEST_CASE("An unknown action is named, with a suggestion", "[unit]") {
  CommandResult result = run_command(checkpoint_command, {"checkpoint", "lits", "x"});
  CHECK(result.code == kUsage);
  CHECK_THAT(result.err, Contains("no action 'lits'; did you mean 'list'?"));
  result = run_command(config_command, {"config", "bogus"});
  CHECK(result.code == kUsage);
  CHECK_THAT(result.err, Contains("no action 'bogus'; it is one of new, validate, show, schema, reference, diff"));
  CHECK_THAT(run_command(config_command, {"config"}).err, Contains("no action is named; it is one of new, validate"));
  result = run_command(data_command, {"data", "craete"});
  CHECK(result.code == kUsage);
  CHECK_THAT(result.err, Contains("no action 'craete'; did you mean 'create'?"));
  CHECK_THAT(run_command(checkpoint_command, {"checkpoint", "list", "--help"}).out, Contains("RUN_DIRECTORY"));
}

TEST_CASE("Every action shows an example of its own", "[unit]") {
  const auto check = [](testing::Command command, const std::string& verb, const std::vector<std::string>& actions) {
    const CommandResult all = run_command(command, {verb, "--help"});
    CHECK(all.code == kOk);
    CHECK_THAT(all.out, Contains("\nExample: bert " + verb + " "));
    for (const std::string& action : actions) {
      INFO(verb << " " << action);
      CHECK_THAT(all.out, Contains("\n  " + action + " "));
      const CommandResult help = run_command(command, {verb, action, "--help"});
      CHECK(help.code == kOk);
      CHECK_THAT(help.out, Contains("Example: bert " + verb + " " + action + " "));
    }
  };
  check(config_command, "config", {"new", "validate", "show", "schema", "reference", "diff"});
  check(checkpoint_command, "checkpoint", {"list", "verify", "diff"});
  check(data_command, "data", {"create", "split", "verify", "show", "stats"});
}

TEST_CASE("bert checkpoint names the fault of a directory that is no checkpoint", "[unit][checkpoint]") {
  const TemporaryDirectory directory;
  const auto run = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "checkpoint");
    return run_command(checkpoint_command, arguments);
  };
  CommandResult result = run({"list", directory.path()});
  CHECK(result.code == kInputMissing);
  CHECK_THAT(result.err, Contains("is no run directory"));
  result = run({"verify", directory.path()});
  CHECK(result.code == kInputMissing);
  CHECK_THAT(result.err, Contains("is no checkpoint: it has no MANIFEST.json"));
  std::filesystem::create_directory(directory.path("checkpoints"));
  result = run({"list", directory.path()});
  CHECK(result.code == kOk);
  CHECK(result.out.empty());
  CHECK_THAT(run({"verify", directory.path()}).err, Contains("has no checkpoint yet"));
  CHECK_THAT(run({"diff", directory.path(), directory.path()}).err, Contains("has no checkpoint yet"));
  std::ofstream(directory.path("e.pt")) << "x";
  result = run({"verify", directory.path("e.pt")});
  CHECK(result.code == kInputMissing);
  CHECK_THAT(result.err, Contains("e.pt: is a file; name the checkpoint directory"));
}

TEST_CASE("bert checkpoint verify and list report each finished checkpoint", "[unit][checkpoint]") {
  const TemporaryDirectory directory;
  for (const int64_t step : {1, 2}) {
    CheckpointState state;
    state.step = step;
    CheckpointWriter writer(checkpoint_directory(directory.path("run"), step), {});
    writer.add_tensors(kModelFile, {{"w", "F32", {1}, [] { return std::string_view("abcd"); }}});
    writer.add_text(kStateFile, write_checkpoint_state(state));
    writer.publish();
  }
  for (const char* action : {"verify", "list"}) {
    const CommandResult result = run_command(checkpoint_command, {"checkpoint", action, directory.path("run")});
    CHECK(result.code == kOk);
    CHECK(result.err == "verifying: done\nverifying: done\n");
    CHECK(std::ranges::count(result.out, '\n') == 2);
  }
}

TEST_CASE("bert checkpoint diff takes checkpoints, runs and files", "[unit][checkpoint]") {
  const TemporaryDirectory directory;
  const auto write = [&](const std::string& name, float value) {
    AtomicFile file(directory.path(name));
    const TensorSource tensor = {.name = "w", .dtype = "F32", .shape = {1}, .bytes = [&] {
                                   return std::string_view(reinterpret_cast<const char*>(&value), sizeof value);
                                 }};
    write_safetensors([&](const void* data, size_t bytes) { file.write(data, bytes); }, {tensor});
    file.commit();
  };
  const auto save = [&](int64_t step, float value) {
    CheckpointState state;
    state.step = step;
    CheckpointWriter writer(checkpoint_directory(directory.path("run"), step), {});
    writer.add_tensors(
        kModelFile,
        {{"w", "F32", {1}, [&] { return std::string_view(reinterpret_cast<const char*>(&value), sizeof value); }}});
    writer.add_text(kStateFile, write_checkpoint_state(state));
    writer.publish();
    finish_checkpoint(directory.path("run"), step, 2);
  };
  for (const std::string name : {"a", "empty"}) std::filesystem::create_directories(directory.path(name));
  write("a/model.safetensors", 1);
  write("a/optimizer.safetensors", 5);
  write("b.safetensors", 2);
  write("optimizer.safetensors", 5);
  const auto diff = [&](const std::string& a, const std::string& b) {
    return run_command(checkpoint_command, {"checkpoint", "diff", directory.path(a), directory.path(b)});
  };
  CHECK_THAT(diff("a", "b.safetensors").out, Contains("\"tensor\":\"w\"") && Contains("\"differing_tensors\": 1"));
  CHECK_THAT(diff("b.safetensors", "a").out, Contains("\"differing_tensors\": 1"));
  CHECK_THAT(diff("a", "optimizer.safetensors").out, Contains("\"differing_tensors\": 0"));
  save(2, 7);
  save(10, 2);
  CHECK_THAT(diff("run", "b.safetensors").out, Contains("\"differing_tensors\": 0"));
  CHECK_THAT(diff("a", "run").out, Contains("\"differing_tensors\": 1"));
  write("b.safetensors", 7);
  write("run/latest/model.safetensors", 9);  // differs from the manifest
  const CommandResult damaged = diff("run", "b.safetensors");
  CHECK_THAT(damaged.out, Contains("\"differing_tensors\": 0"));
  CHECK_THAT(damaged.err, Contains("using ") && Contains("step-00000002"));
  const CommandResult missing = diff("empty", "b.safetensors");
  CHECK(missing.code == kInputMissing);
  CHECK_THAT(missing.err, Contains("is no checkpoint directory: it has no model.safetensors"));
}

TEST_CASE("BERT_FAIL_POINT must name a known point", "[unit]") {
  const auto check = [](const char* value) {
    setenv("BERT_FAIL_POINT", value, 1);
    try {
      check_fail_point();
    } catch (...) {
      unsetenv("BERT_FAIL_POINT");
      throw;
    }
    unsetenv("BERT_FAIL_POINT");
  };
  for (const char* value : {"train.step", "train.step:3", "reduction of gradients:2@1", "checkpoint.write:10"}) {
    CAPTURE(value);
    CHECK_NOTHROW(check(value));
  }
  for (const char* value : {"", "train.stp", "train.step:", "train.step:x", "train.step@1", "train.step:1@", ":1"}) {
    CAPTURE(value);
    CHECK_THROWS_AS(check(value), UsageError);
  }
}

TEST_CASE("Every fail point and every phase has a name that BERT_FAIL_POINT may have", "[unit]") {
  std::vector<std::string> names(kFailPointNames.begin(), kFailPointNames.end());
  names.insert(names.end(), kPhaseNames.begin(), kPhaseNames.end());
  for (const std::string& name : names) {
    CAPTURE(name);
    setenv("BERT_FAIL_POINT", name.c_str(), 1);
    CHECK_NOTHROW(check_fail_point());
    unsetenv("BERT_FAIL_POINT");
  }
}

}  // namespace bert
