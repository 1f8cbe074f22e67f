#include <fmt/format.h>

#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "app/verbs/verbs.h"
#include "data/formats/shard.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "tests/support/command_testing.h"
#include "tests/testing.h"

namespace bert {
namespace {

using nlohmann::json;
using testing::Approx;
using testing::Contains;
using testing::TemporaryDirectory;

/// Standard output of `bert data ARGUMENTS...`.
std::string data(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "data");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  std::ostringstream out;
  auto* old_out = std::cout.rdbuf(out.rdbuf());
  try {
    const int code = data_command(static_cast<int>(argv.size()), argv.data());
    REQUIRE(code == kOk);
  } catch (...) {
    std::cout.rdbuf(old_out);
    throw;
  }
  std::cout.rdbuf(old_out);
  return out.str();
}

struct Files {
  TemporaryDirectory directory;
  std::string vocab = directory.path("vocab.txt"), text = directory.path("text.txt"),
              shard = directory.path("train.shard");
  Files() {
    std::ofstream(vocab) << "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\ncat\ndog\nsat\nran\n.\n##s\n";
    std::ofstream out(text);
    for (int i = 0; i < 60; ++i) out << "The cat sat.\nThe dogs ran.\nThe cats sat.\nThe zebra ran.\n\n";
  }
};

TEST_CASE("bert data create writes a shard and says what it did", "[unit][data_commands]") {
  const Files files;
  const std::string held = files.directory.path("held.shard");
  const json summary =
      json::parse(data({"create", "--input", files.text, "--vocab", files.vocab, "--output", files.shard,
                        "--max-seq-length", "24", "--dupe-factor", "3", "--validation-output", held,
                        "--validation-share", "0.1", "--masked-lm-prob", "0.4", "--validation-masked-lm-prob", "0.1"}));
  CHECK(summary["documents"] == 60);
  CHECK(summary["sentences"] == 240);
  CHECK(summary["tokens"] == 60 * (4 + 5 + 5 + 4));
  CHECK(summary["unknown_token_share"] == 1.0 / 18);
  CHECK(summary["invalid_utf8"] == 0);
  const PretrainingShards train({files.shard}), validation({held});
  CHECK(summary["examples"] == train.size());
  CHECK(summary["validation"]["examples"] == validation.size());
  CHECK(summary["validation"]["documents"].get<int>() >= 1);
  CHECK(summary["content_checksum"] == train.shards().front()->manifest().content_checksum);
  CHECK(train.vocab_size() == 12);
  CHECK(train.vocabulary_checksum() == validation.vocabulary_checksum());
  CHECK(train.longest_row() <= 24);

  const json verified = json::parse(data({"verify", files.shard}));
  CHECK(verified["ok"] == true);
  const json stats = json::parse(data({"stats", files.shard}));
  CHECK(stats["examples"] == train.size());
  CHECK(stats["parameters"]["dupe_factor"] == "3");
  CHECK(stats["masked_share"].get<double>() == Approx(0.4).margin(0.05));
  CHECK(json::parse(data({"stats", held}))["masked_share"].get<double>() == Approx(0.1).margin(0.05));
  int64_t in_histogram = 0;
  for (const auto& bin : stats["length_histogram"]) in_histogram += bin[2].get<int64_t>();
  CHECK(in_histogram == train.size());
  const std::string shown = data({"show", files.shard, "--vocab", files.vocab, "--row", "1"});
  CHECK_THAT(shown, Contains("row 1 of") && Contains("A: [CLS]") && Contains("\nB: ") && Contains("[SEP]"));
  CHECK_THAT(data({"show", files.shard}), Contains("A: 2 "));
}

TEST_CASE("The result of bert data create depends on its flags, not on the number of threads",
          "[unit][data_commands]") {
  const Files files;
  const auto create = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"create",   "--input",   files.text,         "--vocab", files.vocab,
                                          "--output", files.shard, "--max-seq-length", "32"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    data(arguments);
    return read_file(files.shard);
  };
  const std::string one = create({"--num-threads", "1"});
  CHECK(create({"--num-threads", "3"}) == one);
  CHECK(create({"--random-seed", "1"}) != one);
  CHECK(create({"--do-whole-word-mask"}) != one);
  CHECK(create({"--cased"}) == create({"--do-lower-case=false"}));
  CHECK(create({"--cased"}) != one);
  CHECK(create({"--split-sentences"}) != one);
}

