#include <fmt/format.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>
#include <vector>

#include "app/cli/percentage.h"
#include "app/system/exit_codes.h"
#include "app/verbs/verbs.h"
#include "data/formats/example_file.h"
#include "data/formats/shard.h"
#include "data/io/files.h"
#include "data/io/plugin.h"
#include "tests/support/command_testing.h"
#include "tests/support/example_golden.h"
#include "tests/testing.h"

namespace bert {
namespace {

using nlohmann::json;
using testing::CommandResult;
using testing::Contains;
using testing::TemporaryDirectory;

CommandResult create(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"data", "create"});
  return testing::run_command(data_command, arguments);
}

struct TextFiles {
  TemporaryDirectory directory;
  std::string vocab = directory.path("vocab.txt"), text = directory.path("text.txt"), out = directory.path("out");
  TextFiles() {
    std::ofstream(vocab) << "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\ncat\ndog\nsat\nran\n.\n##s\n";
    std::ofstream file(text);
    for (int i = 0; i < 60; ++i) file << "The cat sat.\nThe dogs ran.\nThe cats sat.\nThe zebra ran.\n\n";
  }
  [[nodiscard]] CommandResult make(const std::string& output, std::vector<std::string> more) const {
    more.insert(more.begin(), {"--input", text, "--vocab", vocab, "--output", output, "--max-seq-length", "24",
                               "--dupe-factor", "2"});
    return create(std::move(more));
  }
  /// The messages about examples of another text.
  [[nodiscard]] std::string said(const std::string& other, std::vector<std::string> more = {}) const {
    std::ofstream(text) << other;
    const CommandResult result = make(out, std::move(more));
    CHECK(result.code == kOk);
    return result.err;
  }
};

TEST_CASE("bert data create writes Google's TFRecord byte for byte, with Google's names of options",
          "[golden][data_create]") {
  const std::string data = testing::shared_data();
  if (data.empty()) BERT_SKIP("Google's TFRecord is in ../shared/data, which is absent");
  const TemporaryDirectory directory;
  const std::string want = read_file(data + "/pretraining/google_sample_seed12345.tfrecord");
  const std::string text = data + "/text/google_bert_sample_text.txt",
                    vocab = data + "/vocab/bert-base-uncased-vocab.txt", out = directory.path("out.tfrecord");
  CHECK(
      create({"--input", text, "--vocab", vocab, "--output", out, "--format", "tfrecord", "--dupe-factor", "5"}).code ==
      kOk);
  CHECK(read_file(out) == want);
  const std::string again = directory.path("again.tfrecord");
  CHECK(create({"--input_file=" + data + "/text/google_bert_sample*.txt", "--vocab_file=" + vocab,
                "--output_file=" + again, "--do_lower_case=True", "--max_seq_length=128",
                "--max_predictions_per_seq=20", "--masked_lm_prob=0.15", "--random_seed=12345", "--dupe_factor=5",
                "--short_seq_prob=0.1", "--do_whole_word_mask=False", "--format=tfrecord"})
            .code == kOk);
  CHECK(read_file(again) == want);
}

TEST_CASE("bert data create takes flags that are switched off as absl does", "[unit][data_create]") {
  const TextFiles files;
  const std::string cased = files.directory.path("cased"), off = files.directory.path("off");
  REQUIRE(files.make(cased, {"--cased"}).code == kOk);
  REQUIRE(files.make(off, {"--nodo_lower_case", "--nodo_whole_word_mask"}).code == kOk);
  CHECK(read_file(off) == read_file(cased));
  REQUIRE(files.make(off, {}).code == kOk);
  CHECK(read_file(off) != read_file(cased));
  const std::string usual = read_file(off);
  REQUIRE(files.make(off, {"--strip-accents", "--tokenize-chinese-chars"}).code == kOk);
  CHECK(read_file(off) == usual);  // the defaults, spelled out, as older versions wrote them
  const auto parameters = [&] { return Shard(off).manifest().parameters; };
  CHECK(parameter(parameters(), "strip_accents").empty());
  REQUIRE(files.make(off, {"--strip-accents=false", "--tokenize-chinese-chars=false"}).code == kOk);
  CHECK(parameter(parameters(), "strip_accents") == "false");
  CHECK(parameter(parameters(), "tokenize_chinese_chars") == "false");
  CHECK(files.make(off, {"--nodo_lower_case=True"}).code == kUsage);
  CHECK(files.make(off, {"--nodo_such_thing"}).code == kUsage);
}

