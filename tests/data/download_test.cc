// Downloads from a server that cuts, stalls, lies, refuses and changes its mind.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>

#include "data/download/downloader.h"
#include "data/download/partial_file.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "tests/support/http_server.h"
#include "tests/testing.h"

namespace bert {
namespace {

using testing::Contains;
using testing::HttpAnswer;
using testing::HttpQuestion;
using testing::HttpServer;
using testing::serve_file;
using testing::ServedFile;
using testing::TemporaryDirectory;

/// Bytes without a period, so that a part in the wrong place is noticed.
std::string bytes_of(size_t count, uint32_t seed = 1) {
  std::string bytes(count, '\0');
  for (char& byte : bytes) {
    seed = seed * 1664525 + 1013904223;  // Numerical Recipes' generator
    byte = static_cast<char>(seed >> 24);
  }
  return bytes;
}

std::string sha256_of(const std::string& bytes) {
  Digest digest("sha256");
  digest.update(bytes.data(), bytes.size());
  return digest.hexadecimal();
}

/// Downloads into a directory of its own, without long waits.
struct Client {
  TemporaryDirectory directory;
  std::vector<std::string> said;
  DownloadOptions options;

  explicit Client(int64_t retries = 3) {
    testing::without_proxies();
    options.http = {.user_agent = "bert/test", .timeout_seconds = 20};
    options.retries = retries;
    options.first_wait_ms = 1;
    options.say = [this](const std::string& message) { said.push_back(message); };
  }

  DownloadedFile get(const RemoteFile& file) { return Downloader(options).file(file, directory.path()); }

  /// The message of the exception of the wanted type.
  template <class Error>
  std::string refusal(const RemoteFile& file) {
    return testing::message_of<Error>([&] { get(file); });
  }

