// bert data extract text, and corpora of other kinds for bert vocab.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/verbs/verbs.h"
#include "tests/support/command_testing.h"
#include "tests/support/corpus_testing.h"
#include "tests/support/text_file.h"
#include "tests/testing.h"

namespace bert {
namespace {

using testing::CommandResult;
using testing::Contains;
using testing::run_command;
using testing::run_shell;
using testing::TemporaryDirectory;
using testing::write_text;

CommandResult extract(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"data", "extract", "text"});
  return run_command(data_command, arguments);
}

TEST_CASE("A directory of mixed files becomes text without duplicates, with counts", "[unit][corpus]") {
  const TemporaryDirectory directory;
  const std::string in = directory.path("in"), out = directory.path("out");
  std::filesystem::create_directories(in);
  write_text(in + "/a.txt",
             "The first document has\nlines that are wrapped.\n\nThe second document is this.\n\nTiny.\n");
  write_text(in + "/b.jsonl", "{\"body\": {\"en\": \"The third comes from JSON.\\nIt has two lines.\"}}\nnot JSON\n");
  write_text(in + "/c", "The  second document\nis this.\n\nThe caf\xC3\xA9 \xFF is the fourth one.\n");
  write_text(in + "/.d", "hidden");
  static_cast<void>(run_shell("gzip " + in + "/c"));
  const std::vector<std::string> command = {in, "--output", out, "--text-field", "body.en"};
  const CommandResult refused = extract(command);
  CHECK(refused.code == kBadData);
  CHECK_THAT(refused.err, Contains(in + "/b.jsonl: line 2: no JSON object"));
  std::vector<std::string> skipping = command;
  skipping.emplace_back("--skip-bad-lines");
  const CommandResult result = extract(skipping);  // starts over
  INFO(result.err);
  REQUIRE(result.code == kOk);
  CHECK(read_file(out + "/00000.txt") ==
        "The first document has lines that are wrapped.\n\nThe second document is this.\n\nThe third comes from JSON. "
        "It has two lines.\n\nThe caf\u00e9 is the fourth one.\n\n");
  for (const char* line : {"dropped 1 near-empty documents, 1 duplicates and 0 near-duplicates",
                           "dropped 1 invalid UTF-8 sequences", "skipped 1 bad lines", "skipped 1 hidden or special"})
    CHECK_THAT(result.err, Contains(line));
  const auto summary = nlohmann::json::parse(result.out);
  CHECK(summary["documents"] == 4);
  CHECK(summary["read"]["documents"] == 6);
  CHECK(summary["read"]["bad_lines"] == 1);
  const auto stored = nlohmann::json::parse(read_file(out + "/.extract.json"));
  CHECK(stored["duplicates"] == 1);
  CHECK(extract(skipping).code == kIo);
}

TEST_CASE("bert data extract text goes on after an end in the middle, and not with another input", "[unit][corpus]") {
  const TemporaryDirectory directory;
  const std::string in = directory.path("in.jsonl"), out = directory.path("out");
  std::string json;
  for (int i = 0; json.size() < 3'000'000; ++i)
    json += "{\"text\": \"Document " + std::to_string(i - i % 10 / 9) + std::string(200, 'x') + "\"}\n";
  write_text(in, json + "bad\n{\"text\": \"The document at the end of the corpus.\"}\n");
  const std::vector<std::string> command = {in, "--output", out, "--file-size", "1", "--skip-bad-lines"};
  REQUIRE(extract(command).code == kOk);
  const std::string whole = directory.path("whole");
  std::filesystem::rename(out, whole);
  REQUIRE(extract({in, "--output", out, "--file-size", "1"}).code == kBadData);  // ends at the bad line
  const auto first = std::filesystem::last_write_time(out + "/00000.txt");
  const CommandResult other = extract({in, "--output", out, "--file-size", "1", "--min-words", "3"});
  CHECK(other.code == kBadData);
  CHECK_THAT(other.err, Contains("--min-words is 0 there and 3 here"));
  REQUIRE(extract(command).code == kOk);
  CHECK(std::filesystem::last_write_time(out + "/00000.txt") == first);
  for (const char* name : {"00000.txt", "00001.txt", "00002.txt", ".extract.json"})
    CHECK(read_file(out + "/" + name) == read_file(whole + "/" + name));
  std::filesystem::remove_all(out);
  REQUIRE(extract({in, "--output", out, "--file-size", "1"}).code == kBadData);
  write_text(in, json);
  CHECK_THAT(extract(command).err, Contains("other settings: input is 1 files, "));
}

TEST_CASE("The output of an extraction lies outside of its input", "[unit][corpus]") {
  const TemporaryDirectory directory;
  const std::string in = directory.path("in");
  std::filesystem::create_directories(in);
  write_text(in + "/a.txt", "A document with enough characters.\n");
  std::filesystem::create_directory_symlink(in, directory.path("link"));
  for (const std::string& output : {in, in + "/out", in + "/../in/new/out", directory.path("link/out")}) {
    const CommandResult result = extract({in, "--output", output});
    CHECK(result.code == kUsage);
    CHECK_THAT(result.err, Contains("--output " + output + ": lies in the directory " + in));
  }
  CHECK(extract({in, "--output", directory.path("in2")}).code == kOk);
}

