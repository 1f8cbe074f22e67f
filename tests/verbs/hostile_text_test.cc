// Text that is meant to break programs, through every verb that reads text.
#include <filesystem>
#include <fstream>
#include <functional>

#include "app/system/exit_codes.h"
#include "app/verbs/verbs.h"
#include "data/formats/shard.h"
#include "tests/support/command_testing.h"
#include "tests/testing.h"

namespace bert {
namespace {

using testing::CommandResult;
using testing::Contains;
using testing::run_command;
using testing::run_command_from;
using testing::shared_data;
using testing::TemporaryDirectory;

std::string repeated(const std::string& part, size_t times) {
  std::string text;
  text.reserve(part.size() * times);
  for (size_t i = 0; i < times; ++i) text += part;
  return text;
}

struct Files {
  TemporaryDirectory directory;
  std::string vocab = directory.path("vocab.txt"), text = directory.path("text.txt"), output = directory.path("output");
  Files() {
    std::ofstream out(vocab);
    for (const char* token : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##a", "##b", ".", "the"})
      out << token << '\n';
  }
  CommandResult tokenize() const { return run_command_from(text, tokenize_command, {"tokenize", "--vocab", vocab}); }
  CommandResult split() const { return run_command_from(text, data_command, {"data", "split"}); }
  CommandResult learn() const {
    return run_command(vocab_command, {"vocab", "--input", text, "--size", "60", "--allow-fewer",
                                       "--allow-fewer-characters", "--output", output});
  }
  CommandResult create(const std::string& more) const {
    return run_command(data_command, {"data", "create", "--input", text, "--vocab", vocab, "--output", output,
                                      "--dupe-factor", "1", more});
  }
  CommandResult extract() const {
    const std::string into = directory.path("extracted");
    std::filesystem::remove_all(into);
    return run_command(data_command, {"data", "extract", "text", text, "--output", into, "--min-characters", "0",
                                      "--near-duplicates"});
  }
  /// Every verb reads `content` and succeeds, or refuses it with a sentence that names the input.
  void read(const std::string& content, bool must_succeed) const {
    std::ofstream(text, std::ios::binary) << content;
    const auto check = [&](const char* verb, const CommandResult& result) {
      INFO(verb << ": " << result.err.substr(0, 1000));
      if (must_succeed || result.code == kOk) {
        CHECK(result.code == kOk);
      } else {
        CHECK(result.code == kBadData);
        CHECK_THAT(result.err, Contains(text) || Contains("standard input"));
      }
    };
    check("tokenize", tokenize());
    check("data split", split());
    check("vocab", learn());
    check("data extract text", extract());
    for (const char* more : {"--cased", "--split-sentences"}) {
      const CommandResult made = create(more);
      check("data create", made);
      if (made.code == kOk) PretrainingShards({output}).shards().front()->verify();
    }
  }
};

TEST_CASE("Every verb reads the texts that break programs", "[unit][hostile]") {
  if (shared_data().empty()) BERT_SKIP("UTF-8-test.txt and blns.txt are in ../shared/data/tokenizer, which is absent");
  const Files files;
  files.read(read_file(shared_data() + "/tokenizer/blns.txt"), true);
  files.read(read_file(shared_data() + "/tokenizer/UTF-8-test.txt"), false);  // 2 % of it is invalid on purpose
}

TEST_CASE("Every verb reads a million combining marks", "[unit][hostile]") {
  const Files files;
  files.read("a" + repeated("\xcc\x81", 1000000) + " b.\n\na b.\n", true);
}

void read_long_lines(size_t bytes) {
  const Files files;
  for (const char* part : {"a", "a b. ", "The a. ", "\"", "\xe3\x80\x82"}) {
    CAPTURE(part);
    files.read(repeated(part, bytes / std::string(part).size()) + "\n\na b.\n", true);
  }
}

TEST_CASE("Every verb reads lines of 2 MB", "[unit][hostile]") { read_long_lines(size_t{2} << 20); }

TEST_CASE("Every verb reads lines of 100 MB", "[hostile][slow]") { read_long_lines(100000000); }

TEST_CASE("Every verb refuses zeros without an end", "[unit][hostile]") {
  Files files;
  files.text = "/dev/zero";
  for (const auto& result : {files.tokenize(), files.split(), files.learn(), files.extract(), files.create("--cased"),
                             files.create("--split-sentences")}) {
    INFO(result.err);
    CHECK((result.code == kBadData || result.code == kIo));
    CHECK_THAT(result.err, Contains("/dev/zero") || Contains("standard input: is not text: 65536 of its first 65536"));
  }
}

}  // namespace
}  // namespace bert
