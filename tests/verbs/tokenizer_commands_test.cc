#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/system/crypto.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "app/verbs/verbs.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "tests/support/command_testing.h"
#include "tests/testing.h"

using bert::testing::Contains;
using bert::testing::Redirection;
using bert::testing::shared_data;
using bert::testing::TemporaryDirectory;

namespace bert {
namespace {

/// Standard output of `bert tokenize ARGUMENTS` for the standard input `input`.
std::string tokenize(std::vector<std::string> arguments, std::string_view input) {
  const TemporaryDirectory directory;
  write_file(directory.path("in"), input);
  arguments.insert(arguments.begin(), "tokenize");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  {
    const Redirection in(STDIN_FILENO, directory.path("in"), O_RDONLY);
    const Redirection out(STDOUT_FILENO, directory.path("out"), O_WRONLY | O_CREAT);
    const Redirection err(STDERR_FILENO, directory.path("err"), O_WRONLY | O_CREAT);
    if (tokenize_command(static_cast<int>(argv.size()), argv.data()) != 0)
      throw std::runtime_error("tokenize_command failed");
  }
  return read_file(directory.path("out")) + read_file(directory.path("err"));
}

int vocab(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "vocab");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  return vocab_command(static_cast<int>(argv.size()), argv.data());
}

}  // namespace

TEST_CASE("bert tokenize writes one line per line in every format", "[unit]") {
  const TemporaryDirectory directory;
  const std::string path = directory.path("vocab.txt");
  write_file(path, "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nhello\n##s\n,\n");
  const std::string input = "H\u00E9llos, [MASK]\n\nhello";
  CHECK(tokenize({"--vocab", path}, input) == "5 6 7 1 1 1\n\n5\n");
  CHECK(tokenize({"--vocab", path, "--format", "tokens", "--match-special-tokens"}, input) ==
        "hello ##s , [MASK]\n\nhello\n");
  CHECK(tokenize({"--vocab", path, "--special-tokens"}, input) == "2 5 6 7 1 1 1 3\n2 3\n2 5 3\n");
  CHECK(tokenize({"--vocab", path, "--format", "offsets"}, "H\u00E9llos,\n\n") ==
        "[[\"hello\",0,5],[\"##s\",5,6],[\",\",6,7]]\n[]\n");
  const std::string cased = tokenize({"--vocab", path, "--cased"}, "Hello hello\n");
  CHECK(cased.starts_with("1 5\nbert tokenize: warning: "));
  CHECK_THAT(cased, Contains("no token has a capital letter"));
  CHECK(tokenize({"--vocab", path, "--strip-accents=false"}, "H\u00E9llos Hellos\n") == "1 5 6\n");
  const std::string stripped = tokenize({"--vocab", path, "--cased", "--strip-accents"}, "h\u00E9llos h\u00E9llo\n");
  CHECK(stripped.starts_with("5 6 5\n"));
  CHECK(tokenize({"--vocab", path}, "hello\u4E2D\n") == "5 1\n");
  CHECK(tokenize({"--vocab", path, "--tokenize-chinese-chars=false"}, "hello\u4E2D\n") == "1\n");
  CHECK(tokenize({"--vocab", path}, "hel\xFFlos\n\xC0\xAF") ==
        "5 6\n\nbert tokenize: dropped 3 invalid UTF-8 sequences\n");
  CHECK(tokenize({"--vocab", path}, "").empty());
  CHECK_THROWS_AS(tokenize({"--vocab", directory.path("absent")}, ""), InputMissing);
  CHECK_THROWS_AS(tokenize({"--vocab", path, "--format", "xml"}, ""), UsageError);
  CHECK_THAT(tokenize({"--help"}, ""), Contains("Example: "));
}

