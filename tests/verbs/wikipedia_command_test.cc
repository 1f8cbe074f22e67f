#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "app/system/exit_codes.h"
#include "app/verbs/verbs.h"
#include "data/io/files.h"
#include "tests/support/command_testing.h"
#include "tests/support/packed_text.h"
#include "tests/testing.h"

namespace bert {
namespace {

using testing::CommandResult;
using testing::Contains;
using testing::TemporaryDirectory;

CommandResult extract(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"data", "extract", "wikipedia"});
  return testing::run_command(data_command, std::move(arguments));
}

std::string page(const std::string& title, const std::string& text) {
  return "<page><title>" + title + "</title><ns>0</ns><revision><text>" + text + "</text></revision></page>";
}

const std::string kXml = "<mediawiki>" +
                         page("Cat", "A '''cat''' is an [[animal]] that sleeps.\n\n== Food ==\nIt eats fish.") +
                         page("Copy", "A cat is an animal that sleeps.\n\nIt eats fish.") +
                         page("Short", "Too short.") + page("Dog", "A dog is an animal that barks.") + "</mediawiki>";

TEST_CASE("bert data extract wikipedia writes the prose of a dump", "[unit][wikitext]") {
  const TemporaryDirectory directory;
  const std::vector<std::pair<std::string, std::string>> dumps = {
      {"dump.xml", kXml}, {"dump.xml.bz2", testing::bzip2(kXml)}, {"dump.xml.gz", testing::gzip_of(kXml)}};
  for (const auto& [name, bytes] : dumps) {
    const std::string dump = directory.path(name), out = directory.path("out-" + name);
    std::ofstream(dump, std::ios::binary) << bytes;
    const CommandResult result = extract({dump, "--output", out, "--num-threads", "2"});
    CAPTURE(result.err);
    REQUIRE(result.code == kOk);
    CHECK(read_file(out + "/00000.txt") ==
          "A cat is an animal that sleeps.\nIt eats fish.\n\nA dog is an animal that barks.\n\n");
    const auto summary = nlohmann::json::parse(result.out);
    CHECK(summary.at("documents") == 2);
    CHECK(summary.at("duplicates") == 1);
    CHECK(summary.at("near_empty") == 1);
    CHECK(summary.at("read").at("pages") == 4);
    CHECK(summary.at("read").at("articles") == 4);
    CHECK(summary.at("megabytes_per_second") > 0);
    CHECK_THAT(result.err, Contains("extracting: done, ") && Contains(" MB/s\n"));
  }
  const std::string titled = directory.path("titled");
  REQUIRE(extract({directory.path("dump.xml"), "--output", titled, "--with-titles"}).code == kOk);
  // The same articles are kept as without titles: titles make no difference to duplicates.
  CHECK(read_file(titled + "/00000.txt") ==
        "Cat\nA cat is an animal that sleeps.\nIt eats fish.\n\nDog\nA dog is an animal that barks.\n\n");
}

TEST_CASE("bert data extract wikipedia refuses a dump that is cut off", "[unit][wikitext]") {
  const TemporaryDirectory directory;
  const std::string dump = directory.path("dump.xml"), out = directory.path("out");
  std::ofstream(dump) << kXml.substr(0, kXml.size() - 30);
  const CommandResult result = extract({dump, "--output", out});
  CHECK(result.code == kBadData);
  CHECK_THAT(result.err, Contains("cut off") && !Contains("done"));
  CHECK(!std::ifstream(out + "/00000.txt").good());
  CHECK(extract({directory.path("none.xml"), "--output", directory.path("new")}).code == kInputMissing);
  CHECK(!std::ifstream(directory.path("new")).good());
}

TEST_CASE("bert data extract wikipedia goes on after kill -9, to the same bytes", "[unit][wikitext]") {
  const TemporaryDirectory directory;
  std::string xml = "<mediawiki>";
  for (int i = 0; xml.size() < 6'000'000; ++i) {
    std::string text;
    for (int line = 0; line < 20; ++line)
      text += "The sentence number " + std::to_string(line) + " of the ''article'' [[number|" +
              std::to_string(i - i % 2) + "]].\n\n";
    xml += page("Title " + std::to_string(i), text);
  }
  xml += "</mediawiki>";
  for (const auto& [name, bytes] : {std::pair("dump.xml", xml), std::pair("dump.xml.bz2", testing::bzip2(xml, 1))}) {
    const std::string dump = directory.path(name), out = directory.path("out"), whole = directory.path("whole");
    std::filesystem::remove_all(whole);
    std::ofstream(dump, std::ios::binary) << bytes;
    const std::vector<std::string> command = {dump, "--output", out, "--file-size", "1"};
    REQUIRE(extract(command).code == kOk);
    std::filesystem::rename(out, whole);
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) _exit(extract({dump, "--output", out, "--file-size", "1", "--num-threads", "1"}).code);
    while (!std::filesystem::exists(out + "/.extract.state")) usleep(100);
    kill(child, SIGKILL);
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(WIFSIGNALED(status));
    REQUIRE(std::filesystem::exists(out + "/.extract.unfinished"));
    const auto first = std::filesystem::last_write_time(out + "/00000.txt");
    REQUIRE(extract(command).code == kOk);
    CHECK(std::filesystem::last_write_time(out + "/00000.txt") == first);
    size_t files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(whole)) {
      ++files;
      CHECK(read_file(entry.path().string()) == read_file(out + "/" + entry.path().filename().string()));
    }
    CHECK(files >= 3);
    CHECK(!std::filesystem::exists(out + "/.extract.state"));
    std::filesystem::remove_all(out);
  }
}

}  // namespace
}  // namespace bert