  [[nodiscard]] std::string content(const std::string& name = "file.bin") const {
    return read_file(directory.path(name));
  }
  /// The names in the directory.
  [[nodiscard]] std::vector<std::string> names() const { return names_in(directory.path()); }
};

RemoteFile remote(const HttpServer& server, const std::string& content = "", const std::string& path = "/d/file.bin") {
  RemoteFile file{.host = server.url(), .path = path, .name = {}, .bytes = {}, .digest = {}};
  if (!content.empty()) {
    file.bytes = static_cast<int64_t>(content.size());
    file.digest = {"sha256", sha256_of(content)};
  }
  return file;
}

const std::vector<std::string> kWhole = {"file.bin"}, kInPart = {"file.bin.part", "file.bin.part.source"};

TEST_CASE("Digests are those of the standard", "[unit][download]") {
  const auto digest = [](const char* algorithm) {
    Digest both(algorithm);
    both.update("a", 1);
    CHECK_FALSE(both.hexadecimal().empty());  // and more bytes may follow
    both.update("bc", 2);
    return both.hexadecimal();
  };
  // FIPS 180-2, appendices A.1 and B.1
  CHECK(digest("sha1") == "a9993e364706816aba3e25717850c26c9cd0d89d");
  CHECK(digest("sha256") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK_THROWS(Digest("crc0"));
}

TEST_CASE("A file is downloaded once, and checked when it is there", "[unit][download]") {
  const ServedFile file{.content = bytes_of(300'000)};
  const HttpServer server(
      [&](const HttpQuestion& question, const HttpAnswer& answer) { serve_file(file, question, answer); });
  Client client;
  int64_t shown = 0;
  client.options.progress = [&](const std::string& name, int64_t bytes, std::optional<int64_t> of_bytes) {
    CHECK(name == "file.bin");
    CHECK(bytes > shown);
    CHECK(of_bytes == 300'000);
    shown = bytes;
  };
  const DownloadedFile got = client.get(remote(server, file.content));
  CHECK(shown == 300'000);
  CHECK(got.path == client.directory.path("file.bin"));
  CHECK(got.url == server.url() + "/d/file.bin");
  CHECK(got.bytes == 300'000);
  CHECK(got.bytes_received == 300'000);
  CHECK(got.verified_by == "sha256");
  CHECK(client.content() == file.content);
  CHECK(client.names() == kWhole);
  CHECK(client.said.empty());
  REQUIRE(server.questions().size() == 1);
  CHECK(server.questions()[0].header("user-agent") == "bert/test");
  CHECK(server.questions()[0].header("range").empty());

  const DownloadedFile again = client.get(remote(server, file.content));
  CHECK(server.questions().size() == 1);
  CHECK(again.url.empty());
  CHECK(again.bytes_received == 0);
  CHECK(again.verified_by == "sha256");
  const RemoteFile other = remote(server, bytes_of(300'000, 2));
  CHECK_THAT(client.refusal<DataError>(other),
             Contains("file.bin: is there, but its sha256 is " + sha256_of(file.content)) && Contains("remove it"));
  CHECK(client.content() == file.content);
}

TEST_CASE("A cut download goes on where it stopped", "[unit][download]") {
  const ServedFile file{.content = bytes_of(250'000)};
  const HttpServer server(
      [&](const HttpQuestion& question, const HttpAnswer& answer) { serve_file(file, question, answer, 70'000); });
  Client client(1);  // one retry is enough: each attempt brings new bytes
  const DownloadedFile got = client.get(remote(server, GENERATE(true, false) ? file.content : ""));
  CHECK(client.content() == file.content);
  CHECK(client.names() == kWhole);
  CHECK(got.bytes_received == 250'000);
  const auto questions = server.questions();
  REQUIRE(questions.size() == 4);
  for (size_t i = 1; i < 4; ++i) {
    CHECK(questions[i].header("range") == fmt::format("bytes={}-", 70'000 * i));
    CHECK(questions[i].header("if-range") == "\"1\"");
  }
  REQUIRE(client.said.size() == 3);
  CHECK_THAT(client.said[0], Contains("/d/file.bin: ") && Contains("trying again in 0.001 s (1 of 1)"));
}

TEST_CASE("A server without ranges is asked for the whole again, and not for ever", "[unit][download]") {
  const ServedFile file{.content = bytes_of(250'000), .etag = "\"1\"", .ranges = false};
  std::atomic<int> calls{0};
  const int whole_at = GENERATE(2, 100);
  const HttpServer server([&](const HttpQuestion& question, const HttpAnswer& answer) {
    serve_file(file, question, answer, ++calls < whole_at ? 200'000 : std::string::npos);
  });
  Client client;
  if (whole_at == 2) {
    CHECK(client.get(remote(server)).bytes_received == 450'000);
    CHECK(client.content() == file.content);
    CHECK_THAT(client.said.back(), Contains("starts at the beginning"));
  } else {
    CHECK_THAT(client.refusal<NetworkError>(remote(server)), Contains("cannot download file.bin: " + server.url()));
    CHECK(calls == 4);  // 1 and 3 retries, of which none brings more than the first
    CHECK(client.names() == kInPart);
  }
}

TEST_CASE("Bytes of a file that has changed are not joined to those of the old one", "[unit][download]") {
  const ServedFile before{.content = bytes_of(200'000, 1), .etag = "\"old\""},
      after{.content = bytes_of(200'000, 2), .etag = "\"new\""};
  // If-Range is obeyed, or ignored by a server that names the file, or its date, or by one that does not.
  const std::string server_kind = GENERATE("obeys", "names", "dates", "hides");
  std::atomic<int> calls{0};
  const HttpServer server([&](const HttpQuestion& question, const HttpAnswer& answer) {
    ++calls;
    if (server_kind == "dates") {
      const size_t first = question.first_byte();
      answer.head(first > 0 ? 206 : 200,
                  fmt::format("Last-Modified: {}\r\nContent-Length: {}\r\nContent-Range: bytes {}-199999/200000\r\n",
                              calls == 1 ? "before" : "after", 200'000 - first, first));
      const std::string& content = calls == 1 ? before.content : after.content;
      return answer.send(std::string_view(content).substr(first, calls == 1 ? 90'000 : 200'000));
    }
    if (calls == 1) return serve_file(before, question, answer, 90'000);
    if (server_kind == "obeys") return serve_file(after, question, answer);
    HttpQuestion without = question;
    without.headers.erase("if-range");
    ServedFile file = after;
    if (server_kind == "hides") file.etag.clear();
    serve_file(file, without, answer);
  });
  Client client;
  // The last kind can be found out by the checksum alone.
  client.get(remote(server, server_kind == "hides" ? after.content : ""));
  CHECK(client.content() == after.content);
  CHECK(calls == (server_kind == "obeys" ? 2 : 3));
}

TEST_CASE("Without an ETag the date of the file is the condition, and without both a part is dropped",
          "[unit][download]") {
  const std::string date = "Wed, 21 Oct 2015 07:28:00 GMT", content = bytes_of(150'000);
  const bool dated = GENERATE(true, false);
  std::atomic<int> calls{0};
  const HttpServer server([&](const HttpQuestion& question, const HttpAnswer& answer) {
    const size_t first = question.first_byte();
    std::string headers = fmt::format("Content-Length: {}\r\n", content.size() - first);
    if (dated) headers += "Last-Modified: " + date + "\r\nETag: W/\"weak\"\r\n";
    if (first > 0) headers += fmt::format("Content-Range: bytes {}-149999/150000\r\n", first);
    answer.head(first > 0 ? 206 : 200, headers);
    answer.send(std::string_view(content).substr(
        first, question.header("range").empty() && ++calls == 1 ? 100'000 : content.size()));
  });
  Client client;
  client.get(remote(server));
  CHECK(client.content() == content);
  REQUIRE(server.questions().size() == 2);
  CHECK(server.questions()[1].header("if-range") == (dated ? date : ""));
  CHECK(server.questions()[1].first_byte() == (dated ? 100'000 : 0));
}

TEST_CASE("Another process continues a killed download", "[unit][download]") {
  const ServedFile file{.content = bytes_of(400'000)};
  const TemporaryDirectory directory;
  int pipe_ends[2];
  REQUIRE(pipe(pipe_ends) == 0);
  const pid_t child = fork();  // before the server has threads
  if (child == 0) {
    char url[64] = {};
    if (read(pipe_ends[0], url, sizeof url - 1) > 0) {
      Downloader(DownloadOptions{})
          .file({.host = url, .path = "/d/file.bin", .name = {}, .bytes = {}, .digest = {}}, directory.path());
    }
    _exit(1);
  }
  std::atomic<bool> stalls{true};
  const HttpServer server([&](const HttpQuestion& question, const HttpAnswer& answer) {
    serve_file(file, question, answer, stalls ? 150'000 : std::string::npos);
    if (stalls) answer.stall();
  });
  REQUIRE(::write(pipe_ends[1], server.url().data(), server.url().size()) > 0);
  const std::string part = directory.path("file.bin.part");
  for (int i = 0; i < 1000; ++i) {  // 10 s
    std::error_code absent;
    if (std::filesystem::file_size(part, absent) == 150'000) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  kill(child, SIGKILL);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  close(pipe_ends[0]);
  close(pipe_ends[1]);
  REQUIRE(std::filesystem::file_size(part) == 150'000);
  CHECK_FALSE(std::filesystem::exists(directory.path("file.bin")));

  stalls = false;
  Client client;
  const DownloadedFile got = Downloader(client.options).file(remote(server), directory.path());
  CHECK(got.resumed_at == 150'000);
  CHECK(got.bytes_received == 250'000);
  CHECK(got.verified_by == "length");
  CHECK(read_file(directory.path("file.bin")) == file.content);
  CHECK_FALSE(std::filesystem::exists(part));
  CHECK_FALSE(std::filesystem::exists(part + ".source"));
  REQUIRE(server.questions().size() == 2);
  CHECK(server.questions()[1].first_byte() == 150'000);
  CHECK_THAT(client.said.front(), Contains("continues at byte 150000"));
}

TEST_CASE("A part that has all bytes is finished without the server", "[unit][download]") {
  Client client;
  const std::string content = bytes_of(1000), target = client.directory.path("file.bin");
  const RemoteFile file{.host = "http://127.0.0.1:1",  // where nobody listens
                        .path = "/d/file.bin",
                        .name = {},
                        .bytes = 1000,
                        .digest = {"sha256", sha256_of(content)}};
  const bool right = GENERATE(true, false);
  {
    PartialFile part(target, file.digest);
    part.restart({.url = file.host + file.path, .etag = "\"1\"", .last_modified = {}, .bytes = 1000});
    part.append(right ? content : bytes_of(1000, 2));
  }
  if (right) {
    CHECK(client.get(file).bytes_received == 0);
    CHECK(client.content() == content);
  } else {  // it is asked for anew
    CHECK_THAT(client.refusal<NetworkError>(file), Contains("127.0.0.1:1") || Contains("port 1"));
    CHECK(client.names().empty());
  }
}

TEST_CASE("A part is ended by 416 if it is whole, and dropped if it is longer than the file", "[unit][download]") {
  const std::string content = bytes_of(1000);
  const bool longer = GENERATE(false, true);
  std::atomic<int> calls{0};
  const HttpServer server([&](const HttpQuestion& question, const HttpAnswer& answer) {
    if (++calls == 1) {  // all bytes, but not the end of the chunks
      answer.head(200, "ETag: \"1\"\r\nTransfer-Encoding: chunked\r\n");
      return answer.send(fmt::format("{:x}\r\n{}\r\n", longer ? 1010 : 1000, content + (longer ? "0123456789" : "")));
    }
    serve_file({.content = content}, question, answer);
  });
  Client client;
  const DownloadedFile got = client.get(remote(server));
  CHECK(client.content() == content);
  CHECK(got.bytes == 1000);
  CHECK(calls == (longer ? 3 : 2));
}

TEST_CASE("A server that lies about the length is found out", "[unit][download]") {
  const std::string content = bytes_of(5000);
  const int64_t said = GENERATE(6000, 4000);
  std::atomic<int> calls{0};
  const HttpServer server([&](const HttpQuestion&, const HttpAnswer& answer) {
    ++calls;
    answer.head(200, fmt::format("Content-Length: {}\r\n", said));
    answer.send(content);
  });
  Client client;
  SECTION("with a published size") {
    CHECK_THAT(client.refusal<DataError>(remote(server, content)),
               Contains(fmt::format("the server has {} bytes, and 5000 are published", said)));
    CHECK(calls == 1);
    CHECK(client.names().empty());
  }
  SECTION("without one") {
    if (said > 5000) {
      CHECK_THAT(client.refusal<NetworkError>(remote(server)), Contains("bytes"));
      CHECK(calls == 4);
      CHECK(client.names() == kInPart);
    } else {  // nothing tells that more should come
      CHECK(client.get(remote(server)).verified_by == "length");
    }
  }
}

TEST_CASE("A body without a length, or with more bytes than are published", "[unit][download]") {
  const std::string content = bytes_of(5000);
  const HttpServer server([&](const HttpQuestion& question, const HttpAnswer& answer) {
    if (question.target == "/d/chunks") {
      answer.head(200, "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n");
      return answer.send(fmt::format("{:x}\r\n{}\r\n0\r\n\r\n", content.size(), content));
    }
    answer.head(200, "");
    answer.send(content);
  });
  Client client;
  CHECK(client.get(remote(server)).verified_by == "nothing");
  CHECK_THAT(client.said.back(), Contains("is not known"));
  CHECK(client.get(remote(server, "", "/d/chunks")).verified_by == "length");
  CHECK(client.content("chunks") == content);
  RemoteFile shorter = remote(server, "", "/d/shorter");
  shorter.bytes = 4000;
  CHECK_THAT(client.refusal<DataError>(shorter), Contains("sends more than the 4000 bytes that are published"));
  shorter.bytes = 6000;
  CHECK_THAT(client.refusal<DataError>(shorter), Contains("sent 5000 bytes, and 6000 are published"));
  CHECK(client.names() == std::vector<std::string>{"chunks", "file.bin"});
}

TEST_CASE("A damaged file does not get its name, and another mirror is asked", "[unit][download]") {
  const std::string content = bytes_of(5000), damaged = bytes_of(5000, 2);
  const HttpServer server([&](const HttpQuestion& question, const HttpAnswer& answer) {
    if (question.target.starts_with("/good/")) return serve_file({.content = content}, question, answer);
    answer.head(200, "Content-Type: text/html; charset=utf-8\r\nContent-Length: 5000\r\n");
    answer.send(damaged);
  });
  Client client;
  CHECK_THAT(client.refusal<DataError>(remote(server, content)),
             Contains(server.url() + "/d/file.bin: its sha256 is " + sha256_of(damaged) + ", and " +
                      sha256_of(content) + " is published") &&
                 Contains("a web page") && Contains("--mirror"));
  CHECK(server.questions().size() == 1);
  CHECK(client.names().empty());
  client.options.mirrors = {server.url() + "/bad", server.url() + "/good/"};
  CHECK(client.get(remote(server, content)).url == server.url() + "/good/d/file.bin");
  CHECK(client.content() == content);
}

TEST_CASE("A file in several parts that is damaged gets one more chance", "[unit][download]") {
  const ServedFile damaged{.content = bytes_of(200'000, 2)};
  const HttpServer server(
      [&](const HttpQuestion& question, const HttpAnswer& answer) { serve_file(damaged, question, answer, 100'000); });
  Client client(1000);
  CHECK_THAT(client.refusal<DataError>(remote(server, bytes_of(200'000))), Contains("its sha256 is"));
  CHECK(server.questions().size() == 4);
  CHECK(client.names().empty());
}

TEST_CASE("Refusals by status name the URL and say what helps", "[unit][download]") {
  const HttpServer server([&](const HttpQuestion& question, const HttpAnswer& answer) {
    answer.status(std::stoi(question.target.substr(1)), "Retry-After: 0\r\n");
  });
  const auto asked = [&](int status) { return remote(server, "", fmt::format("/{}", status)); };
  for (const int status : {403, 404, 410}) {
    Client client;
    CHECK_THAT(client.refusal<InputMissing>(asked(status)),
               Contains(fmt::format("cannot download {0}: {1}/{0}: the server answered {0} (", status, server.url())) &&
                   Contains("--mirror URL names another server"));
    CHECK(client.names().empty());
    CHECK(client.said.empty());
  }
  for (const int status : {401, 407, 451, 204, 501})
    CHECK_THAT(Client().refusal<NetworkError>(asked(status)), Contains("answered"));
  const size_t before = server.questions().size();
  Client client;
  CHECK_THAT(client.refusal<NetworkError>(asked(500)), Contains("the server answered 500 (an error of the server)"));
  CHECK(server.questions().size() == before + 4);
}

TEST_CASE("A server that is busy is asked again when it says so", "[unit][download]") {
  const std::string content = bytes_of(5000);
  std::atomic<int> calls{0};
  const HttpServer server([&](const HttpQuestion& question, const HttpAnswer& answer) {
    ++calls;
    if (question.target == "/patience") return answer.status(429, "Retry-After: 100000\r\n");
    if (calls == 1) return answer.status(503, "Retry-After: 1\r\n");
    if (calls == 2) return answer.status(500);
    serve_file({.content = content}, question, answer);
  });
  Client client;
  const auto start = std::chrono::steady_clock::now();
  client.get(remote(server, content));
  CHECK(calls == 3);
  CHECK(std::chrono::steady_clock::now() - start >= std::chrono::seconds(1));
  CHECK_THAT(client.said.front(), Contains("503") && Contains("trying again in 1 s"));
  CHECK_THAT(client.refusal<NetworkError>(remote(server, "", "/patience")), Contains("asks to wait for 100000 s"));
  CHECK(calls == 4);
}

TEST_CASE("Redirects are followed ten times, and to http and https alone", "[unit][download]") {
  const std::string content = bytes_of(5000);
  const HttpServer server([&](const HttpQuestion& question, const HttpAnswer& answer) {
    const std::string& target = question.target;
    if (target == "/start") return answer.status(302, "ETag: \"wrong\"\r\nLocation: /there\r\n");
    if (target == "/there") return serve_file({.content = content}, question, answer);
    if (target == "/loop") return answer.status(301, "Location: /loop\r\n");
    if (target == "/lost") return answer.status(307, "Location: /absent\r\n");
    if (target == "/file") return answer.status(302, "Location: file:///etc/passwd\r\n");
    if (target == "/ftp") return answer.status(302, "Location: ftp://127.0.0.1/x\r\n");
    answer.status(404);
  });
  Client client;
  client.get(remote(server, content, "/start"));
  CHECK(client.content("start") == content);
  CHECK_THAT(client.refusal<NetworkError>(remote(server, "", "/loop")), Contains("/loop: more than 10 redirects"));
  CHECK_THAT(client.refusal<InputMissing>(remote(server, "", "/lost")),
             Contains("/lost: the server answered 404 (not found), after a redirect to " + server.url() + "/absent"));
  for (const std::string target : {"/file", "/ftp"})
    CHECK_THAT(client.refusal<NetworkError>(remote(server, "", target)), Contains("only http and https are"));
  CHECK(client.names() == std::vector<std::string>{"start"});
}

TEST_CASE("Without a connection the error comes at once, with the host, the cause and what to do", "[unit][download]") {
  Client client(1000);
  const RemoteFile file{.host = "http://127.0.0.1:1", .path = "/d/file.bin", .name = {}, .bytes = {}, .digest = {}};
  CHECK_THAT(client.refusal<NetworkError>(file), Contains("http://127.0.0.1:1/d/file.bin: ") && Contains("connect") &&
                                                     Contains("https_proxy") && Contains("--mirror URL"));
  RemoteFile nowhere = file;
  nowhere.host = "http://nowhere.invalid";  // RFC 2606: such a host does not exist
  CHECK_THAT(client.refusal<NetworkError>(nowhere), Contains("nowhere.invalid"));
  CHECK(client.said.empty());
  CHECK(client.names().empty());
}

TEST_CASE("A stall ends an attempt", "[unit][download]") {
  const ServedFile file{.content = bytes_of(150'000)};
  std::atomic<int> calls{0};
  const HttpServer server([&](const HttpQuestion& question, const HttpAnswer& answer) {
    if (++calls == 1) return answer.stall();  // no answer at all
    serve_file(file, question, answer, calls == 2 ? 80'000 : std::string::npos);
    if (calls == 2) answer.stall();
  });
  Client client;
  client.options.http.timeout_seconds = 1;
  CHECK(client.get(remote(server)).bytes == 150'000);
  CHECK(client.content() == file.content);
  CHECK(calls == 3);
  CHECK(server.questions()[2].first_byte() == 80'000);
}

TEST_CASE("A stall on a connection that an earlier request has opened is tried again", "[unit][download]") {
  const std::string content = bytes_of(5000);
  std::atomic<int> calls{0};
  const HttpServer server([&](const HttpQuestion& question, const HttpAnswer& answer) {
    if (++calls == 1) {
      answer.keep();
      answer.head(200, "Content-Length: 4\r\n");
      return answer.send("list");
    }
    if (calls == 2) return answer.stall();
    serve_file({.content = content}, question, answer);
  });
  Client client;
  client.options.http.timeout_seconds = 1;
  Downloader downloader(client.options);
  CHECK(downloader.text(remote(server)) == "list");
  CHECK(downloader.file(remote(server), client.directory.path()).bytes == 5000);
  CHECK(calls == 3);
}

TEST_CASE("Mirrors are asked in their order, for the host's paths and then for the bare names", "[unit][download]") {
  const std::string content = bytes_of(5000);
  const HttpServer server([&](const HttpQuestion& question, const HttpAnswer& answer) {
    if (question.target == "/flat/file.bin") return serve_file({.content = content}, question, answer);
    answer.status(404);
  });
  Client client;
  client.options.mirrors = {"http://127.0.0.1:1", server.url() + "/tree", server.url() + "/flat/"};
  const RemoteFile file{
      .host = "https://example.org", .path = "/d/file.bin", .name = "own/name", .bytes = {}, .digest = {}};
  std::filesystem::create_directory(client.directory.path("own"));
  CHECK(client.get(file).url == server.url() + "/flat/file.bin");
  CHECK(client.content("own/name") == content);
  std::vector<std::string> targets;
  for (const HttpQuestion& question : server.questions()) targets.push_back(question.target);
  CHECK(targets ==
        std::vector<std::string>{"/tree/d/file.bin", "/tree/file.bin", "/flat/d/file.bin", "/flat/file.bin"});
  client.options.mirrors = {"http://127.0.0.1:1", server.url()};
  const std::string message =
      client.refusal<NetworkError>({.host = "", .path = "/x", .name = {}, .bytes = {}, .digest = {}});
  CHECK_THAT(message, Contains("http://127.0.0.1:1/x: ") && Contains(server.url() + "/x: the server answered 404"));
}

TEST_CASE("A part of one mirror is continued from another if a checksum is published", "[unit][download]") {
  const ServedFile file{.content = bytes_of(150'000), .etag = "\"a\""}, same{.content = file.content, .etag = "\"b\""};
  const HttpServer first([&](const HttpQuestion& question, const HttpAnswer& answer) {
    serve_file(file, question, answer, question.first_byte() == 0 ? 90'000 : 0);
  });
  const HttpServer second(
      [&](const HttpQuestion& question, const HttpAnswer& answer) { serve_file(same, question, answer); });
  Client client(0);
  client.options.mirrors = {first.url(), second.url()};
  const bool published = GENERATE(true, false);
  client.get(remote(first, published ? file.content : ""));
  CHECK(client.content() == file.content);
  REQUIRE(second.questions().size() == 1);
  CHECK(second.questions()[0].first_byte() == (published ? 90'000 : 0));
  CHECK(second.questions()[0].header("if-range").empty());
}

TEST_CASE("A proxy of the environment is used", "[unit][download]") {
  const std::string content = bytes_of(5000);
  const HttpServer proxy([&](const HttpQuestion& question, const HttpAnswer& answer) {
    serve_file({.content = content}, question, answer);
  });
  Client client;
  setenv("http_proxy", proxy.url().c_str(), 1);
  client.get({.host = "http://nowhere.invalid", .path = "/d/file.bin", .name = {}, .bytes = {}, .digest = {}});
  unsetenv("http_proxy");
  CHECK(client.content() == content);
  CHECK(proxy.questions()[0].target == "http://nowhere.invalid/d/file.bin");
}

TEST_CASE("A disk without room, or a second process, is told before the download", "[unit][download]") {
  const HttpServer server([&](const HttpQuestion&, const HttpAnswer& answer) {
    answer.head(200, "Content-Length: 1000000000000000000\r\n");
    answer.send("x");
  });
  Client client;
  CHECK_THAT(client.refusal<IoError>(remote(server)),
             Contains("the disk is full: the rest of the download needs 1000000000000000000 bytes, ") &&
                 Contains(" are free"));
  const PartialFile held(client.directory.path("file.bin"), {});
  CHECK_THAT(client.refusal<IoError>(remote(server)), Contains("file.bin.part: another process is downloading"));
}

}  // namespace
}  // namespace bert
