// bert benchmark data: the preparation of data, and the loader.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "app/benchmark/made_up_text.h"
#include "app/system/exit_codes.h"
#include "data/formats/shard.h"
#include "data/tokenizer/tokenizer.h"
#include "data/wikitext/extract_dump.h"
#include "tests/places.h"
#include "tests/support/benchmark_command.h"
#include "tests/support/tiny_pretraining.h"
#include "tests/testing.h"

namespace bert {
namespace {

using testing::Approx;
using testing::BenchmarkOutput;
using testing::run_benchmark;
using testing::TemporaryDirectory;

TEST_CASE("bert benchmark data drains a configuration's data", "[unit][benchmark]") {
  const TemporaryDirectory directory;
  const PretrainConfig config = testing::tiny(directory, "run");  // 300 examples, 4 of 8 at a time
  const std::string file = directory.path("run.json");
  std::ofstream(file) << to_json(config);
  const std::string data = "data --config " + file + " --steps 150 --warmup 0 ";  // two epochs
  const BenchmarkOutput output = run_benchmark(data + "--json");
  CAPTURE(output.text);
  REQUIRE(output.status == kOk);
  const auto report = output.report();
  const Shard shard(config.data.train.front());
  double bytes = 0;
  for (int64_t row = 0; row < shard.size(); ++row) bytes += static_cast<double>(shard.bytes_of_row(row));
  const double sequences = report["sequences_per_second"], rows = static_cast<double>(shard.size());
  CHECK(sequences > 0);
  CHECK(report["tokens_per_second"].get<double>() / sequences ==
        Approx(static_cast<double>(shard.manifest().tokens) / rows));
  CHECK(report["megabytes_per_second"].get<double>() / sequences == Approx(1e-6 * bytes / rows));
  CHECK(report["batch"] == 4);
  CHECK(report["global_batch"] == 8);
  CHECK(report["ms_p10"].get<double>() <= report["ms_median"].get<double>());
  CHECK(report["ms_p90"].get<double>() <= report["ms_p99"].get<double>());
  CHECK_THAT(run_benchmark(data).text, testing::Contains("\nsequences_per_second: "));
  CHECK(run_benchmark(data + "--json micro_batch_size=2").report()["batch"] == 2);

  CHECK(report["masking"] == "static");
  CHECK(report["fill"].get<double>() > 0.5);
  CHECK(report["data_wait_share"].get<double>() < 1);

  std::ofstream(directory.path("old.json")) << report.dump();
  CHECK(run_benchmark(data + "--json --compare " + directory.path("old.json")).report()["compare"]["figures"].size() ==
        1);
  testing::write_counting_shard(config.data.train.front(), 300, 3);
  const BenchmarkOutput other = run_benchmark(data + "--compare " + directory.path("old.json"));
  CHECK(other.status == kUsage);
  CHECK_THAT(other.text, testing::Contains("data: was "));
  std::filesystem::remove(config.data.train.front());
  CHECK(run_benchmark(data).status == kInputMissing);
  CHECK(run_benchmark("data --shards none.shard").status == kUsage);
  CHECK(run_benchmark("step model.hidden_size=64").status == kUsage);  // of which configuration?
}

TEST_CASE("Made-up text has the vocabulary's words, and its dump the parts of a dump", "[unit][benchmark]") {
  const WordPieceTokenizer tokenizer{Vocabulary(MadeUpText::vocabulary())};
  CHECK(tokenizer.vocabulary().size() > 29'000);
  CHECK(tokenizer.vocabulary().size() <= 30'522);
  MadeUpText text(1), again(1);
  std::map<std::string, int64_t> counts;
  int64_t words = 0, tokens = 0;
  for (int i = 0; i < 200; ++i) {
    const std::string document = text.document();
    REQUIRE(document == again.document());
    for (const int32_t id : tokenizer.encode(document)) {
      REQUIRE(id != tokenizer.vocabulary().unk_id());
      ++tokens;
      words += !tokenizer.is_continuation(id);
    }
    std::istringstream stream(document);
    for (std::string word; stream >> word;) ++counts[word];
  }
  CHECK(static_cast<double>(tokens) / static_cast<double>(words) == Approx(1.09).margin(0.03));
  std::vector<int64_t> by_rank;
  for (const auto& [word, count] : counts) by_rank.push_back(count);
  std::sort(by_rank.rbegin(), by_rank.rend());
  // Zipf: the word of rank 10 is 10 times as frequent as that of rank 100, within the noise of the smaller count.
  CHECK(static_cast<double>(by_rank[9]) / static_cast<double>(by_rank[99]) == Approx(10).epsilon(0.3));

  const TemporaryDirectory directory;
  {
    std::ofstream file(directory.path("dump.xml"));
    MadeUpText pages(2);
    file << MadeUpText::dump_begin();
    for (int i = 0; i < 200; ++i) file << pages.dump_page();
    file << MadeUpText::dump_end();
  }
  std::string prose;
  const DumpCounts dump =
      extract_dump(directory.path("dump.xml"), {}, [&](const Article& article) { prose += article.text; });
  CHECK(dump.pages == 200);
  CHECK(dump.redirects == 50);
  CHECK(dump.other_namespaces == 20);
  CHECK(dump.articles == 130);
  CHECK(std::ssize(prose) > dump.xml_bytes / 4);
  for (const char* residue : {"{{", "}}", "[[", "]]", "<", "{|", "|", "http", "Category"}) {
    CHECK(prose.find(residue) == std::string::npos);
  }
}

TEST_CASE("bert benchmark data times the preparation, and the loader on what it made", "[unit][benchmark]") {
  const TemporaryDirectory directory;
  const std::string text = directory.path("text"), vocab = directory.path("vocab.txt"),
                    dump = directory.path("dump.xml");
  {
    std::ofstream text_file(text), vocab_file(vocab), dump_file(dump);
    MadeUpText made_up(3);
    for (int i = 0; i < 300; ++i) text_file << made_up.document() << "\n\n";
    for (const std::string& token : MadeUpText::vocabulary()) vocab_file << token << "\n";
    dump_file << MadeUpText::dump_begin() << made_up.dump_page() << made_up.dump_page() << MadeUpText::dump_end();
  }
  const std::string files = " --input " + text + " --vocab " + vocab + " --dump " + dump;
  const BenchmarkOutput output = run_benchmark("data" + files + " --steps 20 --json");
  CAPTURE(output.text);
  REQUIRE(output.status == kOk);
  const auto report = output.report();
  CHECK(report["text"]["bytes"] == std::filesystem::file_size(text) + 1);  // a line break after each file
  CHECK(report["text"]["files"] == nlohmann::json{text});
  CHECK(report["wordpiece"]["megabytes_per_second_per_core"].get<double>() > 0);
  CHECK(report["extraction"]["xml_bytes"] == std::filesystem::file_size(dump));
  CHECK(report["extraction"]["text_bytes"].get<int64_t>() > 0);
  CHECK(report["extraction"]["megabytes_per_second_per_core"].get<double>() > 0);
  const auto& examples = report["examples"];
  CHECK(examples["examples_per_second_per_core"].get<double>() > 0);
  CHECK(examples["seconds_per_megabyte_and_copy"].get<double>() > 0);
  CHECK(examples["shard_bytes_per_byte_and_copy"].get<double>() == Approx(0.8).margin(0.4));
  REQUIRE(std::system((std::string(BERT_EXECUTABLE) + " data create --split-sentences --dupe-factor 7 --input " + text +
                       " --vocab " + vocab + " --output " + directory.path("made.shard") + " >/dev/null 2>&1")
                          .c_str()) == 0);
  const Shard made(directory.path("made.shard"));
  CHECK(examples["examples"] == made.size());
  CHECK(report["masking"] == "dynamic");
  CHECK(report["micro_batch_tokens"] == 8192);
  CHECK(report["fill"].get<double>() > 0.99);
  CHECK(report["tokens_per_second_per_core"].get<double>() > 0);
  CHECK(report["data_wait_share"].get<double>() < 1);

  CHECK(run_benchmark("data --input " + text).status == kUsage);  // of which vocabulary?
  CHECK(run_benchmark("data --vocab " + vocab + " --input " + directory.path("none")).status == kInputMissing);
  CHECK(run_benchmark("data --vocab " + directory.path("none") + " --input " + text).status == kInputMissing);
  std::ofstream(dump) << "no dump";
  const BenchmarkOutput bad = run_benchmark("data" + files);
  CHECK(bad.status == kBadData);
  CHECK_THAT(bad.text, testing::Contains("dump.xml"));
}

}  // namespace
}  // namespace bert