TEST_CASE("bert data create masks whole words as Google's algorithm does", "[golden][data_create]") {
  const json golden = json::parse(read_file(testing::golden("pretraining_data.json")));
  const TemporaryDirectory directory;
  const std::string vocab = directory.path("vocab.txt"), text = directory.path("text"), out = directory.path("out");
  std::ofstream vocabulary(vocab);
  for (const std::string token : golden["vocabulary"]) vocabulary << token << "\n";
  vocabulary.close();
  int whole_words = 0;
  for (const json& each : golden["cases"]) {
    if (each["config"]["do_whole_word_mask"] != true || each["name"] == "no word fits") continue;
    CAPTURE(each["name"].get<std::string>());
    ++whole_words;
    std::ofstream(text) << each["text"].get<std::string>();
    std::vector<std::string> arguments = {"--input_file",  text, "--vocab_file", vocab,
                                          "--output_file", out,  "--format",     "tfrecord"};
    for (const auto& [name, value] : each["config"].items())
      arguments.push_back("--" + name + "=" + (value.is_boolean() ? "True" : value.dump()));
    REQUIRE(create(arguments).code == kOk);
    const auto examples = testing::read_examples(out);
    REQUIRE(examples.size() == each["examples"].size());
    for (size_t i = 0; i < examples.size(); ++i) {
      const json& want = each["examples"][i];
      CHECK(examples[i] == PretrainingExample{want["input_ids"], want["segment_b_start"], want["masked_positions"],
                                              want["masked_ids"], want["is_random_next"]});
    }
  }
  CHECK(whole_words == 2);
}

TEST_CASE("Several outputs get the examples in turn, as in Google's script", "[unit][data_create]") {
  const TextFiles files;
  const std::string one = files.directory.path("one.shard"), a = files.directory.path("a.shard"),
                    b = files.directory.path("b.shard");
  REQUIRE(files.make(one, {}).code == kOk);
  REQUIRE(create({"--input_file", files.text, "--vocab", files.vocab, "--output_file", a + "," + b, "--max-seq-length",
                  "24", "--dupe-factor", "2"})
              .code == kOk);
  const PretrainingShards all({one}), parts[] = {PretrainingShards({a}), PretrainingShards({b})};
  REQUIRE(all.size() == parts[0].size() + parts[1].size());
  for (int64_t i = 0; i < all.size(); ++i) REQUIRE(all.example(i) == parts[i % 2].example(i / 2));
}

TEST_CASE("bert data create makes directories, and says when there is nothing to do", "[unit][data_create]") {
  const TextFiles files;
  const std::string held = files.directory.path("held");
  CommandResult made = files.make(files.out + "/", {"--validation-output", held});
  REQUIRE(made.code == kOk);
  json summary = json::parse(made.out);
  CHECK(summary["shards"] == 1);
  CHECK(summary["complete"] == true);
  CHECK(summary["documents"] == 60);
  const PretrainingShards train({files.out}), validation({held});
  CHECK(summary["examples"] == train.size());
  CHECK(summary["content_checksum"] == train.content_checksum());
  CHECK(summary["validation"]["examples"] == validation.size());
  CHECK_THAT(made.err, Contains("reading and tokenizing: done"));

  made = files.make(files.out, {"--validation-output", held});
  CHECK(made.code == kOk);
  CHECK_THAT(made.err, Contains("is finished; nothing to do"));
  summary["seconds"] = summary["megabytes_per_second"] = summary["output"] = 0;
  json again = json::parse(made.out);
  again["seconds"] = again["megabytes_per_second"] = again["output"] = 0;
  CHECK(again == summary);

  made = files.make(files.out, {"--validation-output", held, "--random-seed", "1"});
  CHECK(made.code == kBadData);
  CHECK_THAT(made.err, Contains("random-seed is 12345 there and 1 here") && Contains("--overwrite"));
  CHECK(files.make(files.out, {"--validation-output", held, "--random-seed", "1", "--overwrite"}).code == kOk);
  std::filesystem::remove_all(held);
  made = files.make(files.out, {"--validation-output", held, "--random-seed", "1"});
  CHECK(made.code == kBadData);
  CHECK_THAT(made.err, Contains("held: dataset.json is absent, although "));

  made = files.make(files.directory.path("four"), {"--num-shards", "4", "--format", "tfrecord"});
  REQUIRE(made.code == kOk);
  CHECK(std::filesystem::exists(files.directory.path("four/00003-of-00004.tfrecord")));
  made = files.make(files.directory.path("text"), {"--num-shards", "61"});
  CHECK(made.code == kBadData);
  CHECK_THAT(made.err, Contains("60 documents, too few for 61 files"));
  const std::string corpus = files.directory.path("corpus");
  std::filesystem::create_directory(corpus);
  std::filesystem::copy(files.text, corpus);
  made = create({"--input", corpus, "--vocab", files.vocab, "--output", corpus + "/out/"});
  CHECK(made.code == kUsage);
  CHECK_THAT(made.err, Contains("lies in " + corpus));
  std::ofstream(corpus + "/more.jsonl") << "{\"text\": \"The cat sat.\"}\n";
  made = create({"--input", corpus, "--vocab", files.vocab, "--output", files.directory.path("mixed/")});
  CHECK(made.code == kUsage);
  CHECK_THAT(made.err, Contains("more.jsonl") && Contains("--split-sentences"));
  made = create({"--input", files.text, "--vocab", files.vocab, "--output-file", "a,b", "--num-shards", "2"});
  CHECK(made.code == kUsage);
  CHECK_THAT(made.err, Contains("--output-file a,b: names 2 files"));
}

