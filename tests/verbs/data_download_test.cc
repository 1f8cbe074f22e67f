// bert data download, from a server of the test.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "app/cli/transfer_progress.h"
#include "app/system/exit_codes.h"
#include "app/verbs/verbs.h"
#include "data/download/digest.h"
#include "data/io/files.h"
#include "tests/support/command_testing.h"
#include "tests/support/http_server.h"
#include "tests/testing.h"

namespace bert {
namespace {

using nlohmann::json;
using testing::CommandResult;
using testing::Contains;
using testing::HttpAnswer;
using testing::HttpQuestion;
using testing::HttpServer;
using testing::serve_file;
using testing::TemporaryDirectory;

CommandResult download(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"data", "download"});
  return testing::run_command(data_command, arguments);
}

TEST_CASE("bert data download wikipedia finds the dump, checks it, and says what it did", "[unit][download]") {
  const std::string dump(100'000, 'x'), path = "/simplewiki/20260901/simplewiki-20260901-pages-articles.xml.bz2";
  Digest digest("sha1");
  digest.update(dump.data(), dump.size());
  const HttpServer server([&](const HttpQuestion& question, const HttpAnswer& answer) {
    if (question.target == path) return serve_file({.content = dump}, question, answer, 60'000);
    if (question.target != "/simplewiki/latest/simplewiki-latest-sha1sums.txt") return answer.status(404);
    serve_file({.content = digest.hexadecimal() + "  simplewiki-20260901-pages-articles.xml.bz2\n"}, question, answer);
  });
  const TemporaryDirectory directory;
  const std::string output = directory.path("new/dumps"), older = "simplewiki-20260801-pages-articles.xml.bz2.part";
  std::filesystem::create_directories(output);
  std::ofstream(output + "/" + older) << "x";
  const CommandResult result =
      download({"wikipedia", "--language", "simple", "--output", output, "--mirror", server.url()});
  REQUIRE(result.code == kOk);
  const json summary = json::parse(result.out);
  CHECK(summary["data_set"] == "wikipedia");
  CHECK(summary["bytes"] == 100'000);
  CHECK(summary["bytes_received"] == 100'000);
  CHECK(summary["seconds"].is_number());
  REQUIRE(summary["files"].size() == 1);
  const json& file = summary["files"][0];
  CHECK(file["path"] == output + "/simplewiki-20260901-pages-articles.xml.bz2");
  CHECK(file["url"] == server.url() + path);
  CHECK(file["verified"] == "sha1");
  CHECK(file["sha1"] == digest.hexadecimal());
  CHECK(read_file(file["path"]) == dump);
  CHECK_THAT(result.err, Contains("bert data download: " + server.url() + path) &&
                             Contains("trying again in 1 s (1 of 5)") &&
                             Contains("simplewiki-20260901-pages-articles.xml.bz2: 100 %") &&
                             Contains(older + " is of another dump") && Contains("--date 20260801 continues it"));

  const json again =
      json::parse(download({"wikipedia", "--language", "simple", "--output", output, "--mirror", server.url()}).out);
  CHECK(again["bytes_received"] == 0);
  CHECK(again["files"][0]["url"].is_null());
}

TEST_CASE("bert data download google-bert unpacks the model, and removes a damaged archive", "[unit][download]") {
  const json golden = json::parse(read_file(testing::golden("zip_archives.json")));
  std::string archive, hexadecimal = golden["good"]["flat"]["zip"];
  for (size_t i = 0; i < hexadecimal.size(); i += 2)
    archive += static_cast<char>(std::stoi(hexadecimal.substr(i, 2), nullptr, 16));
  std::string damaged = archive;
  damaged[40] = static_cast<char>(damaged[40] ^ 1);
  bool is_damaged = true;
  const HttpServer server([&](const HttpQuestion& question, const HttpAnswer& answer) {
    if (question.target != "/bert_models/2020_02_20/uncased_L-2_H-128_A-2.zip") return answer.status(404);
    serve_file({.content = is_damaged ? damaged : archive}, question, answer);
  });
  const TemporaryDirectory directory;
  const std::vector<std::string> command = {
      "google-bert", "--model", "uncased_L-2_H-128_A-2", "--output", directory.path(), "--mirror", server.url()};
  CommandResult result = download(command);
  CHECK(result.code == kBadData);
  CHECK_THAT(result.err, Contains("The archive was removed"));
  CHECK_FALSE(std::filesystem::exists(directory.path("uncased_L-2_H-128_A-2.zip")));

  is_damaged = false;
  result = download(command);
  REQUIRE(result.code == kOk);
  const json file = json::parse(result.out)["files"][0];
  CHECK(file["verified"] == "length");
  REQUIRE(file["unpacked"]["files"].size() == 2);
  CHECK(file["unpacked"]["files"][0]["path"] == directory.path("uncased_L-2_H-128_A-2/vocab.txt"));
  CHECK(file["unpacked"]["files"][0]["verified"] == "crc32");
  CHECK(read_file(directory.path("uncased_L-2_H-128_A-2/vocab.txt")) == "[PAD]\n");

  // This model's files have published checksums, so another content is refused, and the server's answer is named.
  result = download({"google-bert", "--output", directory.path(), "--mirror", server.url()});
  CHECK(result.code == kInputMissing);
  CHECK_THAT(result.err, Contains("bert_models/2018_10_18/uncased_L-12_H-768_A-12.zip: the server answered 404"));
}

TEST_CASE("The exit codes of bert data download", "[unit][download]") {
  const HttpServer server(
      [&](const HttpQuestion& question, const HttpAnswer& answer) { serve_file({.content = "{}"}, question, answer); });
  const TemporaryDirectory directory;
  const std::string output = directory.path();
  const auto code = [&](std::vector<std::string> arguments, const std::string& message) {
    const CommandResult result = download(std::move(arguments));
    CHECK_THAT(result.err, Contains(message));
    CHECK(result.out.empty());
    return result.code;
  };
  CHECK(code({"glue", "--task", "sst2", "--output", output, "--mirror", "http://127.0.0.1:1"},
             "http://127.0.0.1:1/glue/data/SST-2.zip: ") == kPeerFailure);
  CHECK(std::filesystem::is_empty(output));
  CHECK(code({"glue", "--task", "SST-3", "--output", output}, "did you mean 'SST-2'") == kUsage);
  CHECK(code({"google-bert", "--model", "bert-base-uncase", "--output", output}, "did you mean 'bert-base-uncased'") ==
        kUsage);
  CHECK(code({"squad", "--version", "3", "--output", output}, "--version") == kUsage);
  CHECK(code({"wikipedia", "--language", "../en", "--output", output}, "small letters") == kUsage);
  CHECK(code({"wikipedia", "--date", "today", "--output", output}, "YYYYMMDD") == kUsage);
  CHECK(code({"squad", "--mirror", "file:///x", "--output", output}, "want http://HOST") == kUsage);
  CHECK(code({"squat", "--output", output}, "did you mean 'squad'") == kUsage);
  CHECK(code({"squad"}, "--output") == kUsage);
  std::ofstream(directory.path("file")) << "x";
  CHECK(code({"squad", "--output", directory.path("file"), "--mirror", server.url()}, "file") == kIo);
}

TEST_CASE("A file that is missing or damaged does not keep the others from being downloaded", "[unit][download]") {
  const HttpServer server([&](const HttpQuestion& question, const HttpAnswer& answer) {
    if (question.target.ends_with("train-v1.1.json")) return answer.status(404);
    serve_file({.content = "{}"}, question, answer);
  });
  const TemporaryDirectory directory;
  const CommandResult result =
      download({"squad", "--version", "1.1", "--output", directory.path(), "--mirror", server.url()});
  CHECK(result.code == kInputMissing);  // the first error
  const json summary = json::parse(result.out);
  CHECK(summary["files"].empty());
  REQUIRE(summary["failed"].size() == 2);
  CHECK(summary["failed"][0]["file"] == "https://rajpurkar.github.io/SQuAD-explorer/dataset/train-v1.1.json");
  CHECK_THAT(summary["failed"][1]["error"].get<std::string>(),
             Contains("dev-v1.1.json: the server has 2 bytes, and 4854279 are published"));
  CHECK_THAT(result.err, Contains("bert data download: cannot download dev-v1.1.json") &&
                             Contains("bert data download squad: cannot download train-v1.1.json"));
  CHECK(std::filesystem::is_empty(directory.path()));
}

TEST_CASE("The progress of a transfer has a rate and the time that is left", "[unit][download]") {
  auto now = std::chrono::steady_clock::time_point{};
  const auto run = [&](std::optional<int64_t> of_bytes) {
    TransferProgress progress([&] { return now; });
    progress.update("a", 10'000'000, of_bytes);
    now += std::chrono::seconds(10);
    progress.update("a", 30'000'000, of_bytes);
    progress.update("a", 31'000'000, of_bytes);  // too soon for the terminal
    now += std::chrono::seconds(10);
    progress.update("a", 100'000'000, of_bytes);
  };
  CHECK(testing::on_terminal([&] { run(100'000'000); }) ==
        "\ra: 10 %\x1b[K\ra: 30 %, 2.0 MB/s, 35 s left\x1b[K\ra: 100 %, 4.5 MB/s\x1b[K\r\n");
  CHECK(testing::on_terminal([&] { run({}); }) ==
        "\ra: 10.0 MB\x1b[K\ra: 30.0 MB, 2.0 MB/s\x1b[K\ra: 100.0 MB, 4.5 MB/s\x1b[K\r\n");
  const TemporaryDirectory directory;
  {
    const testing::Redirection err(STDERR_FILENO, directory.path("err"), O_WRONLY | O_CREAT);
    run(100'000'000);
  }
  CHECK(read_file(directory.path("err")) == "a: 10 %\na: 30 %, 2.0 MB/s, 35 s left\na: 100 %, 4.5 MB/s\n");
}

}  // namespace
}  // namespace bert