TEST_CASE("Examples without a masked token are counted and reported, and a shard of nothing else is refused",
          "[unit][data_commands]") {
  const Files files;
  // Every example has words of one piece and of two. With one token to mask, only words of one piece can be masked.
  const auto create = [&](const std::string& flag) {
    return testing::run_command(
        data_command, {"data", "create", "--input", files.text, "--vocab", files.vocab, "--output", files.shard,
                       "--max-seq-length=8", "--max-predictions-per-seq=1", "--dupe-factor=10", flag});
  };
  testing::CommandResult result = create("--cased");
  CHECK(json::parse(result.out)["examples_without_masks"] == 0);
  CHECK_THAT(result.err, !Contains("no masked token"));

  // Google's create_pretraining_data.py keeps such examples, too.
  std::ofstream(files.text) << "dogs\n\ndogs\n\nthe\n\nthe\n";
  result = create("--do-whole-word-mask");
  const json summary = json::parse(result.out);
  const PretrainingShards shards({files.shard});
  int64_t without = 0;
  for (int64_t i = 0; i < shards.size(); ++i) without += shards.row(i).num_masked == 0;
  CHECK(without > 0);
  CHECK(summary["examples_without_masks"] == without);
  CHECK_THAT(result.err, Contains(fmt::format("{}: {} of {} examples have no masked token: each word of them has more "
                                              "pieces than may be masked; raise --max-predictions-per-seq (1)",
                                              files.shard, without, shards.size())));

  std::filesystem::remove(files.shard);
  std::ofstream(files.text) << "dogs\n\ndogs\n";
  result = create("--do-whole-word-mask");
  CHECK(result.code == kBadData);
  CHECK_THAT(result.err, Contains("20 of 20 examples have no masked token"));
  CHECK_FALSE(std::filesystem::exists(files.shard));
  std::ofstream(files.text) << "[SEP] [SEP]\n\n[CLS]\n";
  result = create("--match-special-tokens");
  CHECK(result.code == kBadData);
  CHECK_THAT(result.err, Contains("examples have no masked token: they have nothing but special tokens"));
}

TEST_CASE("bert data verify and stats show their progress", "[unit][data_commands]") {
  const Files files;
  data({"create", "--input", files.text, "--vocab", files.vocab, "--output", files.shard, "--max-seq-length", "24"});
  const testing::CommandResult verified = testing::run_command(data_command, {"data", "verify", files.shard});
  CHECK((verified.err.starts_with("verifying " + files.shard + ": done, ") && verified.err.ends_with(" MB/s\n")));
  const std::string counted = testing::run_command(data_command, {"data", "stats", files.shard}).err;
  CHECK((counted.starts_with("counting: done, ") && counted.ends_with(" MB/s\n")));

  const std::string copy = files.directory.path("copy.shard");
  std::string bytes = read_file(files.shard);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 4);
  std::ofstream(copy, std::ios::binary) << bytes;
  const std::string whole = testing::on_terminal([&] { data({"verify", files.shard}); });
  CHECK_THAT(whole, Contains(" % \rverifying " + files.shard + ": 100 %, "));
  CHECK(whole.ends_with(" MB/s\r\n"));
  // The line of progress is ended before the message about a damaged shard.
  const std::string damaged = testing::on_terminal([&] { CHECK_THROWS_AS(data({"verify", copy}), DataError); });
  CHECK_THAT(damaged, Contains("\rverifying " + copy + ": ") && !Contains("100 %"));
  CHECK(damaged.ends_with(" % \r\n"));
  CHECK_THAT(testing::on_terminal([&] { data({"stats", files.shard}); }), Contains("\rcounting: 100 %, "));
}

TEST_CASE("bert data stats counts shards of several lengths together, and names each", "[unit][data_commands]") {
  const Files files;
  const auto create = [&](const std::string& name, const std::string& length) {
    return json::parse(data({"create", "--input", files.text, "--vocab", files.vocab, "--output",
                             files.directory.path(name), "--max-seq-length", length}));
  };
  const json a = create("a.shard", "12"), b = create("b.shard", "40");
  const json stats = json::parse(data({"stats", files.directory.path()}));
  const auto padded = 12 * a["examples"].get<int64_t>() + 40 * b["examples"].get<int64_t>();
  CHECK(stats["max_seq_length"] == 40);
  CHECK(stats["real_token_share"] == stats["tokens"].get<double>() / static_cast<double>(padded));
  CHECK_FALSE(stats["parameters"].contains("max_seq_length"));
  CHECK(stats["parameters"]["documents"] == "60");
  REQUIRE(stats["files"].size() == 2);
  CHECK(stats["files"][0]["path"] == files.directory.path("a.shard"));
  CHECK(stats["files"][0]["content_checksum"] == a["content_checksum"]);
  CHECK(stats["files"][1]["examples"] == b["examples"]);
  CHECK(stats["files"][1]["parameters"]["max_seq_length"] == "40");
}

