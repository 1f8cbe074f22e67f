// The directory that `bert data extract` writes.
#include "data/corpus/extracted_text.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "data/io/error.h"
#include "tests/support/corpus_testing.h"
#include "tests/testing.h"

namespace bert {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::documents_of;
using testing::TemporaryDirectory;
using testing::write_text;
using Documents = std::vector<std::string>;

std::string message_of(const std::function<void()>& action) {
  try {
    action();
    return "";
  } catch (const std::runtime_error& error) {
    return error.what();
  }
}

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

TEST_CASE("A killed extraction leaves whole files, and the next one starts over", "[unit][corpus]") {
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

TEST_CASE("A directory with files of others is left alone", "[unit][corpus]") {
  const TemporaryDirectory directory;
  write_text(directory.path("00000.txt"), "mine\n");
  CHECK_THAT(message_of([&] { ExtractedText(directory.path(), {}); }), Contains("that no extraction wrote: 00000.txt"));
  CHECK_THAT(message_of([&] { ExtractedText(directory.path("00000.txt"), {}); }), Contains("00000.txt: cannot create"));
  CHECK(read_file(directory.path("00000.txt")) == "mine\n");
}

}  // namespace
}  // namespace bert
