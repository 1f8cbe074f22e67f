// Memory of the making of examples: estimates, shares of processes, and files that take more.
#include <fstream>
#include <numeric>

#include "data/creation/dataset.h"
#include "data/creation/example_directory.h"
#include "data/creation/needs.h"
#include "data/examples/example_maker.h"
#include "data/random/py_random.h"
#include "tests/support/creation_testing.h"
#include "tests/testing.h"

namespace bert {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::kWords;
using testing::shards_in;
using testing::status_of;
using testing::Work;

TEST_CASE("Ranks whose share of the memory is too small are refused before they read, with advice that works",
          "[unit][creation]") {
  Work work;
  DirectoryOptions how = work.options;
  how.processes_here = how.world_size = 11;
  how.memory_bytes = 5 * (kProcessMemory + 9'000'000);  // of five processes: a file of this text takes some 8 MB
  CHECK_THROWS_WITH(create_directory(how, work.tokenizer),
                    Contains("11 processes of this machine share 545 MB: give --memory 1199") &&
                        Contains("at most 5 processes on a machine"));
  CHECK_FALSE(fs::exists(how.output + "/.work"));
  how.processes_here = how.world_size = 5;
  std::vector<pid_t> pids;
  for (how.rank = 0; how.rank < 5; ++how.rank) pids.push_back(work.start(how));
  for (const pid_t pid : pids) CHECK(status_of(pid) == 0);
  const auto want = shards_in(how.output);
  fs::remove_all(how.output);
  how.processes_here = how.world_size = 11;
  how.memory_bytes = 1'199'000'000;
  pids.clear();
  for (how.rank = 0; how.rank < 11; ++how.rank) pids.push_back(work.start(how));
  for (const pid_t pid : pids) CHECK(status_of(pid) == 0);
  CHECK(shards_in(how.output) == want);
}

TEST_CASE("A chunk counts its documents, too: millions of tiny ones do not fill the memory", "[unit][creation]") {
  Work work;
  std::ofstream file(work.options.input.front());
  for (int i = 0; i < 1000; ++i) file << "w1\n\n";
  file.close();
  int chunks = 0;
  work.options.reached = [&](CreationStep step) { chunks += step == CreationStep::kChunk; };
  CHECK(work.create().statistics.documents == 1000);
  // 5000 bytes have 25 documents of 3 bytes, if each counts kDocumentBytes more.
  CHECK(chunks == 1000 / (5000 / (3 + kDocumentBytes) + 1));
}

/// Documents of sentences of random lengths, in memory.
TokenizedDocuments random_documents(int64_t documents, int64_t sentences, int64_t longest, uint64_t seed) {
  PyRandom random(seed);
  TokenizedDocuments result(kWords + 5);
  for (int64_t document = 0; document < documents; ++document) {
    for (int64_t left = sentences; left > 0; --left) {
      std::vector<int32_t> ids(static_cast<size_t>(random.randint(1, longest)));
      for (int32_t& id : ids) id = static_cast<int32_t>(random.randint(5, kWords + 4));
      result.add_sentence(ids);
    }
    result.end_document();
  }
  return result;
}

TEST_CASE("The estimates of examples and of their memory are upper bounds", "[unit][creation]") {
  const WordPieceTokenizer tokenizer = testing::word_tokenizer();
  const auto vocabulary = std::make_shared<const MaskingVocabulary>(tokenizer);
  struct Text {
    int64_t documents, sentences, longest;
  };
  for (const Text& text : {Text{400, 40, 30}, Text{20000, 1, 4}, Text{4000, 4, 3}, Text{300, 60, 2}, Text{30, 500, 9},
                           Text{40, 4, 2000}}) {
    const TokenizedDocuments documents = random_documents(text.documents, text.sentences, text.longest, 7);
    std::vector<uint32_t> which(documents.size());
    std::iota(which.begin(), which.end(), 0U);
    for (const Objective objective : {Objective::kNsp, Objective::kMlm, Objective::kSop}) {
      for (const double short_seq_prob : {0.0, 0.1, 1.0}) {
        for (const int64_t max_seq_length : {16, 128, 512}) {
          CAPTURE(text.documents, text.sentences, text.longest, static_cast<int>(objective), short_seq_prob,
                  max_seq_length);
          const PretrainingDataConfig config{.max_seq_length = max_seq_length,
                                             .dupe_factor = 2,
                                             .short_seq_prob = short_seq_prob,
                                             .objective = objective};
          const Workload work{.tokens = static_cast<double>(documents.tokens()),
                              .sentences = static_cast<double>(text.documents * text.sentences),
                              .documents = static_cast<double>(text.documents),
                              .vocab_size = kWords + 5,
                              .examples = config};
          ExampleMaker maker(documents, which, vocabulary, config, 12345);
          maker.reserve(static_cast<size_t>(examples_of(work)));
          maker.make();
          // Few documents draw few target lengths, so the number of examples is not its mean: one of 30 documents may be cut
          // into hundreds of examples.
          const double drawn = short_seq_prob == 0 || text.documents >= 400 ? 1.01 : text.documents >= 300 ? 1.3 : 2;
          CHECK(static_cast<double>(maker.size()) <= drawn * examples_of(work));
          CHECK(static_cast<double>(maker.bytes()) <=
                drawn * static_cast<double>(memory_for_examples(work, memory_of(work))));
        }
      }
    }
  }
}

TEST_CASE("Examples on disk let more files be made at once, with the same bytes", "[unit][creation]") {
  Work work;
  std::ofstream file(work.options.input.front());
  PyRandom random(3);
  for (int document = 0; document < 200; ++document) {
    for (int i = 0; i < 100; ++i)
      file << fmt::format("w{} w{} w{}\n", i % kWords, document % kWords, random.randint(0, 49));
    file << "\n";
  }
  file.close();
  work.options.examples.dupe_factor = 80;  // more than one block of examples for each file
  work.options.num_shards = 4;
  work.options.chunk_bytes = 1 << 20;
  const DirectorySummary summary = work.create();
  const auto want = shards_in(work.options.output);
  fs::remove_all(work.options.output);
  const double of_file = 1.05 / 4;  // files differ by a document
  const Workload file_work{.tokens = of_file * static_cast<double>(summary.statistics.tokens),
                           .sentences = of_file * static_cast<double>(summary.statistics.sentences),
                           .documents = of_file * static_cast<double>(summary.statistics.documents),
                           .vocab_size = kWords + 5,
                           .examples = work.options.examples};
  const int64_t need = memory_of(file_work, ExamplesIn::kScratchFile);
  CHECK(memory_of(file_work) > need + (1 << 20));
  std::string said;
  work.options.say = [&](const std::string& line) { said += line; };
  work.options.num_threads = 4;
  work.options.memory_bytes = kProcessMemory + 4 * need;
  work.create();
  CHECK(said.empty());  // four files at once, with the examples on disk
  CHECK(shards_in(work.options.output) == want);
  fs::remove_all(work.options.output);
  work.options.memory_bytes -= need;
  work.create();
  CHECK_THAT(said, Contains("makes 3 files at a time") && Contains("--memory"));
  CHECK(shards_in(work.options.output) == want);
}

TEST_CASE("A file that takes more memory than others is made alone", "[unit][creation]") {
  Work work;
  std::ofstream file(work.options.input.front());
  for (int document = 0; document < 2; ++document) {
    for (int i = 0; i < 200'000; ++i) file << "w1 w2 w3 w4 w5 w6 w7 w8\n";
    file << "\n";
  }
  file.close();
  work.options.num_shards = 2;
  work.options.chunk_bytes = 1 << 20;
  work.options.num_threads = 2;
  PretrainingDataConfig& examples = work.options.examples;
  examples.max_seq_length = 512;
  examples.short_seq_prob = 1;
  examples.dupe_factor = 1;
  // A seed with a target length of a few tokens for the document of the first file: each sentence becomes an example.
  for (int64_t target = 512; target > 8;) {
    PyRandom random(seed_of_file(static_cast<uint64_t>(++examples.random_seed), false, 0));
    random.random();
    target = random.randint(2, examples.max_seq_length - 3);
  }
  const DirectorySummary summary = work.create();
  CHECK(summary.files.front().examples > 150'000);
  const auto want = shards_in(work.options.output);
  fs::remove_all(work.options.output);
  std::string said;
  work.options.say = [&](const std::string& line) { said += line; };
  work.options.memory_bytes = kProcessMemory + 30'000'000;  // of two files with the expected numbers of examples
  work.create();
  CHECK_THAT(said, Contains("is made alone"));
  CHECK(shards_in(work.options.output) == want);
}

}  // namespace
}  // namespace bert