TEST_CASE("bert tokenize reads lines of any length", "[unit]") {
  const TemporaryDirectory directory;
  const std::string path = directory.path("vocab.txt");
  write_file(path, "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n");
  std::string input, want;
  for (const size_t words : {1U, 3'000'000U, 2U, 700'000U, 0U}) {
    for (size_t i = 0; i < words; ++i) input += "a ", want += i == 0 ? "5" : " 5";
    input += '\n', want += '\n';
  }
  CHECK((tokenize({"--vocab", path}, input) == want));
}

TEST_CASE("bert tokenize gives Google's ids on novels and hostile text", "[golden]") {
  if (shared_data().empty()) BERT_SKIP("needs ../shared/data/text and tokenizer");
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(shared_data() + "/text/novels"))
    files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::string text =
      read_file(shared_data() + "/tokenizer/blns.txt") + read_file(shared_data() + "/tokenizer/NormalizationTest.txt");
  for (const std::string& file : files) text += read_file(file);
  // sha256sum of the output of tests/golden/tokenizer.py with Python 3.11 (Unicode 14.0) for the same files, one after
  // another. The docstring of that script has the two commands.
  const std::string vocab = shared_data() + "/vocab/bert-base-", uncased = vocab + "uncased-vocab.txt";
  const std::string want = "6f6d7a2e7fe9b40f727f2b97bb843b36614872ba03bb096ea42ade2112371ea1";
  CHECK(sha256(tokenize({"--vocab", uncased}, text)) == want);
  CHECK(sha256(tokenize({"--vocab", vocab + "cased-vocab.txt", "--cased"}, text)) ==
        "50f1c675476666a0761183d22f77addd8778c202fc6415910a1b228ff6cd4e29");
  CHECK(sha256(tokenize({"--vocab", uncased, "--cased"}, text)) != want);  // the negative twin: case is kept
}

TEST_CASE("bert vocab writes a vocabulary that bert tokenize reads, or nothing", "[unit]") {
  const TemporaryDirectory directory;
  write_file(directory.path("a.txt"), "low lower lowest new newer newest\n");
  write_file(directory.path("b.txt"), "wide wider widest\n");
  const auto run = [&](const std::string& size) {
    return vocab({"--input", directory.path("a.txt"), directory.path("b.txt"), "--size", size, "--output",
                  directory.path("vocab.txt")});
  };
  CHECK_THROWS_AS(run("1000"), DataError);
  CHECK_FALSE(std::filesystem::exists(directory.path("vocab.txt")));
  CHECK(run("40") == 0);
  const std::string text = read_file(directory.path("vocab.txt"));
  CHECK(std::count(text.begin(), text.end(), '\n') == 40);
  CHECK_THAT(tokenize({"--vocab", directory.path("vocab.txt"), "--format", "tokens"}, "low\n"), Contains("low\n"));
  CHECK_THROWS_AS(vocab({"--input", directory.path("absent"), "--size", "9", "--output", "x"}), InputMissing);
  CHECK_THROWS_AS(vocab({"--size", "9"}), UsageError);
}

TEST_CASE("bert vocab says what it reads, learns and writes", "[unit]") {
  const TemporaryDirectory directory;
  write_file(directory.path("a.txt"), "low lower low\xFF\n");
  const testing::CommandResult result =
      testing::run_command(vocab_command, {"vocab", "--input", directory.path("a.txt"), "--size", "30", "--allow-fewer",
                                           "--output", directory.path("vocab.txt")});
  CHECK(result.code == kOk);
  CHECK(result.out.empty());
  CHECK_THAT(result.err, Contains("reading 0.0 MB") && Contains("dropped 1 invalid UTF-8") &&
                             Contains("from 2 different words") && Contains("wrote " + directory.path("vocab.txt")));
}

TEST_CASE("bert vocab leaves out characters where it may, and words that are too long, and says so", "[unit]") {
  const TemporaryDirectory directory;
  write_file(directory.path("a.txt"), "\u4E00\u4E00\u4E00 \u4E01\u4E01 \u4E02 " + std::string(201, 'a') + "\n");
  const std::vector<std::string> arguments = {"vocab", "--input",  directory.path("a.txt"),    "--size",
                                              "7",     "--output", directory.path("vocab.txt")};
  CHECK_THAT(testing::run_command(vocab_command, arguments).err,
             Contains("or for a character coverage of at most 0.8333."));
  std::vector<std::string> fewer = arguments;
  fewer.emplace_back("--allow-fewer-characters");
  const testing::CommandResult result = testing::run_command(vocab_command, fewer);
  CHECK(result.code == kOk);
  CHECK_THAT(result.err,
             Contains("left out the 1 rarest of 3 characters, 17 % of the text: words with them become [UNK]") &&
                 Contains("left out 1 words of more than 200 characters"));
  CHECK(read_file(directory.path("vocab.txt")) == "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n\u4E00\n\u4E01\n");
}

