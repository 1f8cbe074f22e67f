// The server over a socket, with clients of all kinds.
#include "app/http/server.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <future>
#include <iterator>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "app/net/socket.h"
#include "tests/http/raw_client.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::Contains;
using bert::testing::RawClient;
using std::chrono::duration;
using Clock = std::chrono::steady_clock;

namespace {

/// Answers with method, path and body. /large: 8 MB in parts. /throw: an exception. /wait: when the gate is open. /secret:
/// refused by its head.
class EchoHandler final : public HttpHandler {
 public:
  void check(const ServerRequest& request) override {
    if (request.path == "/secret") throw HttpError(401, "no");
  }
  [[nodiscard]] bool answers_when_full(const ServerRequest& request) const override {
    return request.path == "/health";
  }
  ServerResponse answer(const ServerRequest& request) override {
    {
      const std::lock_guard lock(mutex_);
      answered_.push_back(request.method + " " + request.path + " " + request.body);
    }
    if (request.path == "/throw") throw std::runtime_error("broken");
    if (request.path == "/wait") {
      std::unique_lock lock(mutex_);
      ++waiting_;
      changed_.notify_all();
      changed_.wait(lock, [this] { return open_; });
    }
    ServerResponse response{.content_type = "text/plain",
                            .body = request.method + " " + request.path + " " + request.body};
    if (request.path == "/large") {
      response.body.clear();
      response.next_part = [left = 8]() mutable { return left-- > 0 ? std::string(1 << 20, 'x') : std::string(); };
    }
    return response;
  }
  void finished(const std::string& path, int status, double seconds) override {
    const std::lock_guard lock(mutex_);
    finished_.push_back(path + " " + std::to_string(status));
    slowest_ = std::max(slowest_, seconds);
  }

  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void wait_for_waiting(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_ >= count; });
  }
  std::vector<std::string> answered() {
    const std::lock_guard lock(mutex_);
    return answered_;
  }
  std::vector<std::string> finished() {
    const std::lock_guard lock(mutex_);
    return finished_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  int waiting_ = 0;
  double slowest_ = 0;
  std::vector<std::string> answered_, finished_;
};

struct TestServer {
  explicit TestServer(int64_t max_connections = 64, const ConnectionLimits& limits = {.max_body_bytes = 1000})
      : listener(listen_on({"127.0.0.1", 0})),
        port(port_of(listener.get())),
        server(std::move(listener), max_connections, limits, handler, counts) {}
  ~TestServer() { handler.open(); }
  EchoHandler handler;
  ConnectionCounts counts;
  Descriptor listener;
  int64_t port;
  HttpServer server;
};

std::string get(const std::string& path) { return "GET " + path + " HTTP/1.1\r\nHost: a\r\n\r\n"; }

std::string post(const std::string& path, const std::string& body) {
  return "POST " + path + " HTTP/1.1\r\nHost: a\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

std::string body_of(const std::string& answer) { return answer.substr(answer.find("\r\n\r\n") + 4); }

/// The status of the only answer to `bytes`, after which the connection must end.
int last_status(int64_t port, const std::string& bytes) {
  RawClient client(port);
  client.send(bytes);
  const int status = client.status();
  return client.closed() ? status : -status;
}

/// Limits of a fraction of a second, for clients that are too slow.
ConnectionLimits hasty() {
  return {.read = duration<double>(0.3), .request = duration<double>(0.8), .max_body_bytes = 1000};
}

}  // namespace

