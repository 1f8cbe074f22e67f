// bert data convert, and verify, show and stats on every format.
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "app/verbs/verbs.h"
#include "data/formats/example_file.h"
#include "data/formats/shard.h"
#include "data/io/error.h"
#include "tests/support/command_testing.h"
#include "tests/support/example_data.h"
#include "tests/support/example_golden.h"
#include "tests/testing.h"

namespace bert {
namespace {

using nlohmann::json;
using testing::Contains;
using testing::ExampleGolden;
using testing::read_examples;
using testing::TemporaryDirectory;

testing::CommandResult run_data(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "data");
  return testing::run_command(data_command, arguments);
}

json answer(const std::vector<std::string>& arguments) {
  const testing::CommandResult result = run_data(arguments);
  INFO(result.err);
  REQUIRE(result.code == kOk);
  return json::parse(result.out);
}

struct Made {
  TemporaryDirectory directory;
  std::string shard = directory.path("a.shard");
  std::vector<PretrainingExample> examples;
  Made() {
    testing::write_made_up_shard(shard, 0, 50);
    examples = read_examples(shard);
  }
  [[nodiscard]] std::string path(const std::string& name) const { return directory.path(name); }
};

TEST_CASE("Examples go through all formats and come back, with what the formats keep", "[unit][data_convert]") {
  const Made made;
  const json first = answer({"convert", made.shard, "--output", made.path("b.hdf5"), "--format", "hdf5"});
  CHECK(first["examples"] == 50);
  CHECK(first["vocabulary_checksum"] == "0123456789abcdef0123456789abcdef");
  CHECK(read_examples(made.path("b.hdf5")) == made.examples);
  const ExampleFileInfo kept = open_examples(made.path("b.hdf5"))->info();
  CHECK(kept.vocab_size == 1004);
  CHECK(kept.max_predictions_per_seq == 3);  // no parameter says it: the most masks that an example has
  CHECK(kept.parameters == std::vector<std::pair<std::string, std::string>>{{"random_seed", "12345"}});

  answer({"convert", made.path("b.hdf5"), "--output", made.path("c.tfrecord"), "--format", "tfrecord"});
  answer({"convert", made.path("c.tfrecord"), "--output", made.path("d.gz"), "--format", "tfrecord.gz"});
  const testing::CommandResult last =
      run_data({"convert", made.path("d.gz"), "--output", made.path("e"), "--format", "shard"});
  CHECK_THAT(last.err, Contains("do not say their vocabulary") && Contains("--vocab records it"));
  CHECK(read_examples(made.path("e")) == made.examples);
  const PretrainingShards shards({made.path("e")});
  CHECK(shards.vocabulary_checksum().empty());
  CHECK(shards.vocab_size() == shards.shards().front()->manifest().max_id + 1);
  answer({"convert", made.path("e"), "--output", made.path("f.tfrecord"), "--format", "tfrecord"});
  CHECK(read_file(made.path("f.tfrecord")) == read_file(made.path("c.tfrecord")));
  answer({"convert", made.path("b.hdf5"), "--output", made.path("g.shard"), "--format", "shard"});
  const ShardManifest again = Shard(made.path("g.shard")).manifest();
  CHECK(again.vocabulary_checksum == "0123456789abcdef0123456789abcdef");
  CHECK(again.vocab_size == 1004);
}

TEST_CASE("--vocab records the vocabulary of examples that do not say theirs", "[unit][data_convert]") {
  const Made made;
  const ExampleGolden golden(testing::golden("example_files.json"), made.directory.path());
  std::ofstream vocab(made.path("vocab.txt"));
  for (const char* token : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}) vocab << token << "\n";
  for (int i = 5; i < 30522; ++i) vocab << "token" << i << "\n";
  vocab.close();
  const std::vector<std::string> convert = {
      "convert", golden.file("nvidia.hdf5"), "--output", made.path("n.shard"), "--format", "shard",
      "--vocab", made.path("vocab.txt")};
  const testing::CommandResult result = run_data(convert);
  CHECK(result.code == kOk);
  CHECK_THAT(result.err, !Contains("vocabulary"));
  CHECK(read_examples(made.path("n.shard")) == golden.examples());
  const ShardManifest manifest = Shard(made.path("n.shard")).manifest();
  CHECK(manifest.vocab_size == 30522);
  CHECK(manifest.vocabulary_checksum == json::parse(result.out)["vocabulary_checksum"]);
  CHECK(open_examples(made.path("n.shard"))->info().max_predictions_per_seq == golden.max_predictions());
  // A shard of another vocabulary is not taken for one of this, nor are ids outside of it.
  CHECK_THAT(run_data({"convert", made.shard, "--output", made.path("x"), "--format", "shard", "--vocab",
                       made.path("vocab.txt")})
                 .err,
             Contains("is not the vocabulary that " + made.shard + " was made with"));
  std::ofstream(made.path("small.txt")) << "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\n";
  const testing::CommandResult outside = run_data({"convert", golden.file("nvidia.hdf5"), "--output", made.path("x"),
                                                   "--format", "shard", "--vocab", made.path("small.txt")});
  CHECK(outside.code == kBadData);
  CHECK_THAT(outside.err, Contains("in a vocabulary of 6"));
  CHECK_FALSE(std::filesystem::exists(made.path("x")));
}

