// The directory that `bert data extract` writes.
#include "data/corpus/extracted_text.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <map>

#include "data/io/error.h"
#include "tests/support/corpus_testing.h"
#include "tests/support/text_file.h"
#include "tests/testing.h"

namespace bert {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::documents_of;
using testing::message_of;
using testing::TemporaryDirectory;
using testing::write_text;
using Documents = std::vector<std::string>;

TEST_CASE("Extracted documents are read back exactly", "[unit][corpus]") {
  const TemporaryDirectory directory;
  const std::string output = directory.path("a/b");
  const std::string huge(2'000'000, 'x');  // longer than documents with chapters may be
  std::string many;
  for (int i = 0; i < 10000; ++i) many += "Paragraph " + std::to_string(i) + ".\n\n";
  const Documents documents = {"Short lines only\nHeading\nIt began here.", huge, many,
                               "  \u4e2d\u6587\u3002 one \t two\r\n\n\n\nthree ",
                               "The last one, in a file of its own."};
  ExtractedText writer(output, {.min_characters = 1, .file_bytes = 1'000'000});
  for (const std::string& document : documents) CHECK(writer.add(document));
  writer.finish("{}");
  CHECK(writer.statistics().documents == 5);
  CHECK(writer.statistics().files == 2);
  CHECK(fs::file_size(output + "/00000.txt") + fs::file_size(output + "/00001.txt") ==
        static_cast<uint64_t>(writer.statistics().bytes));
  std::string paragraphs = many;
  for (size_t at = 0; (at = paragraphs.find("\n\n", at)) != std::string::npos;) paragraphs.erase(at, 1);
  CHECK(documents_of({output}) == Documents{documents[0] + "\n", huge + "\n", paragraphs,
                                            "\u4e2d\u6587\u3002 one two\nthree\n", documents[4] + "\n"});
}

TEST_CASE("Zero bytes are dropped and counted, and divide no document", "[unit][corpus]") {
  const TemporaryDirectory directory;
  ExtractedText writer(directory.path("out"), {.min_characters = 1});
  using std::string_literals::operator""s;
  CHECK(writer.add("The first \0\nparagraph.\n\0\0\n \0 \nThe second\0 one.\n"s));
  CHECK_FALSE(writer.add("\0\n\0"s));
  writer.finish("{}");
  CHECK(read_file(directory.path("out/00000.txt")) == "The first\nparagraph.\nThe second one.\n\n");
  CHECK(writer.statistics().zero_bytes == 7);
  CHECK(writer.statistics().documents == 1);
}

TEST_CASE("Duplicates and near-empty documents are dropped and counted", "[unit][corpus]") {
  const TemporaryDirectory directory;
  const std::string long_text =
      "one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
      "fifteen sixteen seventeen eighteen nineteen twenty ";
  const auto write = [&](const ExtractOptions& options) {
    ExtractedText writer(directory.path("out"), options);
    for (const std::string& document : Documents{long_text, "", " \n\u00a0\n", "a b c d e f g h", long_text + "!",
                                                 "one  two\n" + long_text.substr(8), long_text + "twenty-one"})
      writer.add(document);
    writer.finish("{}");
    fs::remove_all(directory.path("out"));
    return writer.statistics();
  };
  const ExtractStatistics plain = write({.min_characters = 8});
  CHECK(plain.documents == 4);
  CHECK(plain.near_empty == 2);
  CHECK(plain.duplicates == 1);
  const ExtractStatistics near = write({.min_characters = 9, .near_duplicates = true});
  CHECK(near.documents == 1);
  CHECK(near.near_empty == 3);
  CHECK(near.duplicates == 1);
  CHECK(near.near_duplicates == 2);  // the last has the same 16 shingles and two more: 0.89
  const ExtractStatistics all = write({.min_characters = 0, .keep_duplicates = true});
  CHECK(all.documents == 5);
  CHECK(all.near_empty == 2);  // nothing but white space is near-empty at any limit
  CHECK(write({.min_characters = 0, .min_words = 9}).documents == 3);
}

TEST_CASE("The memory for duplicates is limited", "[unit][corpus]") {
  const TemporaryDirectory directory;
  ExtractedText writer(directory.path("out"), {.most_duplicate_bytes = 100'000});
  const std::string message = message_of([&] {
    for (int i = 0; i < 100'000; ++i) writer.add("Document number " + std::to_string(i) + ", which differs.");
  });
  CHECK_THAT(message, Contains("duplicates among") && Contains("--duplicates-memory"));
  CHECK(writer.statistics().documents >= 100'000 / 46);
}

TEST_CASE("A killed extraction leaves whole files, and one without a place starts over", "[unit][corpus]") {
  const TemporaryDirectory directory;
  const std::string output = directory.path("out");
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ExtractedText writer(output, {.file_bytes = 90});
    for (int i = 0; i < 10; ++i) writer.add("Document number " + std::to_string(i) + " is of forty letters or so.");
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  size_t files = 0;
  for (const auto& entry : fs::directory_iterator(output)) {
    if (entry.path().filename() == kUnfinishedExtraction) continue;
    ++files;
    CHECK(read_file(entry.path().string()).ends_with(".\n\n"));
  }
  CHECK(files == 5);  // two documents each
  CHECK_THAT(message_of([&] { documents_of({output}); }), Contains("the extraction of this text was not finished"));
  {
    ExtractedText writer(output, {});
    CHECK_THAT(message_of([&] { ExtractedText(output, {}); }), Contains("another process extracts"));
    writer.add("The only document of the second run.");
    writer.finish("{\"made\": \"by a test\"}");
  }
  CHECK(documents_of({output}) == Documents{"The only document of the second run.\n"});
  CHECK(read_file(output + "/.extract.json") == "{\"made\": \"by a test\"}\n");
  CHECK_FALSE(fs::exists(output + "/" + kUnfinishedExtraction));
  CHECK_THAT(message_of([&] { ExtractedText(output, {}); }), Contains("an extraction has been finished here"));
  CHECK(documents_of({output}).size() == 1);
}

/// All files of a directory, hidden ones too, by name.
std::map<std::string, std::string> files_of(const std::string& path) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(path))
    files[entry.path().filename().string()] = read_file(entry.path().string());
  return files;
}

/// A corpus with duplicates, near-duplicates and short documents, each kind also far behind the first of its kind.
Documents some_corpus() {
  Documents documents;
  for (int i = 0; i < 300; ++i) {
    std::string text;
    for (int word = 0; word < 40; ++word) text += fmt::format("w{}x{} ", i % 7 == 3 ? i / 2 : i, word);
    if (i % 5 == 4) text += "one more";
    documents.push_back(i % 11 == 10 ? "short" : text);
  }
  return documents;
}

/// Extracts documents from the writer's place on; the process ends after document number `until`.
void extract_from_place(const std::string& output, const ExtractOptions& options, const Documents& documents,
                        int64_t until, const std::string& name = "corpus") {
  int64_t next = 0;
  ExtractedText writer(output, options, {{{"input", name}}, [&] { return Figures{{"next", next}}; }});
  if (!writer.place().empty()) next = figure(writer.place(), "next");
  while (next < static_cast<int64_t>(documents.size())) {
    if (next == until) kill(getpid(), SIGKILL);
    const std::string title = next % 5 == 0 ? "" : "Title\nof " + std::to_string(next);
    writer.add(documents[static_cast<size_t>(next++)], title);
  }
  Figures counts;
  add_figures("", writer.statistics(), counts);
  std::string summary;
  for (const auto& [count, value] : counts) summary += fmt::format("{}={} ", count, value);
  writer.finish(summary);
}

void extract_and_die(const std::string& output, const ExtractOptions& options, const Documents& documents,
                     int64_t until) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    extract_from_place(output, options, documents, until);
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
}

TEST_CASE("A killed extraction goes on after its last finished file, to the same bytes and counts", "[unit][corpus]") {
  const Documents documents = some_corpus();
  for (const bool near : {false, true}) {
    const TemporaryDirectory directory;
    const ExtractOptions options{.near_duplicates = near, .file_bytes = 3000, .with_titles = near};
    extract_from_place(directory.path("whole"), options, documents, -1);
    const auto want = files_of(directory.path("whole"));
    CHECK(want.size() > 10);
    CHECK_THAT(want.at(".extract.json"), !Contains("near_empty=0") && !Contains(" duplicates=0"));
    if (near) CHECK_THAT(want.at(".extract.json"), !Contains("near_duplicates=0"));
    const std::string output = directory.path("killed");
    fs::file_time_type first;
    for (const int64_t until : {1, 50, 51, 170, 299}) {
      extract_and_die(output, options, documents, until);
      if (until == 50) first = fs::last_write_time(output + "/00000.txt");
      if (until > 50) CHECK(fs::last_write_time(output + "/00000.txt") == first);  // not made again
    }
    write_text(output + "/00099.txt.tmp-1-2", "left over");
    extract_from_place(output, options, documents, -1);
    CHECK(files_of(output) == want);
  }
}

TEST_CASE("A killed extraction is not continued with other settings, input or files", "[unit][corpus]") {
  const Documents documents = some_corpus();
  const TemporaryDirectory directory;
  const std::string output = directory.path("out");
  const ExtractOptions options{.file_bytes = 3000};
  extract_and_die(output, options, documents, 100);
  const auto before = files_of(output);
  const auto error = [&](const ExtractOptions& others, const std::string& name = "corpus") {
    return message_of([&] { extract_from_place(output, others, documents, -1, name); });
  };
  CHECK_THAT(error({.min_characters = 21, .file_bytes = 3000}),
             Contains(output +
                      ": an extraction was begun here with other settings: --min-characters is 20 there and 21 here"));
  CHECK_THAT(error(options, "other"), Contains("input is corpus there and other here"));
  CHECK(files_of(output) == before);
  write_text(output + "/00000.txt", "Changed.\n\n");
  CHECK_THAT(error(options), Contains("Remove the directory to start over"));
  write_text(output + "/.extract.state", "{\"settings\": 1}");
  CHECK_THAT(error(options), Contains(".extract.state: is no state of an extraction"));
  CHECK_THAT(error(options), Contains("remove " + output + " to start over"));
}

TEST_CASE("Of processes that extract into one directory at once, one finishes, and no other touches the result",
          "[unit][corpus]") {
  const TemporaryDirectory directory;
  constexpr int kRounds = 30, kProcesses = 4;
  for (int round = 0; round < kRounds; ++round) {
    const std::string output = directory.path("out" + std::to_string(round));
    std::vector<pid_t> children;
    for (int process = 0; process < kProcesses; ++process) {
      children.push_back(fork());
      REQUIRE(children.back() >= 0);
      if (children.back() != 0) continue;
      const std::string error = message_of([&] {
        ExtractedText writer(output, {});
        writer.add("A document with enough characters.");
        writer.finish("{}");
      });
      const bool refused =
          error.find("another process") != std::string::npos || error.find("finished") != std::string::npos;
      _exit(error.empty() ? 0 : refused ? 1 : 2);
    }
    int finished = 0, other = 0;
    for (const pid_t child : children) {
      int status = 0;
      REQUIRE(waitpid(child, &status, 0) == child);
      finished += WIFEXITED(status) && WEXITSTATUS(status) == 0;
      other += !WIFEXITED(status) || WEXITSTATUS(status) > 1;
    }
    CHECK(finished == 1);
    CHECK(other == 0);
    CHECK(files_of(output).size() == 2);
    CHECK(documents_of({output}) == Documents{"A document with enough characters.\n"});
  }
}

TEST_CASE("A directory with files of others is left alone", "[unit][corpus]") {
  const TemporaryDirectory directory;
  write_text(directory.path("00000.txt"), "mine\n");
  CHECK_THAT(message_of([&] { ExtractedText(directory.path(), {}); }), Contains("that no extraction wrote: 00000.txt"));
  CHECK_THAT(message_of([&] { ExtractedText(directory.path("00000.txt"), {}); }), Contains("00000.txt: cannot create"));
  CHECK(read_file(directory.path("00000.txt")) == "mine\n");
}

}  // namespace
}  // namespace bert