TEST_CASE("A single file says what memory it takes", "[unit][data_create]") {
  const TextFiles files;
  const CommandResult made = files.make(files.out, {});
  CHECK(made.code == kOk);
  CHECK_THAT(made.err, Contains("takes about 9 MB of memory") && Contains("MB are available"));
  // A sparse file of 4 TB is refused at once.
  std::filesystem::resize_file(files.text, uintmax_t{1} << 42);
  const CommandResult refused = files.make(files.out, {});
  CHECK(refused.code == kOutOfMemory);
  CHECK_THAT(refused.err, Contains("--num-shards 68720 makes a directory"));
}

TEST_CASE("A single file from a pipe ends when its text takes too much memory", "[unit][data_create]") {
  const TextFiles files;
  const std::string pipe = files.directory.path("pipe");
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  const auto before = std::signal(SIGPIPE, SIG_IGN);  // the reader ends before the writer
  constexpr size_t kPieces = 60;
  size_t written = 0;
  std::thread writer([&] {
    const std::string piece = read_file(files.text);
    std::string megabyte;
    while (megabyte.size() < 1'000'000) megabyte += piece;
    std::ofstream to(pipe);
    while (written < kPieces && to.write(megabyte.data(), static_cast<std::streamsize>(megabyte.size()))) ++written;
  });
  const CommandResult made =
      create({"--input", pipe, "--vocab", files.vocab, "--output", files.out, "--memory", "100"});
  writer.join();
  std::signal(SIGPIPE, before);
  CHECK(made.code == kOutOfMemory);
  CHECK_THAT(made.err, Contains("MB of memory; 100 MB are available. --num-shards 1 makes a directory"));
  CHECK(written < kPieces);
  CHECK_FALSE(std::filesystem::exists(files.out));
}

TEST_CASE("--memory bounds a directory, and more of it is the advice", "[unit][data_create]") {
  const TextFiles files;
  CommandResult made = files.make(files.out + "/", {"--memory", "20"});
  CHECK(made.code == kOutOfMemory);
  CHECK_THAT(made.err, Contains("20 MB are allowed: give --memory 149 "));
  CHECK(files.make(files.out + "/", {"--memory", "149"}).code == kOk);
  for (const char* name : {"RANK", "LOCAL_RANK"}) ::setenv(name, "0", 1);
  for (const char* name : {"WORLD_SIZE", "LOCAL_WORLD_SIZE"}) ::setenv(name, "64", 1);
  made = files.make(files.directory.path("ranks/"), {});
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}) ::unsetenv(name);
  CHECK(made.code == kOutOfMemory);
  CHECK_THAT(made.err, Contains("bert data create: ") && Contains("64 processes of this machine share 2000 MB"));
}