TEST_CASE("Extraction is done only if it was", "[unit][corpus]") {
  const TemporaryDirectory directory;
  const std::string lines = write_text(directory.path("lines"), "The only document on a line.\n");
  const CommandResult dropped = extract({lines, "--min-words", "99", "--output", directory.path("a")});
  CHECK(dropped.code == kBadData);
  CHECK_THAT(dropped.err, !Contains("done"));
  CHECK_THAT(extract({lines, "--output", directory.path("b")}).err,
             Contains("extracting: done, ") && Contains(" MB/s\n"));
}

TEST_CASE("Extraction shows its rate on a terminal", "[unit][corpus]") {
  const TemporaryDirectory directory;
  const std::string lines = write_text(directory.path("lines"), "The only document on a line.\n"),
                    out = directory.path("out");
  const std::string terminal = testing::on_terminal([&] {
    const testing::Redirection summary(STDOUT_FILENO, directory.path("summary"), O_WRONLY | O_CREAT);
    std::vector<std::string> arguments = {"data", "extract", "text", lines, "--output", out};
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    CHECK(data_command(static_cast<int>(argv.size()), argv.data()) == kOk);
  });
  CHECK_THAT(terminal, Contains("\rextracting: 0 % ") && Contains("\rextracting: 100 %, ") && Contains(" MB/s\r\n"));
}

TEST_CASE("Layouts and encodings are options", "[unit][corpus]") {
  const TemporaryDirectory directory;
  const std::string lines =
      write_text(directory.path("lines"), "The first document on a line.\nThe second d\xE9j\xE0 vu of many.\n");
  const std::string out = directory.path("out");
  const CommandResult named = extract({lines, "--output", out, "--layout", "lines"});
  CHECK(named.code == kBadData);
  CHECK_THAT(named.err, Contains("--encoding ISO-8859-1"));
  REQUIRE(extract({lines, "--output", out, "--layout", "lines", "--encoding", "ISO-8859-1"}).code == kOk);
  CHECK(read_file(out + "/00000.txt") == "The first document on a line.\n\nThe second d\u00e9j\u00e0 vu of many.\n\n");
  CHECK(extract({lines, "--output", out, "--layout", "pages"}).code == kUsage);
  CHECK(extract({lines, "--output", out, "--encoding", "UTF-8//IGNORE"}).code == kUsage);
  CHECK(extract({directory.path("none"), "--output", out}).code == kInputMissing);
  const std::string empty = write_text(directory.path("empty"), " \n");
  const CommandResult nothing = extract({empty, "--output", directory.path("o2")});
  CHECK(nothing.code == kBadData);
  CHECK_THAT(nothing.err, Contains(empty + ": no text: 2 bytes of white space"));
  const CommandResult dropped =
      extract({lines, "--encoding", "l1", "--min-words", "99", "--output", directory.path("o3")});
  CHECK(dropped.code == kBadData);
  CHECK_THAT(dropped.err, Contains("no document is left: dropped 1 near-empty documents"));
}

TEST_CASE("bert vocab learns from packed files, JSON lines and directories as from text", "[unit][corpus]") {
  const TemporaryDirectory directory;
  std::string text, json;
  for (int i = 0; i < 50; ++i) {
    const std::string line = "the unaffable cat sat on mat " + std::to_string(i % 7);
    text += line + "\n";
    json += "{\"t\": \"" + line + "\"}\n";
  }
  const std::string plain = write_text(directory.path("plain"), text), other = directory.path("d");
  std::filesystem::create_directories(other);
  write_text(other + "/a.jsonl", json);
  if (!run_shell("gzip " + other + "/a.jsonl")) BERT_SKIP("gzip is not installed");
  const auto vocabulary = [&](const std::string& input) {
    const std::string output = directory.path("vocab.txt");
    const CommandResult result = run_command(vocab_command, {"vocab", "--input", input, "--size", "60", "--allow-fewer",
                                                             "--text-field", "t", "--output", output});
    INFO(result.err);
    CHECK(result.code == kOk);
    return read_file(output);
  };
  CHECK(vocabulary(other) == vocabulary(plain));
  const auto refused = [&](const std::string& input) {
    return run_command(vocab_command, {"vocab", "--input", input, "--size", "9", "--output", directory.path("v")});
  };
  CHECK_THAT(refused("/dev/null").err, Contains("/dev/null: no text: 0 bytes"));
  CHECK_THAT(refused("/dev/zero").err, Contains("/dev/zero: byte 0: is not text"));
  const CommandResult standard_input = refused("-");
  CHECK(standard_input.code == kInputMissing);
  CHECK_THAT(standard_input.err, Contains("-: no such file; standard input is not read here"));
}

}  // namespace
}  // namespace bert
