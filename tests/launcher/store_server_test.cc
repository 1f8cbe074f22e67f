// bertrun's store under clients that break the protocol, take without end, do not read, or belong to another user.
#include "app/launcher/store/store_server.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <deque>
#include <filesystem>
#include <functional>
#include <optional>
#include <random>
#include <thread>

// Last, because they include Catch2.
#include "tests/support/event_loop_testing.h"
#include "tests/support/store_testing.h"

using namespace bert;
using namespace bert::testing;

namespace {

/// A store in this process, and clients of it.
struct Store {
  explicit Store(int64_t ranks = 2) { server.start_round(ranks); }
  StoreClient client(const std::string& hello = kHello) const { return StoreClient(server.endpoint().port, hello); }
  bool until(const std::function<bool()>& condition) {
    return run_until(loop, [&] {
      loop.after(0.001, [] {});
      return condition();
    });
  }
  /// Lets the store handle what is on its way.
  void settle() {
    for (int i = 0; i < 20; ++i) {
      loop.after(0.001, [] {});
      loop.run_once();
    }
  }
  /// Sends a request and returns the answer, which has `size` bytes.
  std::string ask(StoreClient& client, const std::string& bytes, size_t size) {
    client.received.clear();
    size_t sent = 0;
    const bool answered = until([&] {
      sent += client.send(std::string_view(bytes).substr(sent));
      return client.receive() >= size || client.ended;
    });
    CHECK(answered);
    return client.received;
  }
  /// Sends all bytes, or as many as the store takes before it closes the connection.
  void push(StoreClient& client, const std::string& bytes) {
    size_t sent = 0;
    until([&] {
      sent += client.send(std::string_view(bytes).substr(sent));
      client.receive();
      return sent == bytes.size() || client.ended;
    });
  }
  EventLoop loop;
  StoreServer server{loop, {"127.0.0.1", 0}};
};

/// The bytes that a callable writes to stderr.
std::string stderr_of(const std::function<void()>& run) {
  const TemporaryDirectory directory;
  const int saved = dup(STDERR_FILENO);
  const Descriptor file(open(directory.path("stderr").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  dup2(file.get(), STDERR_FILENO);
  run();
  dup2(saved, STDERR_FILENO);
  close(saved);
  std::string text(1 << 16, '\0');
  const ssize_t size = pread(file.get(), text.data(), text.size(), 0);
  text.resize(size > 0 ? static_cast<size_t>(size) : 0);
  return text;
}

size_t open_descriptors() {
  size_t number = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++number;
  return number;
}

constexpr uid_t kNobody = 65534;  // "nobody" on Debian; any user but root serves

/// Runs a callable as another user in a child process. Its result is the exit code.
pid_t as_stranger(const std::function<int()>& run) {
  const pid_t pid = fork();
  if (pid == 0)
    _exit(setresgid(kNobody, kNobody, kNobody) != 0 || setresuid(kNobody, kNobody, kNobody) != 0 ? 99 : run());
  return pid;
}

}  // namespace

TEST_CASE("a store takes requests in pieces of any size, and several at once", "[unit][store]") {
  Store store;
  StoreClient client = store.client("");
  const std::string bytes = kHello + request(kSet, {sized("key"), sized("value")}) + request(kGet, {sized("key")}) +
                            keys_request(kCheck, {"key", "other"}) + request(kAdd, {sized("n"), bytes_of(int64_t{-5})});
  const std::string answer = sized("value") + '\1' + bytes_of(int64_t{-5});
  for (const char byte : bytes) {
    client.send({&byte, 1});
    store.settle();
  }
  REQUIRE(store.until([&] { return client.receive() == answer.size(); }));
  CHECK(client.received == answer);
  StoreClient hurried = store.client(bytes);
  REQUIRE(store.until([&] { return hurried.receive() == answer.size(); }));
  CHECK(hurried.received == sized("value") + '\1' + bytes_of(int64_t{-10}));
}

TEST_CASE("each round of a store is empty, and between rounds clients wait", "[unit][store]") {
  Store store;
  StoreClient client = store.client();
  CHECK(store.ask(client, request(kSet, {sized("key"), sized("value")}) + request(kGetNumKeys), 8) ==
        bytes_of(int64_t{1}));
  store.server.stop();
  CHECK(store.until([&] { return client.receive() == 0 || client.ended; }));
  CHECK(store.server.memory() < 4096);
  StoreClient early = store.client(kHello + request(kGetNumKeys));
  store.settle();
  CHECK(early.receive() == 0);
  CHECK_FALSE(early.ended);
  store.server.start_round(2);
  CHECK(store.until([&] { return early.receive() == 8; }));
  CHECK(early.received == bytes_of(int64_t{0}));
}

TEST_CASE("a connection that breaks the protocol is closed, and others go on", "[unit][store]") {
  Store store;
  StoreClient good = store.client(kHello + request(kSet, {sized("key"), sized("value")}));
  const uint64_t huge = uint64_t{1} << 63;
  const std::vector<std::string> broken = {
      "GET / HTTP/1.1\r\n\r\n",                                                   // another protocol
      request(kGet, {sized("key")}),                                              // not validated
      request(kValidate, {bytes_of(uint32_t{1})}),                                // another number
      kHello + kHello,                                                            // validated twice
      kHello + '\x12',                                                            // unknown types
      kHello + '\xff',                                                            //
      kHello + request(kGet, {bytes_of(huge)}),                                   // lengths
      kHello + request(kGet, {bytes_of(uint64_t{8193})}),                         //
      kHello + request(kSet, {sized("key"), bytes_of(~uint64_t{0})}),             //
      kHello + request(kSet, {sized("key"), bytes_of(uint64_t{(8 << 20) + 1})}),  //
      kHello + request(kWait, {bytes_of(huge)}),                                  // numbers of keys
      kHello + request(kMultiSet, {bytes_of(uint64_t{(128 << 10) + 1})}),         //
      kHello + request(kAdd, {sized("key"), bytes_of(int64_t{1})}),               // "value" is no number
  };
  for (const std::string& bytes : broken) {
    CAPTURE(bytes);
    StoreClient bad = store.client(bytes);
    CHECK(store.until([&] {
      bad.receive();
      return bad.ended;
    }));
    CHECK(bad.received.empty());
    CHECK(store.ask(good, request(kGet, {sized("key")}), 13) == sized("value"));
  }
  // Half requests wait, and go with their connection.
  {
    const std::string whole = request(kMultiSet, {bytes_of(uint64_t{1}), sized("key"), sized("other")});
    std::deque<StoreClient> halves;
    for (size_t size = 0; size < whole.size(); ++size) halves.push_back(store.client(kHello + whole.substr(0, size)));
    CHECK(store.until([&] { return store.server.clients() == 1 + whole.size(); }));
  }
  CHECK(store.until([&] { return store.server.clients() == 1; }));
  CHECK(store.ask(good, request(kGet, {sized("key")}), 13) == sized("value"));
}

TEST_CASE("random bytes never stop a store or grow it", "[unit][store]") {
  Store store;
  StoreClient good = store.client(kHello + request(kSet, {sized("key"), sized("value")}));
  store.settle();
  std::mt19937_64 random(20);
  for (int round = 0; round < 3000; ++round) {
    std::string bytes;
    const auto requests = random() % 4;
    for (uint64_t i = 0; i <= requests; ++i) {
      bytes += static_cast<char>(random() % 20);
      for (uint64_t field = random() % 4; field > 0; --field) {
        // Mostly small lengths, else any number.
        bytes += bytes_of(random() % 4 != 0 ? random() % 6 : random() >> random() % 64);
        bytes += std::string(random() % 6, static_cast<char>(random()));
      }
    }
    StoreClient client = store.client(kHello + bytes);
    store.loop.run_once();
    client.receive();
  }
  CHECK(store.until([&] { return store.server.clients() == 1; }));
  CHECK(store.server.memory() < 1 << 20);
  const std::string answer = store.ask(good, request(kPing, {"ping"}), 4);
  CHECK(answer == "ping");
}

TEST_CASE("a client that stores without end is cut off, and no other loses anything", "[unit][store]") {
  Store store;
  StoreClient good = store.client(kHello + request(kSet, {sized("key"), sized("value")}));
  store.settle();
  const size_t limit = StoreServer::kMemory + 2 * StoreServer::kMemoryOfRank;
  const std::string megabyte(1 << 20, 'x'), five_megabytes(5 << 20, 'x');
  for (const StoreRequestType type : {kSet, kAppend, kQueuePush, kMultiSet, kCompareSet}) {
    CAPTURE(static_cast<int>(type));
    StoreClient greedy = store.client();
    const std::string said = stderr_of([&] {
      for (int i = 0; i < 200 && !greedy.ended; ++i) {
        const std::string key = sized(type == kAppend ? "long" : "greedy" + std::to_string(i));
        // A string that grows doubles: the value of 40 MiB must not become one of 80.
        std::string bytes = request(type, {key, sized(type == kAppend ? five_megabytes : megabyte)});
        if (type == kMultiSet) bytes = request(type, {bytes_of(uint64_t{1}), key, sized(megabyte)});
        if (type == kCompareSet) bytes = request(type, {key, sized(""), sized(megabyte)});
        store.push(greedy, bytes);
      }
    });
    CHECK(greedy.ended);
    CHECK(store.server.memory() <= limit + (4 << 20));  // and the buffer of the last request
    CHECK(store.ask(good, request(kGet, {sized("key")}), 13) == sized("value"));
    if (type == kSet) {  // the first line in ten seconds
      CAPTURE(said);
      CHECK(said.find("the store closes a connection of a rank on another machine") != std::string::npos);
      CHECK(said.find("the limit is 64.1 MiB") != std::string::npos);
    }
    store.server.start_round(2);
    good = store.client(kHello + request(kSet, {sized("key"), sized("value")}));
    store.settle();
  }
  // Half a request counts too.
  std::deque<StoreClient> halves;
  for (int i = 0; i < 20; ++i) {
    halves.push_back(store.client());
    store.push(halves.back(), request(kSet, {sized("half"), sized(std::string(7 << 20, 'h'))}).substr(0, 7 << 20));
  }
  CHECK(store.server.memory() <= limit + (16 << 20));
  halves.clear();
  CHECK(store.until([&] { return store.server.clients() == 1; }));
  CHECK(store.server.memory() < 1 << 20);
  CHECK(store.ask(good, request(kGet, {sized("key")}), 13) == sized("value"));
}

TEST_CASE("clients that do not read cost no copies of what they ask for, and get all of it later", "[unit][store]") {
  Store store;
  StoreClient writer = store.client();
  const std::string large(8 << 20, 'l');
  CHECK(store.ask(writer, request(kSet, {sized("large"), sized(large)}) + request(kPing, {"ping"}), 4) == "ping");
  std::deque<StoreClient> slow;
  const std::vector<std::string> often(5, "large");
  for (int i = 0; i < 50; ++i) slow.push_back(store.client(kHello + keys_request(kMultiGet, often)));
  store.settle();
  const size_t memory = store.server.memory();
  CHECK(memory < 20 << 20);
  // A value that is replaced meanwhile arrives as it was.
  store.push(writer, request(kSet, {sized("large"), sized("small")}));
  store.push(writer, request(kAppend, {sized("large"), sized("er")}));
  CHECK(store.ask(writer, request(kGet, {sized("large")}), 15) == sized("smaller"));
  StoreClient& first = slow.front();
  CHECK(store.until([&] { return first.receive() == 5 * (large.size() + 8); }));
  const std::string_view answer = first.received;
  CHECK(bool{answer.substr(0, large.size() + 8) == sized(large)});
  CHECK(bool{answer.substr(4 * (large.size() + 8)) == sized(large)});
  slow.clear();
  CHECK(store.until([&] { return store.server.clients() == 1; }));
  CHECK(store.server.memory() < 1 << 20);
  // Requests that nobody reads the answers of wait in the kernel.
  StoreClient chatty = store.client();
  const std::string ask = keys_request(kMultiGet, std::vector<std::string>(1000, "large"));
  size_t taken = 0;
  for (int idle = 0; idle < 20;) {
    const size_t sent = chatty.send(ask);
    taken += sent;
    idle = sent == 0 ? idle + 1 : 0;
    store.loop.after(0.001, [] {});
    store.loop.run_once();
    if (taken > 64 << 20) break;
  }
  CHECK(taken < 64 << 20);
  CHECK(store.server.memory() < 2 << 20);
}

TEST_CASE("a client that waits is woken once, and one that goes away leaves nothing behind", "[unit][store]") {
  Store store;
  StoreClient writer = store.client();
  store.settle();
  const size_t before = store.server.memory();
  {
    std::deque<StoreClient> waiters;
    for (int i = 0; i < 100; ++i) waiters.push_back(store.client(kHello + keys_request(kWait, {"a", "b", "a"})));
    CHECK(store.until([&] { return store.server.clients() == 101; }));
    store.settle();
    waiters.erase(waiters.begin() + 1, waiters.end());
    CHECK(store.until([&] { return store.server.clients() == 2; }));
    CHECK(store.ask(writer, request(kSet, {sized("a"), sized("1")}) + request(kGetNumKeys), 8).size() == 8);
    CHECK(waiters[0].receive() == 0);
    CHECK(store.ask(writer, request(kSet, {sized("b"), sized("1")}) + request(kGetNumKeys), 8).size() == 8);
    CHECK(store.until([&] { return waiters[0].receive() == 1; }));
    CHECK(store.ask(writer, request(kSet, {sized("b"), sized("2")}) + request(kGetNumKeys), 8).size() == 8);
    CHECK(waiters[0].receive() == 1);
    // A wait that is cancelled is forgotten; 1,000 of them cost nothing.
    for (int i = 0; i < 1000; ++i) {
      const std::string poll = keys_request(kWait, {"never" + std::to_string(i)}) + request(kCancelWait);
      CHECK(store.ask(waiters[0], poll, 1) == "\1");
    }
  }
  CHECK(store.until([&] { return store.server.clients() == 1; }));
  store.ask(writer, request(kDeleteKey, {sized("a")}), 8);
  store.ask(writer, request(kDeleteKey, {sized("b")}), 8);
  CHECK(store.server.memory() <= before + 64);
}

TEST_CASE("a push wakes one of those that wait for a queue, in the order of their coming", "[unit][store]") {
  Store store;
  StoreClient writer = store.client();
  std::deque<StoreClient> waiters;
  for (int i = 0; i < 3; ++i) {
    waiters.push_back(store.client(kHello + keys_request(kWait, {"queue"})));
    store.settle();
  }
  for (size_t i = 0; i < 3; ++i) {
    CHECK(store.ask(writer, request(kQueuePush, {sized("queue"), sized("job")}) + request(kPing, {"ping"}), 4) ==
          "ping");
    CHECK(store.until([&] { return waiters[i].receive() == 1; }));
    for (size_t other = i + 1; other < 3; ++other) CHECK(waiters[other].receive() == 0);
    CHECK(store.ask(waiters[i], request(kQueuePop, {sized("queue")}), 19) == bytes_of(int64_t{1}) + sized("job"));
  }
  // A client that has been served hears of no later push.
  StoreClient& served = waiters.front();
  served.received.clear();
  served.send(keys_request(kWait, {"other"}));
  store.settle();
  CHECK(store.ask(writer, request(kQueuePush, {sized("queue"), sized("job")}) + request(kPing, {"ping"}), 4) == "ping");
  store.settle();
  CHECK(served.receive() == 0);
}

TEST_CASE("another user's connections to a store are reset and counted", "[unit][store]") {
  if (geteuid() != 0) BERT_SKIP("only root can become another user");
  Store store;
  StoreClient good = store.client(kHello + request(kSet, {sized("key"), sized("value")}));
  store.settle();
  const int64_t port = store.server.endpoint().port;
  const std::string said = stderr_of([&] {
    std::optional<Store> second(std::in_place);
    const int64_t other = second->server.endpoint().port;
    const pid_t pid = as_stranger([&] {
      StoreClient stranger(other, kHello + request(kGet, {sized("key")}));
      for (int i = 0; i < 500 && !stranger.ended; ++i) {
        stranger.receive();
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
      return !stranger.ended ? 2 : stranger.received.empty() ? 0 : 1;
    });
    int status = -1;
    pid_t ended = 0;
    CHECK(second->until([&] { return ended == pid || (ended = waitpid(pid, &status, WNOHANG)) == pid; }));
    CHECK(status == 0);
    CHECK(second->server.turned_away().by_reason() == std::map<std::string, int64_t>{{"of user 65534", 1}});
    second.reset();
  });
  CHECK(said.find("turned away 1 connections to port") != std::string::npos);
  CHECK(said.find("1 of user 65534") != std::string::npos);
  // A flood: the rank's requests are answered, and no descriptor stays behind.
  const size_t before = open_descriptors();
  const pid_t flood = as_stranger([&] {
    std::deque<StoreClient> open;
    for (;;) {
      open.emplace_back(port, kHello + request(kSet, {sized("key"), sized("other")}));
      if (open.size() > 500) open.pop_front();
    }
    return 0;
  });
  const auto refused = [&] {
    const auto& reasons = store.server.turned_away().by_reason();
    const auto found = reasons.find("of user 65534");
    return found == reasons.end() ? 0 : found->second;
  };
  CHECK(store.until([&] { return refused() > 5000; }));
  size_t most = 0;
  for (int i = 0; i < 200; ++i) {
    CHECK(store.ask(good, request(kGet, {sized("key")}), 13) == sized("value"));
    most = std::max(most, open_descriptors());
  }
  CHECK(store.server.clients() == 1);
  CHECK(most <= before + 2);
  kill(flood, SIGKILL);
  waitpid(flood, nullptr, 0);
}