TEST_CASE("Several inputs and directories become one file, or one for each in a directory", "[unit][data_convert]") {
  const Made made;
  std::filesystem::create_directory(made.path("in"));
  testing::write_made_up_shard(made.path("in/00000-of-00002.shard"), 0, 20);
  testing::write_made_up_shard(made.path("in/00001-of-00002.shard"), 20, 10);
  json summary =
      answer({"convert", made.path("in"), made.shard, "--output", made.path("all.tfrecord"), "--format", "tfrecord"});
  CHECK(summary["inputs"] == 3);
  CHECK(summary["examples"] == 80);
  const auto all = read_examples(made.path("all.tfrecord"));
  CHECK(std::vector(all.begin(), all.begin() + 30) == std::vector(made.examples.begin(), made.examples.begin() + 30));

  summary = answer({"convert", made.path("in"), "--output", made.path("out/"), "--format", "hdf5"});
  CHECK(summary["outputs"] == 2);
  CHECK(read_examples(made.path("out/00001-of-00002.hdf5")).size() == 10);
  CHECK(answer({"stats", made.path("out")})["examples"] == 30);
  answer({"convert", made.path("out"), "--output", made.path("in"), "--format", "tfrecord.gz"});
  CHECK(read_examples(made.path("in/00000-of-00002.tfrecord.gz")).size() == 20);
  CHECK(run_data({"convert", made.path("in"), "--output", made.path("out"), "--format", "shard"}).code == kUsage);

  std::filesystem::remove(made.path("out/00000-of-00002.hdf5"));
  const testing::CommandResult missing = run_data({"verify", made.path("out")});
  CHECK(missing.code == kInputMissing);
  CHECK_THAT(missing.err, Contains("00000-of-00002.hdf5 is missing"));
}

TEST_CASE("Inputs of two vocabularies, outputs over inputs, and unknown formats are refused", "[unit][data_convert]") {
  const Made made;
  ShardWriter writer(made.path("b.shard"),
                     {.vocab_size = 9, .max_seq_length = 4, .vocabulary_checksum = "ff", .parameters = {}});
  writer.add({{1, 2}, 1, {}, {}, false});
  writer.commit();
  CHECK_THAT(
      run_data({"convert", made.shard, made.path("b.shard"), "--output", made.path("c"), "--format", "shard"}).err,
      Contains("made with another vocabulary"));
  CHECK(run_data({"convert", made.shard, "--output", made.shard, "--format", "hdf5"}).code == kUsage);
  CHECK(run_data({"convert", made.shard, "--output", made.path("c"), "--format", "csv"}).code == kUsage);
  CHECK(run_data({"convert", made.path("absent"), "--output", made.path("c"), "--format", "shard"}).code ==
        kInputMissing);
  std::ofstream(made.path("text.txt")) << "Nothing but a text, which is long enough.\n";
  CHECK(run_data({"convert", made.path("text.txt"), "--output", made.path("c"), "--format", "shard"}).code == kBadData);
  CHECK_FALSE(std::filesystem::exists(made.path("c")));
}

