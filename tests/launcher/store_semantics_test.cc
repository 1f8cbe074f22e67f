// bertrun's store compared with LibTorch's: the same requests get the same bytes.
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <random>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "app/launcher/store/store_server.h"
// Last, because it includes Catch2.
#include "tests/support/store_testing.h"

using namespace bert;
using namespace bert::testing;

namespace {

/// bertrun's store in a thread.
class Ours {
 public:
  Ours() {
    while (port_ == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ~Ours() {
    stop_ = true;
    thread_.join();
  }
  [[nodiscard]] int64_t port() const { return port_; }

 private:
  void run() {
    EventLoop loop;
    StoreServer server(loop, {"127.0.0.1", 0});
    server.start_round(2);
    port_ = server.endpoint().port;
    while (!stop_) {
      const auto tick = loop.after(0.02, [] {});
      loop.run_once();
      loop.cancel(tick);
    }
  }
  std::atomic<int64_t> port_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_{[this] { run(); }};
};

c10d::TCPStoreOptions options(int64_t port, bool serves) {
  c10d::TCPStoreOptions result;
  result.port = static_cast<uint16_t>(port);
  result.isServer = serves;
  result.waitWorkers = false;
  result.timeout = std::chrono::seconds(20);
  return result;
}

/// Sends requests and a ping. Returns the answers up to the ping's, or up to the connection's end.
std::string ask(StoreClient& client, const std::string& bytes) {
  static uint32_t number = 0xb0a70000;
  const std::string last = bytes_of(++number), whole = bytes + request(kPing, {last});
  client.received.clear();
  size_t sent = 0;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!client.ended && !client.received.ends_with(last) && std::chrono::steady_clock::now() < deadline) {
    sent += client.send(std::string_view(whole).substr(sent));
    const short wish = static_cast<short>(sent < whole.size() ? POLLIN | POLLOUT : POLLIN);
    pollfd ready{client.descriptor(), wish, 0};
    poll(&ready, 1, 100);
    client.receive();
  }
  if (client.ended) return client.received + "(closed)";
  return client.received.substr(0, client.received.size() - last.size());
}

/// The keys of an answer to kListKeys, sorted.
std::vector<std::string> listed(std::string_view answer) {
  const auto number = [&] {
    uint64_t value = 0;
    REQUIRE(answer.size() >= sizeof value);
    std::memcpy(&value, answer.data(), sizeof value);
    answer.remove_prefix(sizeof value);
    return value;
  };
  std::vector<std::string> keys(number());
  for (std::string& key : keys) {
    const uint64_t size = number();
    key = answer.substr(0, size);
    answer.remove_prefix(size);
  }
  CHECK(answer.empty());
  std::ranges::sort(keys);
  return keys;
}

/// Connections to both stores, in pairs.
struct Pair {
  explicit Pair(int64_t our_port, int64_t their_port) : ours(our_port), theirs(their_port) {}
  /// Asks both stores. Returns their common answer.
  std::string ask_both(const std::string& bytes) {
    const std::string expected = ask(theirs, bytes), got = ask(ours, bytes);
    if (static_cast<unsigned char>(bytes.empty() ? 0 : bytes[0]) == kListKeys) {
      CHECK(listed(got) == listed(expected));
    } else {
      CHECK(got == expected);
    }
    return expected;
  }
  StoreClient ours, theirs;
};

std::string number_field(int64_t number) { return bytes_of(number); }

}  // namespace

TEST_CASE("each request gets the bytes that LibTorch's store answers", "[distributed][store]") {
  const Ours our_store;
  c10d::TCPStore their_store("127.0.0.1", options(0, true));
  Pair one(our_store.port(), their_store.getPort()), two(our_store.port(), their_store.getPort());
  const std::string large(8 << 20, 'l'), long_key(8192, 'k');
  const std::vector<std::string> requests = {
      request(kSet, {sized("a"), sized("1")}),
      request(kGet, {sized("a")}),
      request(kGet, {sized("missing")}),
      request(kSet, {sized(""), sized("")}),
      request(kGet, {sized("")}),
      request(kAdd, {sized("a"), number_field(41)}),
      request(kGet, {sized("a")}),
      request(kAdd, {sized("new"), number_field(-7)}),
      request(kSet, {sized("text"), sized(" 12 monkeys")}),
      request(kAdd, {sized("text"), number_field(1)}),
      request(kCompareSet, {sized("c"), sized("x"), sized("y")}),  // missing, something expected
      request(kGet, {sized("c")}),
      request(kCompareSet, {sized("c"), sized(""), sized("first")}),
      request(kCompareSet, {sized("c"), sized("wrong"), sized("second")}),
      request(kCompareSet, {sized("c"), sized("first"), sized("second")}),
      keys_request(kCheck, {"a", "c"}),
      keys_request(kCheck, {"a", "missing"}),
      keys_request(kWait, {"a", "c"}),
      request(kGetNumKeys),
      request(kDeleteKey, {sized("a")}),
      request(kDeleteKey, {sized("a")}),
      request(kAppend, {sized("a"), sized("ab")}),
      request(kAppend, {sized("a"), sized("cd")}),
      keys_request(kMultiGet, {"a", "missing", "c", "a"}),
      request(kMultiSet, {bytes_of(uint64_t{2}), sized("m"), sized("1"), sized("n"), sized("2")}),
      keys_request(kMultiGet, {"m", "n"}),
      request(kCancelWait),
      request(kQueueLen, {sized("q")}),
      request(kQueuePop, {sized("q")}),
      request(kQueuePush, {sized("q"), sized("first")}),
      request(kQueuePush, {sized("q"), sized("second")}),
      request(kQueueLen, {sized("q")}),
      keys_request(kCheck, {"q"}),
      keys_request(kWait, {"q"}),
      request(kQueuePop, {sized("q")}),
      request(kQueuePop, {sized("q")}),
      request(kQueuePop, {sized("q")}),
      keys_request(kCheck, {"q"}),
      request(kListKeys),
      request(kGetNumKeys),
      request(kSet, {sized(long_key), sized(large)}),
      request(kGet, {sized(long_key)}),
      request(kAppend, {sized(long_key), sized("more")}),
      keys_request(kMultiGet, {long_key, "a"}),
  };
  for (size_t i = 0; i < requests.size(); ++i) {
    CAPTURE(i);
    one.ask_both(requests[i]);
  }
  // Waiters, among them of a key that a failed compare_set touches, and of one that is deleted meanwhile.
  for (const std::vector<std::string>& wakers :
       {std::vector{request(kSet, {sized("w"), sized("1")}), request(kAdd, {sized("v"), number_field(1)})},
        std::vector{request(kAdd, {sized("w"), number_field(1)}), request(kDeleteKey, {sized("w")}),
                    request(kAppend, {sized("v"), sized("1")})},
        std::vector{request(kCompareSet, {sized("w"), sized("x"), sized("y")}),
                    request(kCompareSet, {sized("v"), sized(""), sized("y")})},
        std::vector{request(kCancelWait)}}) {
    two.ask_both(request(kDeleteKey, {sized("w")}) + request(kDeleteKey, {sized("v")}));
    two.ask_both(keys_request(kWait, {"w", "v", "w"}));
    for (const std::string& waker : wakers) {
      (waker == request(kCancelWait) ? two : one).ask_both(waker);
      two.ask_both("");
    }
  }
  two.ask_both(keys_request(kWait, {"jobs"}));
  one.ask_both(request(kQueuePush, {sized("jobs"), sized("job")}));
  CHECK(two.ask_both("") == std::string(1, '\0'));
  // Requests that end a connection.
  for (const std::string& bytes :
       {request(kAdd, {sized("m"), number_field(1)}) + request(kAdd, {sized("a"), number_field(1)}),
        request(kAdd, {sized(""), number_field(1)}), std::string(1, '\x63'), request(kGet, {sized(long_key + "k")}),
        request(kSet, {sized("a"), bytes_of(uint64_t{(8 << 20) + 1})}),
        request(kWait, {bytes_of(uint64_t{(128 << 10) + 1})})}) {
    CAPTURE(bytes.substr(0, 40));
    Pair bad(our_store.port(), their_store.getPort());
    CHECK(bad.ask_both(bytes).ends_with("(closed)"));
  }
  one.ask_both(request(kListKeys));
}

TEST_CASE("random requests of several clients get the bytes that LibTorch's store answers", "[distributed][store]") {
  const Ours our_store;
  c10d::TCPStore their_store("127.0.0.1", options(0, true));
  std::mt19937_64 random(2026);
  const auto below = [&](uint64_t limit) { return random() % limit; };
  const auto key = [&] { return std::string(1, static_cast<char>('a' + below(5))); };
  const auto keys = [&] {
    std::vector<std::string> result(1 + below(3));
    for (std::string& each : result) each = key();
    return result;
  };
  const auto value = [&] {
    return below(3) == 0 ? std::string(below(40), static_cast<char>(below(256))) : std::to_string(below(3));
  };
  const auto any_request = [&]() -> std::string {
    switch (below(17)) {
      case 0:
      case 1:
        return request(kSet, {sized(key()), sized(value())});
      case 2:
        return request(kCompareSet, {sized(key()), sized(below(2) == 0 ? "" : value()), sized(value())});
      case 3:
        return request(kGet, {sized(key())});
      case 4:
        return request(kAdd, {sized(key()), number_field(static_cast<int64_t>(below(7)) - 3)});
      case 5:
        return keys_request(kCheck, keys());
      case 6:
      case 7:
        return keys_request(kWait, keys());
      case 8:
        return request(kGetNumKeys);
      case 9:
      case 10:
        return request(kDeleteKey, {sized(key())});
      case 11:
        return request(kAppend, {sized(key()), sized(value())});
      case 12:
        return keys_request(kMultiGet, keys());
      case 13:
        return request(kMultiSet, {bytes_of(uint64_t{2}), sized(key()), sized(value()), sized(key()), sized(value())});
      case 14:
        return request(kListKeys);
      case 15:
        return request(below(2) == 0 ? kQueuePop : kQueueLen, {sized("q" + key())});
      default:
        return request(kQueuePush, {sized("q" + key()), sized(value())});
    }
  };
  struct Peer {
    Pair pair;
    bool waits = false;
  };
  std::vector<Peer> peers;
  const auto connect = [&] { return Peer{Pair(our_store.port(), their_store.getPort())}; };
  for (int i = 0; i < 4; ++i) peers.push_back(connect());
  size_t woken = 0, closed = 0;
  for (int step = 0; step < 4000; ++step) {
    Peer& peer = peers[below(peers.size())];
    const std::string bytes = peer.waits ? (below(4) == 0 ? request(kCancelWait) : "") : any_request();
    CAPTURE(step, static_cast<int>(bytes.empty() ? -1 : bytes[0]));
    const std::string answer = peer.pair.ask_both(bytes);
    if (answer.ends_with("(closed)")) {  // an add to a text
      ++closed;
      peer = connect();
      continue;
    }
    if (!bytes.empty() && bytes[0] == kWait) peer.waits = answer.empty();
    if (!bytes.empty() && bytes[0] == kCancelWait) peer.waits = false;
    for (Peer& other : peers) {
      if (!other.waits) continue;
      const std::string news = other.pair.ask_both("");
      if (!news.empty()) ++woken, other.waits = false;
    }
  }
  CHECK(woken > 50);
  CHECK(closed > 10);
}

TEST_CASE("LibTorch's client uses bertrun's store as its own", "[distributed][store]") {
  const Ours our_store;
  const auto bytes = [](const std::string& text) { return std::vector<uint8_t>(text.begin(), text.end()); };
  c10d::TCPStore their_store("127.0.0.1", options(0, true));
  for (const int64_t port : {our_store.port(), static_cast<int64_t>(their_store.getPort())}) {
    CAPTURE(port);
    c10d::TCPStore store("127.0.0.1", options(port, false));
    const auto clone = store.clone();
    store._splitSet("split", bytes("in two"));
    CHECK(clone->get_to_str("split") == "in two");
    CHECK(store.add("sum", 5) == 5);
    CHECK(clone->add("sum", -2) == 3);
    CHECK(store.compareSet("sum", bytes("3"), bytes("x")) == bytes("x"));
    CHECK(store.check({"sum", "split"}));
    CHECK_FALSE(store.check({"sum", "none"}));
    CHECK_THROWS_AS(store.wait({"none"}, std::chrono::milliseconds(100)), c10::DistStoreError);
    CHECK(clone->deleteKey("split"));
    CHECK_FALSE(clone->deleteKey("split"));
    store.multiSet({"m", "n"}, {bytes("1"), bytes("2")});
    store.append("m", bytes("0"));
    CHECK(clone->multiGet({"m", "n"}) == std::vector{bytes("10"), bytes("2")});
    CHECK(store.getNumKeys() == 3);
    CHECK(store.listKeys().size() == 3);
    store.queuePush("q", bytes("job"));
    CHECK(store.queueLen("q") == 1);
    CHECK(clone->queuePop("q", true) == bytes("job"));
    CHECK_THROWS_AS(store.queuePop("q", false), c10::DistQueueEmptyError);
    std::thread later([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      clone->set("late", bytes("here"));
      clone->queuePush("jobs", bytes("one"));
    });
    CHECK(store.get("late") == bytes("here"));
    CHECK(store.queuePop("jobs", true) == bytes("one"));
    later.join();
  }
}
