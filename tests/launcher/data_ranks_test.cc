// `bert data create` under bertrun: the files are those of one process.
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "app/system/exit_codes.h"
#include "tests/places.h"
#include "tests/support/creation_testing.h"
// Last, because it includes Catch2.
#include "tests/support/launcher_testing.h"

using namespace bert;
using namespace bert::testing;

TEST_CASE("two ranks of bertrun make the directory of one process", "[unit][creation]") {
  if (!std::filesystem::exists(BERT_EXECUTABLE)) BERT_SKIP("bert is not built: it needs LibTorch");
  const TemporaryDirectory directory;
  const std::string text = directory.path("text"), vocab = directory.path("vocab.txt");
  std::ofstream(text) << some_text();
  std::ofstream words(vocab);
  const WordPieceTokenizer tokenizer = word_tokenizer();
  for (int32_t id = 0; id < tokenizer.vocabulary().size(); ++id) words << tokenizer.vocabulary().token(id) << "\n";
  words.close();
  // Both are made under the same names, because dataset.json has these.
  const std::string output = directory.path("out"), held = directory.path("held");
  const auto create = [&](std::vector<std::string> arguments, const std::string& executable) {
    for (const std::string& made : {output, held}) std::filesystem::remove_all(made);
    arguments.insert(arguments.end(),
                     {"data", "create", "--input", text, "--vocab", vocab, "--num-shards", "5", "--output",
                      output + "/", "--validation-output", held, "--max-seq-length", "32", "--dupe-factor", "2"});
    Launcher run(
        arguments, [] {}, executable);
    const int code = run.wait();
    CAPTURE(run.err());
    REQUIRE(code == kOk);
    return std::pair(contents(output), contents(held));
  };
  const auto [one, one_held] = create({}, BERT_EXECUTABLE);
  REQUIRE(one.size() == 6);  // five shards and dataset.json
  REQUIRE(one_held.size() == 2);
  const auto [two, two_held] = create({"--standalone", "--nproc-per-node", "2", BERT_EXECUTABLE}, BERTRUN_EXECUTABLE);
  CHECK(two == one);
  CHECK(two_held == one_held);
}