/// A shard of pairs, or of single segments for mlm, with the parameters.
std::string write_shard(const std::string& path, const Parameters& parameters) {
  ShardWriter writer(path,
                     {.vocab_size = 9, .max_seq_length = 8, .vocabulary_checksum = "ff", .parameters = parameters});
  const bool pairs = parameter(parameters, "objective") != "mlm";
  writer.add({{1, 2, 3, 4, 5}, pairs ? 3 : 5, {1}, {7}, pairs});
  writer.commit();
  return path;
}

TEST_CASE("Inputs that training does not take alike do not become one file", "[unit][data_convert]") {
  const TemporaryDirectory directory;
  const std::string nsp = write_shard(directory.path("nsp.shard"), {{"objective", "nsp"}, {"do_lower_case", "true"}}),
                    sop = write_shard(directory.path("sop.shard"), {{"objective", "sop"}, {"do_lower_case", "true"}}),
                    none = write_shard(directory.path("none.shard"), {{"masking", "none"}}),
                    cased = write_shard(directory.path("cased.shard"), {{"do_lower_case", "false"}}),
                    german = write_shard(directory.path("german.shard"),
                                         {{"do_lower_case", "true"}, {"strip_accents", "false"}}),
                    out = directory.path("out");
  const auto refused = [&](const std::string& a, const std::string& b, const std::string& message) {
    for (const std::string format : {"shard", "tfrecord", "hdf5"}) {
      const testing::CommandResult result = run_data({"convert", a, b, "--output", out, "--format", format});
      CHECK(result.code == kBadData);
      CHECK_THAT(result.err, Contains(message));
      CHECK_FALSE(std::filesystem::exists(out));
    }
  };
  refused(nsp, sop, nsp + " was made with objective nsp, " + sop + " was made with objective sop");
  refused(cased, none,
          cased + " does not say its masking, which means masking static, " + none + " was made with masking none");
  refused(sop, cased, cased + " does not say its objective, which means objective nsp");
  refused(nsp, cased, nsp + " was made with do_lower_case true, " + cased + " was made with do_lower_case false");
  refused(nsp, german, nsp + " was made with strip_accents true, " + german + " was made with strip_accents false");
  // The first file need not be the one that says it.
  const std::string silent = write_shard(directory.path("silent.shard"), {});
  CHECK(run_data({"convert", silent, nsp, cased, "--output", out, "--format", "shard"}).code == kBadData);
  CHECK(run_data({"convert", silent, nsp, "--output", out, "--format", "shard"}).code == kOk);

  // Files of their own keep their own settings.
  answer({"convert", nsp, sop, none, "--output", directory.path("each/"), "--format", "hdf5"});
  answer({"convert", directory.path("each"), "--output", directory.path("back/"), "--format", "shard"});
  for (const std::string& each : {nsp, sop, none}) {
    const std::string back = directory.path("back/" + std::filesystem::path(each).filename().string());
    const Parameters want = Shard(each).manifest().parameters, got = Shard(back).manifest().parameters;
    for (const auto& [name, value] : want) CHECK(parameter(got, name) == value);
  }
}

TEST_CASE("TFRecord does not say an objective; the writer warns, and --objective says it again",
          "[unit][data_convert]") {
  const TemporaryDirectory directory;
  const std::string sop = write_shard(directory.path("sop.shard"), {{"objective", "sop"}}),
                    mlm = write_shard(directory.path("mlm.shard"), {{"objective", "mlm"}}),
                    nsp = write_shard(directory.path("nsp.shard"), {{"objective", "nsp"}});
  const auto objective = [](const std::string& path) {
    return std::string(name_of_value(objective_of(Shard(path).manifest())));
  };
  for (const std::string& shard : {sop, mlm, nsp}) {
    const std::string record = directory.path("a.tfrecord"), back = directory.path("back.shard"),
                      name = std::filesystem::path(shard).stem();
    const testing::CommandResult written = run_data({"convert", shard, "--output", record, "--format", "tfrecord"});
    REQUIRE(written.code == kOk);
    if (shard == nsp) {
      CHECK_THAT(written.err, !Contains("objective"));
    } else {
      CHECK_THAT(written.err, Contains(record + ": TFRecord has no place for the objective") &&
                                  Contains("examples are for " + name) && Contains("--objective " + name));
    }
    answer({"convert", record, "--output", back, "--format", "shard", "--objective", name});
    CHECK(objective(back) == name);
    answer({"convert", record, "--output", back, "--format", "shard"});
    CHECK(objective(back) == (shard == mlm ? "mlm" : "nsp"));  // what the examples show
  }
  const testing::CommandResult other =
      run_data({"convert", nsp, "--output", directory.path("x"), "--format", "shard", "--objective", "sop"});
  CHECK(other.code == kBadData);
  CHECK_THAT(other.err, Contains("nsp.shard: says objective nsp; --objective sop"));
}