TEST_CASE("bert vocab --extend adds the words of a text to a vocabulary, and --replace compares a new one",
          "[unit][vocabulary]") {
  const TemporaryDirectory directory;
  const std::string old = directory.path("old.txt"), text = directory.path("text"), output = directory.path("new.txt");
  std::string lines = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n[unused0]\nthe\n";
  for (const char letter : std::string("abcdefghiklmnoprstuvx"))
    lines += std::string(1, letter) + "\n##" + letter + "\n";
  write_file(old, lines);
  write_file(text, "The virus, the corona-virus. Coronavirus: CORONA!\nvirus virus \u03B1\u03B1\n");
  const auto run = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"vocab", "--input", text, "--output", output});
    return testing::run_command(vocab_command, more);
  };
  // Of 15 words 5 are punctuation and one is Greek, all [UNK]. virus saves 4 tokens 4 times, corona 5 tokens 3 times. A
  // third piece would shorten a word that is there once.
  testing::CommandResult result = run({"--extend", old, "--add", "3"});
  CHECK(result.code == kBadData);
  CHECK_THAT(result.err, Contains("no more than 2 tokens save others, not 3"));
  CHECK_FALSE(std::filesystem::exists(output));
  result = run({"--extend", old, "--add", "3", "--use-unused", "--reserve", "1", "--allow-fewer"});
  INFO(result.err);
  REQUIRE(result.code == kOk);
  std::string want = lines;
  CHECK(read_file(output) == want.replace(want.find("[unused0]"), 9, "virus") + "corona\n[unused1]\n");
  nlohmann::json line = nlohmann::json::parse(result.out);
  CHECK(line["words"] == 15);
  CHECK(line["tokens_before"] == 2 + 4 * 5 + 2 * 6 + 11 + 5 + 1);
  CHECK(line["tokens"] == 2 + 4 + 2 + 6 + 5 + 1);
  CHECK(line["saved"].get<double>() == testing::Approx(31.0 / 51.0));
  CHECK(line["unknown_before"].get<double>() == testing::Approx(6.0 / 15.0));
  CHECK(line["unknown"] == line["unknown_before"]);
  CHECK(line["rows"] == nlohmann::json{{"kept", 48}, {"moved", 0}, {"new", 3}, {"dropped", 1}});
  CHECK_THAT(result.err, Contains("15 words: 51 tokens before, 20 now, 60.8 % saved; unknown words 40.000 % before"));

  result = run({"--extend", old, "--add", "9", "--min-frequency", "1"});
  REQUIRE(result.code == kOk);  // also coronavirus, five marks and the Greek word
  CHECK(nlohmann::json::parse(result.out)["unknown"] == 0);
  CHECK(nlohmann::json::parse(result.out)["tokens"] == 15);

  result = run({"--replace", old, "--reserve", "2", "--allow-fewer"});
  REQUIRE(result.code == kOk);
  line = nlohmann::json::parse(result.out);
  CHECK(read_file(output).ends_with("[unused0]\n[unused1]\n"));
  CHECK(line["unknown"] == 0);
  CHECK(line["rows"]["kept"].get<int>() + line["rows"]["moved"].get<int>() + line["rows"]["dropped"].get<int>() == 49);
  CHECK(run({"--size", "40", "--reserve", "3", "--allow-fewer"}).code == kOk);
  CHECK(run({"--replace", old, "--extend", old, "--add", "1"}).code == kUsage);
  CHECK(run({"--extend", old}).code == kUsage);
  CHECK(run({"--extend", old, "--add", "1", "--size", "9"}).code == kUsage);
  CHECK(run({"--add", "1", "--size", "9"}).code == kUsage);
  CHECK(run({}).code == kUsage);
  result =
      testing::run_command(vocab_command, {"vocab", "--input", text, "--output", old, "--extend", old, "--add", "1"});
  CHECK(result.code == kUsage);
}

}  // namespace bert