TEST_CASE("Requests are answered in order on one connection, also if they come at once", "[unit][serve]") {
  TestServer server;
  RawClient client(server.port);
  client.send(post("/a", "one"));
  CHECK(body_of(client.answer()) == "POST /a one");
  client.send(get("/b%20c?x=1") + post("/c", "two") + get("/d"));
  CHECK(body_of(client.answer()) == "GET /b c ");
  CHECK(body_of(client.answer()) == "POST /c two");
  const std::string last = client.answer();
  CHECK(body_of(last) == "GET /d ");
  CHECK(last.find("Connection: close") == std::string::npos);
  client.send("HEAD /e HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  const std::string head = client.rest();
  CHECK(body_of(head).empty());
  CHECK_THAT(head, Contains("Content-Length: 8\r\n"));
  CHECK_THAT(head, Contains("Connection: close\r\n"));
  CHECK_THAT(head, Contains("X-Content-Type-Options: nosniff\r\n"));
}

TEST_CASE("A chunked body is put together, and a malformed one refused", "[unit][serve]") {
  TestServer server;
  const std::string head = "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
  RawClient client(server.port);
  client.send(head + "3\r\none\r\n4;x=y\r\n two\r\n0\r\n\r\n");
  CHECK(body_of(client.rest()) == "POST /a one two");
  RawClient with_trailer(server.port);
  with_trailer.send(head + "3\r\none\r\n0\r\nAuthorization: x\r\nX: y\r\n\r\n");
  CHECK(body_of(with_trailer.rest()) == "POST /a one");
  for (const char* size : {"+3", "0x3", "-3", " 3", "3g", "", "_3"}) {
    CAPTURE(size);
    CHECK(last_status(server.port, head + size + "\r\none\r\n0\r\n\r\n") == 400);
  }
  CHECK(last_status(server.port, head + "zz\r\n") == 400);
  CHECK(last_status(server.port, head + "-1\r\nabc") == 400);
  CHECK(last_status(server.port, head + "3\r\nabcdef\r\n0\r\n\r\n") == 400);
  CHECK(last_status(server.port, head + "FFFFFFFFFFFFFFFFF\r\nabc") == 400);
  CHECK(last_status(server.port, head + "7D0\r\n" + std::string(2000, 'x') + "\r\n0\r\n\r\n") == 413);
  CHECK(last_status(server.port, head + "1;" + std::string(100'000, 'x')) == 413);
  std::string crumbs;
  for (int i = 0; i < 1001; ++i) crumbs += "1\r\nx\r\n";
  CHECK(last_status(server.port, head + crumbs + "0\r\n\r\n") == 413);
}

TEST_CASE("A compressed body is unpacked", "[unit][serve]") {
  TestServer server;
  const auto status = [&](const std::string& coding, std::string_view body) {
    std::string request = post("/a", std::string(body));
    request.insert(request.find("\r\n") + 2, "Connection: close\r\nContent-Encoding: " + coding + "\r\n");
    return last_status(server.port, request);
  };
  constexpr std::string_view kOne("\x78\x9c\xcb\xcf\x4b\x05\x00\x02\x91\x01\x43",
                                  11);  // Python's zlib.compress(b"one")
  CHECK(status("deflate", kOne) == 200);
  CHECK(server.handler.answered().back() == "POST /a one");
  CHECK(status("gzip", "one") == 400);
  CHECK(status("br", "one") == 415);
}

TEST_CASE("A request with two lengths is refused, and nothing in it is taken for a second request", "[unit][serve]") {
  TestServer server;
  const std::string hidden = get("/hidden");
  for (const std::string& fields :
       {std::string("Content-Length: 0\r\nContent-Length: 5\r\n"),
        std::string("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"),
        std::string("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"), std::string("Content-Length: 0\nX: y\r\n"),
        std::string("Content-Length : 0\r\n"), std::string("Transfer-Encoding: xchunked\r\n")}) {
    CAPTURE(fields);
    const int status = last_status(server.port, "POST /a HTTP/1.1\r\nHost: a\r\n" + fields + "\r\n0\r\n\r\n" + hidden);
    CHECK((status == 400 || status == 501));
  }
  // Bodies that are refused unread, and those of methods without one.
  CHECK(last_status(server.port, "POST /secret HTTP/1.1\r\nHost: a\r\nContent-Length: 99\r\n\r\n" + hidden) == 401);
  CHECK(last_status(server.port, "GET /a HTTP/1.1\r\nHost: a\r\nContent-Length: 99\r\n\r\n" + hidden) == 200);
  CHECK(last_status(server.port,
                    "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden) == 200);
  CHECK(last_status(server.port, "POST /a HTTP/1.0\r\nContent-Length: 0\r\n\r\n" + hidden) == 200);
  for (const std::string& answered : server.handler.answered()) CHECK(answered.find("hidden") == std::string::npos);
}

TEST_CASE("Heads and bodies beyond the limits are refused with their status", "[unit][serve]") {
  TestServer server;
  CHECK(last_status(server.port, "nonsense\r\n\r\n") == 400);
  CHECK(last_status(server.port, "GET / HTTP/1.1\r\nHost: a\r\nX: " + std::string(20'000, 'x') + "\r\n\r\n") == 431);
  CHECK(last_status(server.port, std::string(20'000, 'x')) == 431);
  CHECK(last_status(server.port, "GET /" + std::string(2000, 'x') + " HTTP/1.1\r\nHost: a\r\n\r\n") == 414);
  CHECK(last_status(server.port, "POST /a HTTP/1.1\r\nHost: a\r\n\r\n") == 411);
  CHECK(last_status(server.port, post("/a", std::string(1001, 'x'))) == 413);
  CHECK(last_status(server.port, post("/a", std::string(5'000'000, 'x'))) == 413);
  RawClient client(server.port);
  client.send(post("/a", std::string(1000, 'x')));
  CHECK(client.status() == 200);
  client.send(get("/throw"));
  const std::string broken = client.answer();
  CHECK_THAT(broken, Contains("HTTP/1.1 500 "));
  CHECK(body_of(broken) == R"({"error":"internal error; the server's standard error has the reason"})");
  const std::vector<std::string> finished = server.handler.finished();
  CHECK(finished.front() == " 400");
}

TEST_CASE("A client that waits for 100 gets it if its body is wanted", "[unit][serve]") {
  TestServer server;
  const std::string fields = " HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: ";
  RawClient client(server.port);
  client.send("POST /a" + fields + "3\r\n\r\n");
  CHECK(client.answer() == "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("one");
  CHECK(body_of(client.answer()) == "POST /a one");
  CHECK(last_status(server.port, "POST /a" + fields + "5000\r\n\r\n") == 413);
  CHECK(last_status(server.port, "POST /secret" + fields + "3\r\n\r\n") == 401);
}

TEST_CASE("A client that is too slow gets 408, however it divides its bytes", "[unit][serve]") {
  TestServer server(64, hasty());
  const auto begin = Clock::now();
  CHECK(last_status(server.port, "GET / HT") == 408);
  CHECK(last_status(server.port, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc") == 408);
  CHECK(last_status(server.port, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3") == 408);
  for (const std::string& start :
       {std::string("GET /"), std::string("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 900\r\n\r\n")}) {
    RawClient drip(server.port);
    drip.send(start);
    bool open = true;
    const auto drip_begin = Clock::now();
    while (open && Clock::now() - drip_begin < std::chrono::seconds(5)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(40));
      open = drip.send("x") && server.handler.finished().size() < (start.size() > 10 ? 5U : 4U);
    }
    CHECK(drip.status() == 408);
  }
  RawClient silent(server.port);  // an idle connection is closed without an answer
  CHECK(silent.rest().empty());
  CHECK(Clock::now() - begin < std::chrono::seconds(20));
  RawClient good(server.port);
  good.send(get("/a"));
  CHECK(good.status() == 200);
}

TEST_CASE("A client that does not take its answer is cut", "[unit][serve]") {
  TestServer server(64, hasty());
  RawClient client(server.port);
  client.send(get("/large"));
  const auto begin = Clock::now();
  while (server.handler.finished().empty() && Clock::now() - begin < std::chrono::seconds(20))
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  CHECK(server.handler.finished() == std::vector<std::string>{"/large 200"});
  CHECK(client.rest().find("\r\n0\r\n\r\n") == std::string::npos);
}

TEST_CASE("An answer in parts is chunked, or ends with the connection for HTTP/1.0", "[unit][serve]") {
  TestServer server;
  RawClient client(server.port);
  client.send("GET /large HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip, br\r\nConnection: close\r\n\r\n");
  const std::string chunked = client.rest();
  CHECK_THAT(chunked.substr(0, 300), Contains("Transfer-Encoding: chunked\r\n"));
  const std::string parts = body_of(chunked);
  CHECK(std::count(parts.begin(), parts.end(), 'x') == 8 << 20);
  CHECK(chunked.ends_with("\r\n0\r\n\r\n"));
  RawClient old(server.port);
  old.send("GET /large HTTP/1.0\r\n\r\n");
  const std::string plain = old.rest();
  CHECK(body_of(plain) == std::string(8 << 20, 'x'));
}

TEST_CASE("Requests beyond the limit get 503, but those for the server's health an answer", "[unit][serve]") {
  TestServer server(3);
  std::vector<RawClient> busy;
  for (int i = 0; i < 3; ++i) {
    busy.emplace_back(server.port);
    busy.back().send(get("/wait"));
  }
  server.handler.wait_for_waiting(3);
  std::vector<RawClient> further;
  for (int i = 0; i < 60; ++i) {
    further.emplace_back(server.port);
    further.back().send(get("/a"));
  }
  for (RawClient& client : further) {
    const std::string answer = client.answer();
    CHECK_THAT(answer, Contains("HTTP/1.1 503 "));
    CHECK_THAT(answer, Contains("Retry-After: 1\r\n"));
    CHECK(body_of(answer) == R"({"error":"the server has as many connections as it may have"})");
  }
  CHECK(server.counts.refused == 60);
  std::vector<RawClient> silent;
  for (int i = 0; i < 200; ++i) silent.emplace_back(server.port);  // more than kExtraConnections
  RawClient probe(server.port);
  probe.send(get("/health"));
  CHECK(probe.status() == 200);
  server.handler.open();
  for (RawClient& client : busy) CHECK(client.status() == 200);
  busy.clear();
  while (server.counts.open > 0) std::this_thread::yield();
  RawClient client(server.port);
  client.send(get("/a"));
  CHECK(client.status() == 200);
}

TEST_CASE("A full server ends what has waited longest for its client, and no request that it answers",
          "[unit][serve]") {
  TestServer server(5, {.read = duration<double>(60), .request = duration<double>(60), .max_body_bytes = 1000});
  RawClient busy(server.port), body(server.port), kept(server.port);
  busy.send(get("/wait"));
  server.handler.wait_for_waiting(1);
  body.send("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n");
  kept.send(get("/a"));
  CHECK(kept.status() == 200);
  std::vector<RawClient> silent;
  for (int i = 0; i < 300; ++i) {
    silent.emplace_back(server.port);
    silent.back().send("GET / HT");
    if (i % 10 == 0) {
      RawClient good(server.port);
      good.send(get("/b"));
      CHECK(good.status() == 200);
    }
  }
  CHECK(silent.front().rest().empty());  // ended without an answer
  body.send("one");
  CHECK(body_of(body.answer()) == "POST /a one");
  kept.send(get("/c"));
  CHECK(body_of(kept.answer()) == "GET /c ");
  server.handler.open();
  CHECK(busy.status() == 200);
  CHECK(server.counts.refused == 0);
}

TEST_CASE("Good clients are answered beside clients that send a part and then nothing", "[unit][serve]") {
  TestServer server(300);
  std::vector<RawClient> slow;
  for (int i = 0; i < 200; ++i) {
    slow.emplace_back(server.port);
    slow.back().send(i % 2 == 0 ? "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n"
                                : "GET / HTTP/1.1\r\nHost: a\r\n");
  }
  const auto begin = Clock::now();
  for (int i = 0; i < 50; ++i) {
    RawClient client(server.port);
    client.send(get("/a"));
    CHECK(client.status() == 200);
  }
  CHECK(Clock::now() - begin < std::chrono::seconds(4));  // before any slow client's time is over
}

TEST_CASE("Thousands of silent connections delay nobody, and cost no thread", "[unit][serve]") {
  constexpr int kSilent = 2000, kFurtherFiles = 200;
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  const rlim_t wanted = 2 * kSilent + kFurtherFiles;  // both ends are in this process
  if (files.rlim_max < wanted) BERT_SKIP("the limit of open files cannot be raised to 4,200");
  files.rlim_cur = std::max(files.rlim_cur, wanted);
  REQUIRE(setrlimit(RLIMIT_NOFILE, &files) == 0);
  const auto threads = [] {
    const std::filesystem::directory_iterator of_process("/proc/self/task");
    return std::distance(begin(of_process), end(of_process));
  };
  TestServer server(kSilent + 1, {.read = duration<double>(60), .request = duration<double>(60)});
  const auto before = threads();
  std::vector<RawClient> silent;
  for (int i = 0; i < kSilent; ++i) {
    silent.emplace_back(server.port);
    if (i % 2 == 0) silent.back().send("POST / HTTP/1.1\r\n");
  }
  while (server.counts.open < kSilent) std::this_thread::yield();
  RawClient client(server.port);
  client.send(get("/a"));
  CHECK(client.status() == 200);
  CHECK(threads() <= before + 1);  // that of the answered request
  CHECK(server.counts.refused == 0);
}

TEST_CASE("Clients that leave in the middle do no harm", "[unit][serve]") {
  TestServer server;
  for (const std::string& part : {std::string("G"), get("/a"), post("/a", "body").substr(0, 60), std::string()}) {
    for (int i = 0; i < 20; ++i) RawClient(server.port).send(part);
  }
  RawClient(server.port).send(get("/large"));
  const auto begin = Clock::now();
  const auto patient = [&] { return Clock::now() - begin < std::chrono::seconds(20); };
  int status = 503;  // while more of the clients that left are connections than the server may have
  while (status == 503 && patient()) {
    RawClient client(server.port);
    client.send(get("/a"));
    status = client.status();
  }
  CHECK(status == 200);
  while (server.counts.open > 0 && patient()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  CHECK(server.counts.open == 0);
}

TEST_CASE("A draining server answers what has been asked, and takes no new connection", "[unit][serve]") {
  TestServer server;
  RawClient busy(server.port), idle(server.port);
  idle.send(get("/a"));
  CHECK(idle.status() == 200);
  busy.send(post("/wait", "x"));
  server.handler.wait_for_waiting(1);
  server.server.stop_accepting();
  CHECK_THROWS(RawClient(server.port));
  CHECK_FALSE(server.server.wait_until_answered(Clock::now() + std::chrono::milliseconds(50)));
  idle.send(get("/b"));  // an open connection is answered once more
  const std::string last = idle.rest();
  CHECK(body_of(last) == "GET /b ");
  CHECK_THAT(last, Contains("Connection: close\r\n"));
  server.handler.open();
  CHECK(server.server.wait_until_answered(Clock::now() + std::chrono::seconds(20)));
  server.server.end();
  CHECK(body_of(busy.rest()) == "POST /wait x");
  CHECK(server.counts.open == 0);
}

TEST_CASE("The end of a server cuts what is still open", "[unit][serve]") {
  TestServer server(64, {.read = duration<double>(600), .request = duration<double>(600), .max_body_bytes = 1000});
  RawClient idle(server.port), half(server.port);
  half.send("GET /");
  while (server.counts.open < 2) std::this_thread::yield();
  const auto begin = Clock::now();
  server.server.end();
  CHECK(Clock::now() - begin < std::chrono::seconds(5));
  CHECK(idle.rest().empty());
  CHECK(half.rest().empty());
}
