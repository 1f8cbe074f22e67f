// Verdicts of monitors whose ranks are threads: examiners that die, waits for ranks, and works that are late.
#include "app/distributed/collective_monitor.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "app/distributed/rank_lines.h"
#include "app/distributed/store_waits.h"
#include "app/system/error_report.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::Contains;
using Catch::Matchers::StartsWith;

namespace {

using StorePtr = c10::intrusive_ptr<c10d::Store>;

/// The monitors of these ranks, of a group of `size`. Each has issued the same collective.
std::map<int, std::unique_ptr<CollectiveMonitor>> monitors_of(const StorePtr& store, const std::vector<int>& ranks,
                                                              int size) {
  std::map<int, std::unique_ptr<CollectiveMonitor>> monitors;
  for (const int rank : ranks) {
    monitors[rank] = std::make_unique<CollectiveMonitor>(store, rank, size, std::chrono::seconds(60));
    monitors[rank]->begin("barrier");
  }
  return monitors;
}

/// The messages of the monitors, which all ask at once.
std::map<int, std::string> explain_all(const std::map<int, std::unique_ptr<CollectiveMonitor>>& monitors) {
  std::map<int, std::future<std::string>> answers;
  for (const auto& [rank, monitor] : monitors)
    answers[rank] = std::async(std::launch::async, [&monitor = *monitor] { return monitor.explain("reset"); });
  std::map<int, std::string> messages;
  for (auto& [rank, answer] : answers) messages[rank] = answer.get();
  return messages;
}

}  // namespace

TEST_CASE("All ranks tell the verdict of the first examiner", "[distributed]") {
  set_phase(Phase::kStarting);  // other tests may have left another
  const StorePtr store = c10::make_intrusive<c10d::HashStore>();
  auto monitors = monitors_of(store, {0, 1, 2, 3, 5, 6}, 7);  // rank 4 has never come this far
  monitors.erase(1);                                          // dies
  const auto messages = explain_all(monitors);
  REQUIRE(messages.size() == 5);
  for (const auto& [rank, message] : messages) {
    CAPTURE(rank);
    CHECK_THAT(message, StartsWith("ranks 1 and 4 do not respond (stopped, dead, or cut off): collective 1 (barrier) "
                                   "failed on rank " +
                                   std::to_string(rank) + "\n  rank 1: phase starting") &&
                            Contains("\n  rank 4: has said nothing"));
  }
  CHECK(store->add("examiners/1", 0) == 5);  // one request of each rank; two of them have read the lines
  CHECK(store->check({"examiners/1/1", "examiners/1/2"}));
  CHECK_FALSE(store->check({"examiners/1/3"}));
}

TEST_CASE("Examiners that die before their verdict are named", "[distributed]") {
  const StorePtr store = c10::make_intrusive<c10d::HashStore>();
  store->add("examiners/1", 2);
  store->set("examiners/1/1", std::string("1"));
  store->set("examiners/1/2", std::string("2"));
  for (const auto& [rank, message] : explain_all(monitors_of(store, {0, 3}, 4))) {
    CAPTURE(rank);
    CHECK_THAT(message, StartsWith("ranks 1 and 2, which had to find the cause, did not do so in time"));
  }
}

TEST_CASE("The keys that are there are read, wherever others are absent", "[distributed]") {
  const StorePtr store = c10::make_intrusive<c10d::HashStore>();
  for (const std::vector<int>& absent : std::vector<std::vector<int>>{{}, {0}, {9}, {3, 4}, {0, 2, 4, 6, 8}}) {
    KeysByRank keys, missing;
    std::map<int, std::string> values;
    for (int rank = 0; rank < 10; ++rank) {
      keys[rank] = "key of " + std::to_string(absent.size() * 100) + std::to_string(absent.empty() ? 0 : absent[0]) +
                   std::to_string(rank);
      if (std::ranges::find(absent, rank) != absent.end()) {
        missing[rank] = keys[rank];
      } else {
        store->set(keys[rank], values[rank] = "value of " + std::to_string(rank));
      }
    }
    CHECK(read_present(*store, keys) == values);
    CHECK(absent_keys(*store, keys) == missing);
  }
}

namespace {

/// A store whose holder may be stopped. Then no call returns until the holder continues.
class StoppingStore : public c10d::HashStore {
 public:
  c10::intrusive_ptr<c10d::Store> clone() override {
    return c10::intrusive_ptr<c10d::Store>::reclaim_copy(this);  // like HashStore
  }
  void set(const std::string& key, const std::vector<uint8_t>& data) override {
    answer();
    HashStore::set(key, data);
  }
  bool check(const std::vector<std::string>& keys) override {
    answer();
    return HashStore::check(keys);
  }
  std::mutex holder;  // locked while the holder is stopped

 private:
  void answer() { const std::lock_guard lock(holder); }
};

}  // namespace

TEST_CASE("What nobody waits for on the host is told when it is late, also when the store's holder is stopped",
          "[distributed]") {
  for (const bool stopped : {false, true}) {
    CAPTURE(stopped);
    const auto store = c10::make_intrusive<StoppingStore>();
    CollectiveMonitor monitor(store, 0, 1, std::chrono::seconds(2));
    monitor.begin("all_reduce");
    std::promise<std::string> told;
    std::atomic<int> asked = 0;
    monitor.watch([&] { return ++asked > 2; }, [&](const std::string&) { told.set_value("what is done"); });
    monitor.watch([] { return false; }, [&](const std::string& message) { told.set_value(message); });
    std::unique_lock holder(store->holder, std::defer_lock);
    if (stopped) holder.lock();
    std::future<std::string> message = told.get_future();
    REQUIRE(message.wait_for(std::chrono::seconds(30)) == std::future_status::ready);
    CHECK_THAT(message.get(), StartsWith(stopped ? "collective 1 (all_reduce) failed on rank 0: the store does not "
                                                   "answer either, so the launcher that holds it is stopped, dead"
                                                 : "collective 1 (all_reduce) failed on rank 0: all ranks are in it"));
    CHECK(asked == 3);
  }
}

TEST_CASE("Nobody asks a watched work after the end of the watching", "[distributed]") {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  CollectiveMonitor monitor(store, 0, 1, std::chrono::seconds(60));
  monitor.begin("all_reduce");
  const auto on_failure = [](const std::string& message) { FAIL(message); };
  std::atomic<int> asked = 0;
  monitor.watch([&] { return ++asked > 2; }, on_failure);
  monitor.wait_until_done();
  CHECK(asked == 3);
  std::promise<void> looks, forgotten;
  std::atomic<bool> answered = false;
  monitor.watch(
      [&]() -> bool {
        looks.set_value();
        forgotten.get_future().wait();
        answered = true;
        throw c10::DistBackendError({}, "the communicator is aborted");
      },
      on_failure);
  looks.get_future().wait();
  monitor.stop_watching();
  forgotten.set_value();
  monitor.watch([] { return true; }, on_failure);
  monitor.wait_until_done();
  CHECK(answered);
  monitor.watch([]() -> bool { TORCH_CHECK(false, "the device has failed"); }, on_failure);
  monitor.wait_until_done();  // the training thread gets an error of the device
}
