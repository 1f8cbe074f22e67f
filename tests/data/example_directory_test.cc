#include "data/creation/example_directory.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "data/creation/dataset.h"
#include "data/creation/dealer.h"
#include "data/creation/needs.h"
#include "data/creation/work_directory.h"
#include "data/examples/example_maker.h"
#include "data/formats/shard.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "tests/support/creation_testing.h"
#include "tests/testing.h"

namespace bert {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::contents;
using testing::shards_in;
using testing::status_of;
using testing::Work;

TEST_CASE("A directory has the examples that Google's algorithm makes of each shard's documents", "[unit][creation]") {
  Work work;
  work.options.chunk_bytes = 1 << 20;  // one chunk, so that the dealing is that of all documents at once
  const DirectorySummary summary = work.create();
  CHECK(summary.complete);
  CHECK(summary.statistics.documents == 300);

  const Corpus corpus = read_documents(work.options.input, work.tokenizer, {});
  std::vector<int64_t> sizes;
  DocumentReader reader(work.options.input, work.options.reader);
  for (std::string text; reader.next(text);) sizes.push_back(static_cast<int64_t>(text.size()));
  Dealer dealer({.seed = 12345, .shards = 3});
  const auto targets = dealer.deal(sizes);
  for (uint32_t shard = 0; shard < 3; ++shard) {
    std::vector<uint32_t> which;
    for (uint32_t i = 0; i < targets.size(); ++i) {
      if (targets[i] == shard) which.push_back(i);
    }
    ExampleMaker maker(corpus.documents, which, std::make_shared<const MaskingVocabulary>(work.tokenizer),
                       work.options.examples, seed_of_file(12345, false, shard));
    maker.make();
    const PretrainingShards file({fmt::format("{}/{:05}-of-00003.shard", work.options.output, shard)});
    REQUIRE(file.size() == static_cast<int64_t>(maker.size()));
    PretrainingExample want;
    for (size_t i = 0; i < maker.size(); ++i) {
      maker.get(i, want);
      REQUIRE(file.example(static_cast<int64_t>(i)) == want);
    }
    CHECK(summary.files[shard].examples == file.size());
    CHECK(summary.files[shard].documents == static_cast<int64_t>(which.size()));
  }
  CHECK(contents(work.options.output).size() == 4);  // three shards and dataset.json
}

TEST_CASE("Documents are dealt evenly, by a permutation that depends on the seed", "[unit][creation]") {
  PyRandom random(1);
  std::vector<int64_t> sizes(5000);
  for (int64_t& size : sizes) size = random.randint(1, 100) * random.randint(1, 100);
  const auto deal = [&](uint64_t seed, size_t chunk) {
    Dealer dealer({.seed = seed, .shards = 7, .validation_shards = 2, .validation_share = 0.1});
    std::vector<uint32_t> targets;
    for (size_t begin = 0; begin < sizes.size(); begin += chunk) {
      const auto part = dealer.deal(std::span(sizes).subspan(begin, std::min(chunk, sizes.size() - begin)));
      targets.insert(targets.end(), part.begin(), part.end());
    }
    const auto &bytes = dealer.text_bytes(), &documents = dealer.documents();
    const auto largest = *std::ranges::max_element(sizes);
    const auto [least, most] = std::minmax_element(bytes.begin(), bytes.begin() + 7);
    CHECK(*most - *least <= largest);
    CHECK(std::abs(bytes[7] - bytes[8]) <= largest);
    CHECK(std::accumulate(bytes.begin(), bytes.end(), int64_t{0}) ==
          std::accumulate(sizes.begin(), sizes.end(), int64_t{0}));
    CHECK(std::accumulate(documents.begin(), documents.end(), int64_t{0}) == 5000);
    return targets;
  };
  for (const size_t chunk : {size_t{5000}, size_t{300}}) {
    const auto targets = deal(1, chunk);
    CHECK(deal(1, chunk) == targets);
    CHECK(deal(2, chunk) != targets);
    int64_t together = 0;  // neighbours in one shard: a seventh of them, with a standard deviation of 25
    for (size_t i = 1; i < targets.size(); ++i) together += targets[i] == targets[i - 1];
    CHECK(together > 450);
    CHECK(together < 700);
  }
}

TEST_CASE("A directory does not depend on threads, memory or processes", "[unit][creation]") {
  Work work;
  work.options.validation_output = work.directory.path("held");
  work.options.validation_share = 0.2;
  work.create();
  const auto want = shards_in(work.options.output), want_held = shards_in(work.options.validation_output);
  CHECK(want.size() == 3);
  CHECK(want_held.size() == 1);
  const auto same = [&](const DirectoryOptions& how) {
    CHECK(shards_in(how.output) == want);
    CHECK(shards_in(how.validation_output) == want_held);
    CHECK_FALSE(fs::exists(how.output + "/.work"));
    fs::remove_all(how.output);
    fs::remove_all(how.validation_output);
  };
  DirectoryOptions how = work.options;
  how.output = work.directory.path("other/");
  how.validation_output = work.directory.path("other_held/");
  how.num_threads = 4;
  create_directory(how, work.tokenizer);
  same(how);

  // Four ranks, as bertrun starts them; then three processes without ranks.
  for (const int64_t world_size : {4, 1}) {
    CAPTURE(world_size);
    std::vector<pid_t> pids;
    for (int64_t rank = 0; rank < (world_size == 1 ? 3 : world_size); ++rank) {
      how.world_size = world_size;
      how.rank = world_size == 1 ? 0 : rank;
      how.num_threads = 1;
      pids.push_back(work.start(how));
    }
    for (const pid_t pid : pids) CHECK(status_of(pid) == 0);
    same(how);
  }
}

/// A directory on another file system than that of `path`, removed at the end of the scope; no name if there is none.
struct DirectoryElsewhere {
  std::string name;
  explicit DirectoryElsewhere(const std::string& path) {
    struct stat here {};
    REQUIRE(::stat(path.c_str(), &here) == 0);
    for (const char* parent : {"/dev/shm", "/var/tmp", "/tmp"}) {
      struct stat there {};
      std::string made = fmt::format("{}/bert-test-XXXXXX", parent);
      if (::stat(parent, &there) != 0 || there.st_dev == here.st_dev || mkdtemp(made.data()) == nullptr) continue;
      name = made;
      return;
    }
  }
  ~DirectoryElsewhere() {
    if (!name.empty()) fs::remove_all(name);
  }
  DirectoryElsewhere(const DirectoryElsewhere&) = delete;
  DirectoryElsewhere& operator=(const DirectoryElsewhere&) = delete;
};

TEST_CASE("Held-out examples may lie on another file system", "[unit][creation]") {
  Work work;
  const DirectoryElsewhere elsewhere(work.directory.path());
  if (elsewhere.name.empty()) BERT_SKIP("there is one file system alone: /dev/shm, /var/tmp and /tmp are on it");
  work.options.validation_output = work.directory.path("held");
  work.create();
  const auto want = shards_in(work.options.output), want_held = shards_in(work.options.validation_output);
  DirectoryOptions how = work.options;
  how.output = work.directory.path("again");
  how.validation_output = elsewhere.name + "/held";
  // It is killed before the held-out examples, which are the last target, get their name.
  REQUIRE(WIFSIGNALED(status_of(work.start(how, static_cast<int>(CreationStep::kExamplesMade), 4))));
  CHECK(create_directory(how, work.tokenizer).complete);
  CHECK(shards_in(how.output) == want);
  CHECK(shards_in(how.validation_output) == want_held);
}

TEST_CASE("A killed creation goes on, and keeps the files that were finished", "[unit][creation]") {
  Work work;
  work.options.validation_output = work.directory.path("held");
  work.create();
  const auto want = contents(work.options.output), want_held = contents(work.options.validation_output);
  const auto inodes = [&] {
    std::map<std::string, ino_t> result;
    for (const auto& entry : fs::directory_iterator(work.options.output)) {
      struct stat status {};
      if (entry.path().extension() == ".shard" && ::stat(entry.path().c_str(), &status) == 0)
        result[entry.path()] = status.st_ino;
    }
    return result;
  };
  using Kill = std::pair<CreationStep, int>;
  for (const auto& [step, count] :
       {Kill{CreationStep::kChunk, 1}, Kill{CreationStep::kChunk, 5}, Kill{CreationStep::kTextRead, 1},
        Kill{CreationStep::kExamplesMade, 2}, Kill{CreationStep::kFileNamed, 1}, Kill{CreationStep::kFileNamed, 3},
        Kill{CreationStep::kAllNamed, 1}}) {
    CAPTURE(static_cast<int>(step), count);
    fs::remove_all(work.options.output);
    fs::remove_all(work.options.validation_output);
    const int status = status_of(work.start(work.options, static_cast<int>(step), count));
    REQUIRE(WIFSIGNALED(status));
    CHECK_FALSE(fs::exists(work.options.output + "/dataset.json"));
    const auto before = inodes();
    CHECK(before.size() == (step == CreationStep::kFileNamed      ? static_cast<size_t>(count)
                            : step == CreationStep::kAllNamed     ? 3
                            : step == CreationStep::kExamplesMade ? 1
                                                                  : 0));
    int chunks = 0;
    work.options.reached = [&](CreationStep reached) { chunks += reached == CreationStep::kChunk; };
    CHECK(work.create().complete);
    work.options.reached = {};
    if (step != CreationStep::kChunk) CHECK(chunks == 0);  // the text is not tokenized again
    const auto after = inodes();
    for (const auto& [path, inode] : before) CHECK(after.at(path) == inode);
    CHECK(contents(work.options.output) == want);
    CHECK(contents(work.options.validation_output) == want_held);
  }
}

TEST_CASE("A damaged temporary file is found", "[unit][creation]") {
  Work work;
  REQUIRE(WIFSIGNALED(status_of(work.start(work.options, static_cast<int>(CreationStep::kTextRead)))));
  const std::string chunk = work.options.output + "/.work/chunk-00002";
  std::string bytes = read_file(chunk);
  bytes[bytes.size() - 3] = static_cast<char>(bytes[bytes.size() - 3] ^ 1);
  std::ofstream(chunk, std::ios::binary) << bytes;
  CHECK_THROWS_WITH(work.create(), Contains(chunk) && Contains("checksum") && Contains("run the command again"));
  fs::remove(chunk);
  CHECK(work.create().complete);
}

TEST_CASE("A finished directory is recognised, and other settings are refused by name", "[unit][creation]") {
  Work work;
  work.create();
  const auto want = contents(work.options.output);
  work.options.num_shards = 0;  // the number that was planned
  const DirectorySummary again = work.create();
  CHECK(again.nothing_to_do);
  CHECK(again.files.size() == 3);
  CHECK(again.statistics.documents == 300);

  const auto refused = [&](const std::string& what) {
    CHECK_THROWS_WITH(work.create(), Contains(what) && Contains("--overwrite"));
    CHECK(contents(work.options.output) == want);
  };
  work.options.num_shards = 4;
  refused("num-shards is 3 there and 4 here");
  work.options.num_shards = 3;
  work.options.examples.dupe_factor = 1;
  refused("dupe-factor is 2 there and 1 here");
  work.options.overwrite = true;
  CHECK(work.create().complete);
  CHECK(contents(work.options.output) != want);
  work.options.examples.dupe_factor = 2;
  CHECK(work.create().complete);
  CHECK(contents(work.options.output) == want);
  work.options.overwrite = false;

  fs::remove(work.options.output + "/00001-of-00003.shard");
  CHECK_THROWS_WITH(work.create(), Contains("00001-of-00003.shard: is absent"));
  std::ofstream(work.options.input.front(), std::ios::app) << "w1 w2\n";
  CHECK_THROWS_WITH(work.create(), Contains("input-1 is " + work.options.input.front()));

  // The same for work that was begun.
  work.options.output = work.directory.path("begun");
  REQUIRE(WIFSIGNALED(status_of(work.start(work.options, static_cast<int>(CreationStep::kTextRead)))));
  work.options.examples.objective = Objective::kMlm;
  CHECK_THROWS_WITH(work.create(), Contains("was begun with other settings: objective is nsp there and mlm here"));
  // Files of another making are not mixed with new ones.
  work.options.output = work.directory.path("foreign");
  fs::create_directory(work.options.output);
  std::ofstream(work.options.output + "/mine.shard") << "x";
  work.options.overwrite = true;
  CHECK_THROWS_WITH(work.create(), Contains("mine.shard"));
}

TEST_CASE("Too few documents, and shards that are too large, are errors that name the option", "[unit][creation]") {
  Work work;
  work.options.num_shards = 301;
  CHECK_THROWS_WITH(work.create(), Contains("300 documents") && Contains("--num-shards"));
  work.options.output = work.directory.path("large");
  work.options.num_shards = 2;
  work.options.memory_bytes = 1000;
  CHECK_THROWS_AS(work.create(), TooMuchMemory);
  CHECK_THROWS_WITH(work.create(), Contains("--memory 109") && Contains("--num-shards, more than 2"));
  work.options.output = work.directory.path("empty");
  work.options.memory_bytes = DirectoryOptions().memory_bytes;
  std::ofstream(work.options.input.front()) << "\n\n";
  CHECK_THROWS_AS(work.create(), DataError);
}

TEST_CASE("A removal that was killed is finished by the next process", "[unit][creation]") {
  Work work;
  work.options.validation_output = work.directory.path("held");
  work.create();
  DirectoryOptions other = work.options;
  other.examples.dupe_factor = 3;
  other.overwrite = true;
  create_directory(other, work.tokenizer);
  const auto want = contents(work.options.output), want_held = contents(work.options.validation_output);
  for (const bool overwrite : {false, true}) {
    for (const int64_t shards : {3, 0}) {
      for (int removed = 1; removed <= 6; ++removed) {  // two manifests, three shards, one held-out shard
        CAPTURE(overwrite, shards, removed);
        work.options.overwrite = true;
        work.create();
        work.options.overwrite = false;
        REQUIRE(WIFSIGNALED(status_of(work.start(other, static_cast<int>(CreationStep::kRemoved), removed))));
        DirectoryOptions again = other;
        again.overwrite = overwrite;
        again.num_shards = shards;
        const DirectorySummary summary = create_directory(again, work.tokenizer);
        CHECK(summary.complete);
        if (shards == 0) continue;  // 64 MB a shard, in place of those that were being removed
        CHECK(contents(work.options.output) == want);
        CHECK(contents(work.options.validation_output) == want_held);
      }
    }
  }
}

TEST_CASE("A work directory that was left behind is removed", "[unit][creation]") {
  Work work;
  work.create();
  const auto want = contents(work.options.output);
  fs::create_directory(work.options.output + "/.work");  // its process ended between dataset.json and the removal
  CHECK(work.create().nothing_to_do);
  CHECK(contents(work.options.output) == want);
}

TEST_CASE("A malformed dataset.json is an error with file and member", "[unit][creation]") {
  Work work;
  work.create();
  const std::string path = work.options.output + "/dataset.json";
  const auto whole = nlohmann::ordered_json::parse(read_file(path));
  const auto refused = [&](const std::string& pointer, const nlohmann::ordered_json& value) {
    auto json = whole;
    const nlohmann::ordered_json::json_pointer place(pointer);
    if (value.is_discarded()) {
      json[place.parent_pointer()].erase(place.back());
    } else {
      json[place] = value;
    }
    std::ofstream(path) << json;
    CAPTURE(pointer);
    CHECK_THROWS_AS(work.create(), DataError);
    CHECK_THROWS_WITH(work.create(), Contains(path + ": " + pointer + ": expected ") && Contains("--overwrite"));
  };
  const nlohmann::ordered_json absent(nlohmann::ordered_json::value_t::discarded);
  refused("/parameters", "text");
  refused("/parameters", absent);
  refused("/parameters/dupe_factor", 2);
  refused("/text", nlohmann::ordered_json::array());
  refused("/text/tokens", "many");
  refused("/read/documents", 1.5);
  refused("/read/bad_lines", absent);
  refused("/files", 7);
  refused("/files/1", "a name");
  refused("/files/2/examples", nullptr);
  refused("/files/0/checksum", absent);
  refused("/files/0/name", 1);
  std::ofstream(path) << "{";
  CHECK_THROWS_WITH(work.create(), Contains(path + ": is no JSON object"));
  // The number of shards that was planned.
  work.options.num_shards = 0;
  for (const char* bad : {"three", "", "99999999999999999999"}) {
    auto json = whole;
    json["parameters"]["num_shards"] = bad;
    std::ofstream(path) << json;
    CHECK_THROWS_AS(work.create(), DataError);
    CHECK_THROWS_WITH(work.create(), Contains("num_shards"));
  }
  work.options.overwrite = true;
  CHECK(work.create().complete);
}

TEST_CASE("Names of files may have line breaks and bytes that are no UTF-8", "[unit][creation]") {
  Work work;
  const std::string strange = work.directory.path("a\nb=c\\n\xff.txt");
  fs::rename(work.options.input.front(), strange);
  work.options.input = {strange};
  REQUIRE(WIFSIGNALED(status_of(work.start(work.options, static_cast<int>(CreationStep::kTextRead)))));
  CHECK(work.create().complete);
  CHECK(work.create().nothing_to_do);
  const Parameters strings = {{"a", "b\nc"}, {"d", "\\n\\"}, {"e", ""}, {"f", "=\n"}};
  CHECK(from_lines(to_lines(strings)) == strings);
}

TEST_CASE("Processes that wait in vain say that others made no progress", "[unit][creation]") {
  Work work;
  work.options.world_size = 2;
  work.options.patience = std::chrono::seconds(0);
  CHECK_THROWS_AS(work.create(), NoProgress);
  CHECK_THROWS_WITH(work.create(), Contains("no progress") && Contains("Run the command again"));
  work.options.patience = std::chrono::minutes(30);
  const pid_t other = work.start([&] {
    DirectoryOptions second = work.options;
    second.rank = 1;
    return second;
  }());
  CHECK(work.create().statistics.documents == 300);
  CHECK(status_of(other) == 0);
}

TEST_CASE("The number of shards follows from the size of the text", "[unit][creation]") {
  Work work;
  work.options.num_shards = 0;
  CHECK(work.create().files.size() == 1);  // as many as keep 64 MB
  const auto json = nlohmann::json::parse(read_file(work.options.output + "/dataset.json"));
  CHECK(json["parameters"]["num_shards"] == "1");
  CHECK(json["files"][0]["name"] == "00000-of-00001.shard");
  CHECK(json["files"][0]["text_bytes"].get<int64_t>() > 10'000);
  CHECK(json["files"][0]["checksum"] == [&] {
    const std::string bytes = read_file(work.options.output + "/00000-of-00001.shard");
    return checksum(bytes.data(), bytes.size());
  }());
}

}  // namespace
}  // namespace bert