TEST_CASE("verify and stats say the same of every format", "[unit][data_convert]") {
  const Made made;
  const json shard = answer({"stats", made.shard});
  CHECK(shard["files"][0]["format"] == "shard");
  CHECK(shard["content_checksum"] == PretrainingShards({made.shard}).content_checksum());
  for (const std::string format : {"tfrecord", "tfrecord.gz", "hdf5"}) {
    CAPTURE(format);
    const std::string path = made.path("a." + format);
    answer({"convert", made.shard, "--output", path, "--format", format});
    json verified = answer({"verify", path});
    CHECK(verified["ok"] == true);
    CHECK(verified["format"] == format);
    for (const char* count : {"examples", "example_tokens", "masked_tokens", "longest"})
      CHECK(verified[count] == shard["files"][0][count]);
    const json stats = answer({"stats", path});
    for (const char* same : {"examples", "tokens", "masked_tokens", "mean_length", "longest", "max_seq_length",
                             "max_id", "real_token_share", "masked_share", "random_next_share", "length_histogram"})
      CHECK(stats[same] == shard[same]);
    std::string bytes = read_file(path);
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
    std::ofstream(path, std::ios::binary) << bytes;
    const testing::CommandResult damaged = run_data({"verify", path, made.shard});
    CHECK(damaged.code == kBadData);
    CHECK_THAT(damaged.err, Contains("1 of 2 files are damaged"));
    CHECK(json::parse(damaged.out.substr(0, damaged.out.find('\n')))["ok"] == false);
  }
}

TEST_CASE("An example is shown as words, with its masks and the relation of its segments", "[unit][data_convert]") {
  const TemporaryDirectory directory;
  std::ofstream(directory.path("vocab.txt"))
      << "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\nun\n##aff\n##able\ncat\nsat\nran\n.\n";
  const ExampleFileInfo info{.max_seq_length = 16,
                             .max_predictions_per_seq = 4,
                             .vocab_size = 13,
                             .vocabulary_checksum = "",
                             .parameters = {}};
  const PretrainingExample pair{{2, 5, 6, 4, 8, 9, 3, 11, 12, 3}, 7, {3, 7, 8}, {7, 10, 12}, true};
  const PretrainingExample alone{{2, 5, 9, 3}, 4, {}, {}, false};
  for (const std::string format : {"shard", "tfrecord", "hdf5"}) {
    CAPTURE(format);
    const std::string path = directory.path("a." + format);
    const auto writer = create_examples_file(format, path, info);
    writer->add(alone);
    writer->add(pair);
    writer->commit();
    const std::string of = format == "tfrecord" ? "" : " of 2";
    CHECK(run_data({"show", path, "--row", "1", "--vocab", directory.path("vocab.txt")}).out ==
          "row 1" + of +
              ": 10 tokens, 3 masked, B does not follow A\n"
              "A: [CLS] the un[MASK](aff)able cat [SEP]\n"
              "B: ran(sat) .(.) [SEP]\n"
              "masks:\n"
              "      3  ##aff -> [MASK]\n"
              "      7  sat -> ran\n"
              "      8  . (kept)\n");
    CHECK(run_data({"show", path}).out == "row 0" + of + ": 4 tokens, 0 masked, no B\nA: 2 5 9 3\n");
    const testing::CommandResult outside = run_data({"show", path, "--row", "2"});
    CHECK(outside.code == kUsage);
    CHECK_THAT(outside.err, Contains("has the rows 0 to 1"));
  }
}

}  // namespace
}  // namespace bert