TEST_CASE("bert data create reads JSON lines and skips bad ones on request", "[unit][data_create]") {
  const TextFiles files;
  const std::string lines = files.directory.path("a.jsonl"), odd = files.directory.path("a.text");
  std::ofstream(lines) << "{\"body\": {\"text\": \"The cat sat. The dog ran.\"}}\nnot JSON\n"
                          "{\"body\": {\"text\": \"The dogs ran. The cats sat.\"}}\n";
  std::filesystem::copy(lines, odd);
  const std::string out = files.directory.path("b.shard");
  for (const std::vector<std::string>& layout :
       {std::vector<std::string>{lines}, {odd, "--layout", "json-lines"}, {lines, "--layout", "prose"}}) {
    std::vector<std::string> arguments = {"--vocab",      files.vocab, "--output", out,
                                          "--text-field", "body.text", "--input"};
    arguments.insert(arguments.end(), layout.begin(), layout.end());
    CHECK(create(arguments).code == kBadData);
    arguments.emplace_back("--skip-bad-lines");
    const CommandResult made = create(arguments);
    REQUIRE(made.code == kOk);
    CHECK_THAT(made.err, Contains("skipped 1 bad lines"));
    const json summary = json::parse(made.out);
    CHECK(summary["documents"] == 2);
    CHECK(summary["sentences"] == 4);  // prose
    CHECK(summary["bad_lines"] == 1);
    CHECK(parameter(Shard(out).manifest().parameters, "skip_bad_lines") == "true");
    CHECK(parameter(Shard(out).manifest().parameters, "text_field") == "body.text");
  }
  const CommandResult sentences =
      create({"--vocab", files.vocab, "--output", out, "--input", lines, "--layout", "sentences"});
  CHECK(sentences.code == kUsage);
  CHECK_THAT(sentences.err, Contains("a.jsonl"));
  CHECK(create({"--vocab", files.vocab, "--output", out, "--input", files.text, "--encoding", "klingon"}).code ==
        kUsage);
  CHECK(
      create({"--vocab", files.vocab, "--output", out, "--input", files.text, "--layout", "prose", "--split-sentences"})
          .code == kUsage);
}

TEST_CASE("TFRecord of other objectives than next sentence comes with a warning", "[unit][data_create]") {
  const TextFiles files;
  const CommandResult sop = files.make(files.out, {"--format", "tfrecord", "--objective", "sop"}),
                      nsp = files.make(files.out, {"--format", "tfrecord"});
  CHECK_THAT(sop.err, Contains("TFRecord has no place for the objective") && Contains("--objective sop"));
  CHECK_THAT(nsp.err, !Contains("objective"));
}

TEST_CASE("A text whose documents are one sentence each comes with a warning", "[unit][data_create]") {
  const TextFiles files;
  const std::string lone = "The cat sat.\n\nThe dog ran.\n\nThe cat ran.\n";
  const std::string warning =
      "bert data create: warning: every one of the 3 documents is one sentence, so that no example has two sentences "
      "in "
      "order. --split-sentences finds the sentences of prose; --objective mlm needs none\n";
  CHECK_THAT(files.said(lone), Contains(warning));
  CHECK_THAT(files.said(lone, {"--objective", "mlm"}), !Contains("one sentence"));
  CHECK_THAT(files.said(lone + "The dog sat.\n"), !Contains("one sentence"));  // the last document has two
}

TEST_CASE("A vocabulary that lacks the words of the text, and a lone document, come with a warning",
          "[unit][data_create]") {
  const TextFiles files;
  const std::string known = "The cat sat.\nThe dog ran.\n\nThe cat ran.\nThe dog sat.\n";
  CHECK_THAT(files.said(known), !Contains("unknown") && !Contains("one document"));
  CHECK_THAT(files.said(known + "Привет привет.\n"), Contains("warning: ") && Contains(" % of the tokens are unknown"));
  const std::string lone = "The cat sat.\nThe dog ran.\nThe cat ran.\n";
  CHECK_THAT(files.said(lone), Contains("there is one document"));
  CHECK_THAT(files.said(lone, {"--objective", "mlm"}), !Contains("one document"));
}

TEST_CASE("--language decides the sentences of prose, and is refused for one sentence a line", "[unit][data_create]") {
  const TextFiles files;
  std::ofstream(files.text) << "The cat sat 3. Januar.\n\nThe cat sat 3. Januar.\n";
  const auto sentences = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--split-sentences", "--overwrite"});
    const CommandResult made = files.make(files.out, std::move(more));
    REQUIRE(made.code == kOk);
    return json::parse(made.out)["sentences"].get<int>();
  };
  CHECK(sentences({}) == 4);
  CHECK(sentences({"--language", "de"}) == 2);
  const CommandResult refused = files.make(files.out, {"--language", "de", "--overwrite"});
  CHECK(refused.code == kUsage);
  CHECK_THAT(refused.err, Contains("--language is for prose"));
}