TEST_CASE("bert data split keeps documents apart", "[unit][data_commands]") {
  const testing::CommandResult result =
      testing::run_command(data_command, {"data", "split"}, "It rained. It\npoured.\n\nNext day.\n");
  CHECK(result.out == "It rained.\nIt poured.\n\nNext day.\n\n");
  CHECK(result.err.empty());
}

TEST_CASE("bert data split knows the rules of a language where the text is too short to tell it",
          "[unit][data_commands]") {
  const auto split = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"data", "split"});
    return testing::run_command(data_command, more, "Wagners 3. Januar.\n");
  };
  CHECK(split({}).out == "Wagners 3.\nJanuar.\n\n");
  CHECK(split({"--language", "de"}).out == "Wagners 3. Januar.\n\n");
  CHECK(split({"--language", "xx"}).code == kUsage);
}

TEST_CASE("bert data split drops and counts invalid UTF-8, and fails if standard input cannot be read",
          "[unit][data_commands]") {
  const testing::CommandResult dropped =
      testing::run_command(data_command, {"data", "split"}, "It\xFF rai\xE2\x82ned. Caf\u00E9.\n");
  CHECK(dropped.out == "It rained.\nCaf\u00E9.\n\n");
  CHECK_THAT(dropped.err, Contains("dropped 2 invalid UTF-8 sequences"));
  const testing::CommandResult directory = testing::run_command_from("/", data_command, {"data", "split"});
  CHECK(directory.code == kIo);
  CHECK_THAT(directory.err, Contains("standard input: cannot read: Is a directory"));
}

TEST_CASE("bert data names the error and leaves no incomplete file", "[unit][data_commands]") {
  const Files files;
  const auto create = [&](const std::string& input, const std::string& vocab, const std::string& output) {
    return data({"create", "--input", input, "--vocab", vocab, "--output", output});
  };
  CHECK_THROWS_AS(create("/nonexistent/a", files.vocab, files.shard), InputMissing);
  CHECK_THROWS_AS(create(files.text, "/nonexistent/v", files.shard), InputMissing);
  CHECK_THROWS_AS(create(files.text, files.vocab, "/nonexistent/directory/out"), IoError);
  const testing::CommandResult unwritable = testing::run_command(
      data_command, {"data", "create", "--input", files.text, "--vocab", files.vocab, "--validation-output",
                     files.directory.path("held.shard"), "--output", "/nonexistent/directory/out"});
  CHECK(unwritable.code == kIo);
  CHECK(unwritable.err ==
        "bert data create: /nonexistent/directory/out: cannot create: the directory /nonexistent/directory does not "
        "exist; create it\n");
  CHECK_THROWS_AS(create(files.text, files.vocab, files.text), UsageError);
  std::ofstream(files.directory.path("blank")) << "\n\n";
  CHECK_THROWS_AS(create(files.directory.path("blank"), files.vocab, files.shard), DataError);
  CHECK_FALSE(std::filesystem::exists(files.shard));
  CHECK_THROWS_AS(data({"create", "--input", files.text}), UsageError);
  CHECK_THROWS_WITH(
      data({"create", "--input", files.text, "--vocab", files.vocab, "--output", files.shard, "--max-seq-length", "4"}),
      Contains("max-seq-length"));
  CHECK_THROWS_AS(data({"nonsense"}), UsageError);
  CHECK_THROWS_AS(data({}), UsageError);
  create(files.text, files.vocab, files.shard);
  CHECK_THROWS_WITH(data({"show", files.shard, "--row", "1000000"}), Contains("--row 1000000"));
  std::ofstream(files.vocab, std::ios::app) << "more\n";
  CHECK_THROWS_WITH(data({"show", files.shard, "--vocab", files.vocab}), Contains("not the vocabulary"));
  std::string bytes = read_file(files.shard);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 4);
  std::ofstream(files.shard, std::ios::binary) << bytes;
  CHECK_THROWS_WITH(data({"verify", files.shard}), Contains("1 of 1 files") && Contains(files.shard + ": byte"));
}

}  // namespace
}  // namespace bert