TEST_CASE("Directories of every format have the examples of the shards", "[unit][data_create]") {
  const TextFiles files;
  const std::string shards = files.directory.path("shards");
  REQUIRE(files.make(shards, {"--num-shards", "3"}).code == kOk);
  for (const std::string format : {"hdf5", "tfrecord", "tfrecord.gz"}) {
    CAPTURE(format);
    const std::string out = files.directory.path(format);
    const CommandResult made = files.make(out, {"--num-shards", "3", "--format", format});
    REQUIRE(made.code == kOk);
    for (const std::string number : {"00000-of-00003.", "00001-of-00003.", "00002-of-00003."}) {
      std::string name = number;
      name += "shard";
      CHECK(testing::read_examples(out + "/" + number + format) == testing::read_examples(shards + "/" + name));
    }
    json want = json::parse(read_file(shards + "/dataset.json")), got = json::parse(read_file(out + "/dataset.json"));
    for (size_t i = 0; i < 3; ++i) {
      CHECK(got["files"][i]["bytes"] ==
            std::filesystem::file_size(out + "/" + got["files"][i]["name"].get<std::string>()));
      for (const char* same : {"documents", "text_bytes", "examples", "tokens", "masked_tokens", "longest"})
        CHECK(got["files"][i][same] == want["files"][i][same]);
    }
  }
  const ExampleFileInfo info = open_examples(files.directory.path("hdf5/00001-of-00003.hdf5"))->info();
  CHECK(parameter(info.parameters, "shard") == "1 of 3");
  CHECK(info.vocabulary_checksum == Shard(shards + "/00001-of-00003.shard").manifest().vocabulary_checksum);
}

TEST_CASE("Parquet without Arrow ends with 66 and the name of what is absent", "[unit][data_create]") {
  if (std::filesystem::exists(plugin_path("libbert_arrow.so"))) BERT_SKIP("this build has Arrow");
  const TextFiles files;
  for (const std::string& output : {files.out + "/", files.out + ".parquet"}) {
    const CommandResult made = files.make(output, {"--format", "parquet"});
    CHECK(made.code == kInputMissing);
    CHECK_THAT(made.err, Contains("libbert_arrow.so") && Contains("app/setup.sh --arrow"));
    CHECK_FALSE(std::filesystem::exists(output));
  }
}

TEST_CASE("Objective and masks are options of bert data create", "[unit][data_create]") {
  const TextFiles files;
  for (const std::string objective : {"nsp", "mlm", "sop"}) {
    const std::string out = files.directory.path(objective + ".shard");
    REQUIRE(files.make(out, {"--objective", objective}).code == kOk);
    const PretrainingShards shards({out});
    CHECK(name_of_value(objective_of(shards.shards().front()->manifest())) == objective);
    CHECK((shards.example(0).segment_b_start == shards.row(0).length) == (objective == "mlm"));
  }
  const std::string held = files.directory.path("held.shard");
  const CommandResult made = create({"--input", files.text, "--vocab", files.vocab, "--output", files.out, "--masking",
                                     "none", "--max-seq-length", "24", "--validation-output", held});
  REQUIRE(made.code == kOk);
  const json summary = json::parse(made.out);
  CHECK(summary["masked_tokens"] == 0);
  CHECK(summary["examples_without_masks"] == 0);
  CHECK(summary["validation"]["masked_tokens"] > 0);  // held-out examples keep their masks
  const PretrainingShards shards({files.out});
  const auto& parameters = shards.shards().front()->manifest().parameters;
  CHECK(std::find(parameters.begin(), parameters.end(), std::pair<std::string, std::string>("dupe_factor", "1")) !=
        parameters.end());
  CHECK(create({"--input", files.text, "--vocab", files.vocab, "--output", files.out, "--objective", "electra"}).code ==
        kUsage);
}

TEST_CASE("Ranks make a directory, not a file", "[unit][data_create]") {
  const TextFiles files;
  ::setenv("RANK", "0", 1);
  ::setenv("WORLD_SIZE", "2", 1);
  ::setenv("LOCAL_RANK", "0", 1);
  const CommandResult file = files.make(files.out, {}), overwritten = files.make(files.out + "/", {"--overwrite"});
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK"}) ::unsetenv(name);
  CHECK(file.code == kUsage);
  CHECK_THAT(file.err, Contains("2 processes make a directory of files together: end the name with /"));
  CHECK(overwritten.code == kUsage);
}

TEST_CASE("Progress of a known amount tells the rate", "[unit][data_create]") {
  const std::string terminal = testing::on_terminal([] {
    Percentage percentage;
    percentage.update("reading", 0, 10, "MB");
    percentage.update("reading", 10, 10, "MB");
  });
  CHECK_THAT(terminal, Contains("\rreading: 100 %, ") && Contains(" MB/s\r\n"));
}

}  // namespace
}  // namespace bert
