// Rounds of ranks at a store that earlier ranks have used. Ranks are threads here.
#include "app/distributed/rounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "app/distributed/collective_monitor.h"
#include "app/system/errors.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::Contains;
using std::chrono::milliseconds;

namespace {

using StorePtr = c10::intrusive_ptr<c10d::Store>;

struct Killed {};

/// The store as a rank sees it that may be killed: every request first takes a random time, and throws Killed after
/// kill(). So a rank dies between any two of its requests.
class MortalStore : public c10d::PrefixStore {
 public:
  MortalStore(const StorePtr& store, uint64_t seed, int longest_us)
      : PrefixStore("bert", store), random_(seed), longest_us_(longest_us) {}
  void kill() { killed_ = true; }

  void set(const std::string& key, const std::vector<uint8_t>& value) override {
    live();
    PrefixStore::set(key, value);
  }
  std::vector<uint8_t> compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                  const std::vector<uint8_t>& desired) override {
    live();
    return PrefixStore::compareSet(key, expected, desired);
  }
  std::vector<uint8_t> get(const std::string& key) override {
    live();
    return PrefixStore::get(key);
  }
  int64_t add(const std::string& key, int64_t value) override {
    live();
    return PrefixStore::add(key, value);
  }
  void append(const std::string& key, const std::vector<uint8_t>& value) override {
    live();
    PrefixStore::append(key, value);
  }
  bool check(const std::vector<std::string>& keys) override {
    live();
    return PrefixStore::check(keys);
  }

 private:
  void live() {
    if (killed_) throw Killed();
    std::this_thread::sleep_for(std::chrono::microseconds(random_() % static_cast<uint64_t>(longest_us_ + 1)));
    if (killed_) throw Killed();
  }
  std::minstd_rand random_;
  const int longest_us_;
  std::atomic<bool> killed_ = false;
};

/// A process of a round, and its end.
struct Process {
  int wave = 0, rank = 0, size = 0;
  c10::intrusive_ptr<MortalStore> store;
  std::thread thread = {};
  int64_t round = 0;  // 0: not joined
  bool killed = false;
  std::string error = {};
};

std::unique_ptr<Process> start(Process given, milliseconds delay, milliseconds timeout) {
  auto process = std::make_unique<Process>(std::move(given));
  process->thread = std::thread([&p = *process, delay, timeout] {
    try {
      std::this_thread::sleep_for(delay);
      p.round = join_round(*p.store, {.rank = p.rank, .size = p.size, .timeout = timeout, .advice = "late"});
    } catch (const Killed&) {
      p.killed = true;
    } catch (const std::exception& error) {
      p.error = error.what();
    }
  });
  return process;
}

/// The ranks of a round start at random times. With `kill`, all are killed after a random time.
using Wave = std::vector<std::unique_ptr<Process>>;

void end(Wave& wave) {
  for (const auto& process : wave) {
    if (process->thread.joinable()) process->thread.join();
  }
}

struct Torture {
  uint64_t seed = 0;
  int waves = 8, most_ranks = 6;
  int longest_us = 300;  // of a request
  bool overlap = false;  // ranks of a wave are killed after those of the next have started
};

/// Runs waves of ranks of random sizes over one store. Returns what was wrong; "" if nothing.
std::string torture(const std::function<StorePtr()>& connect, const Torture& plan) {
  std::mt19937_64 random(plan.seed);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<uint64_t>(n)); };
  std::vector<Wave> waves;
  for (int w = 0; w < plan.waves; ++w) {
    const bool last = w + 1 == plan.waves, kills = !last && below(3) > 0;
    const int size = 2 + below(plan.most_ranks - 1);
    Wave wave;
    for (int rank = 0; rank < size; ++rank) {
      if (kills && below(4) == 0) continue;  // it dies before it comes
      wave.push_back(start({.wave = w,
                            .rank = rank,
                            .size = size,
                            .store = c10::make_intrusive<MortalStore>(connect(), random(), plan.longest_us)},
                           milliseconds(below(8)), milliseconds(kills || plan.overlap ? 1000 : 60'000)));
    }
    waves.push_back(std::move(wave));
    const auto kill = [&](Wave& killed) {
      for (const auto& process : killed) {
        process->store->kill();
        if (below(2) == 0) std::this_thread::sleep_for(milliseconds(below(4)));
      }
    };
    if (plan.overlap && w > 0) {
      std::this_thread::sleep_for(milliseconds(below(20)));
      kill(waves[static_cast<size_t>(w - 1)]);
      end(waves[static_cast<size_t>(w - 1)]);
      if (last) {  // ranks of a last wave without neighbours must join
        end(waves.back());
        waves.emplace_back();
        for (int rank = 0; rank < size; ++rank)
          waves.back().push_back(
              start({.wave = plan.waves,
                     .rank = rank,
                     .size = size,
                     .store = c10::make_intrusive<MortalStore>(connect(), random(), plan.longest_us)},
                    milliseconds(below(8)), milliseconds(60'000)));
        end(waves.back());
      }
    } else if (!plan.overlap) {
      if (kills) {
        std::this_thread::sleep_for(milliseconds(below(40)));
        kill(waves.back());
      }
      end(waves.back());
    }
  }
  std::string wrong;
  std::map<int64_t, std::vector<const Process*>> rounds;
  for (const Wave& wave : waves) {
    for (const auto& process : wave) {
      if (process->round > 0) rounds[process->round].push_back(process.get());
      const bool undisturbed = process->wave == (plan.overlap ? plan.waves : plan.waves - 1) ||
                               (!plan.overlap && std::ranges::none_of(wave, [](const auto& p) { return p->killed; }) &&
                                static_cast<int>(wave.size()) == process->size);
      if (undisturbed && process->round == 0)
        wrong += fmt::format("\nwave {} rank {} of {} has not joined: {}", process->wave, process->rank, process->size,
                             process->error);
    }
  }
  for (const auto& [round, members] : rounds) {
    std::set<int> ranks, wave_numbers, sizes;
    for (const Process* member : members) {
      ranks.insert(member->rank);
      wave_numbers.insert(member->wave);
      sizes.insert(member->size);
    }
    if (ranks.size() != members.size() || sizes.size() > 1)
      wrong += fmt::format("\nround {} has two processes of one rank, or ranks of jobs of different size", round);
    if (!plan.overlap && wave_numbers.size() > 1) wrong += fmt::format("\nround {} joins ranks of two waves", round);
  }
  return wrong.empty() ? "" : fmt::format("seed {}:{}", plan.seed, wrong);
}

/// A store in this process to which each rank has a connection of its own.
std::function<StorePtr()> tcp_store() {
  c10d::TCPStoreOptions options;
  options.port = 0;
  options.isServer = true;
  options.waitWorkers = false;
  const auto server = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  return [server] { return server->clone(); };
}

/// Joins as each of these ranks, of `size` ranks, a moment after the other. Returns their errors; "" for a rank that has
/// joined.
std::vector<std::string> join_all(const StorePtr& store, const std::vector<int>& ranks, const std::vector<int>& sizes,
                                  milliseconds timeout = milliseconds(60'000)) {
  std::vector<std::future<std::string>> ends;
  for (size_t i = 0; i < ranks.size(); ++i) {
    ends.push_back(std::async(std::launch::async, [&, i]() -> std::string {
      try {
        join_round(*store->clone(), {.rank = ranks[i], .size = sizes[i], .timeout = timeout, .advice = "here"});
        return "";
      } catch (const ConfigError& error) {
        return std::string("78: ") + error.what();
      } catch (const PeerError& error) {
        return std::string("69: ") + error.what();
      }
    }));
    std::this_thread::sleep_for(milliseconds(100));
  }
  std::vector<std::string> errors;
  for (auto& each : ends) errors.push_back(each.get());
  return errors;
}

std::vector<std::string> join_all(const StorePtr& store, int size) {
  std::vector<int> ranks;
  for (int rank = 0; rank < size; ++rank) ranks.push_back(rank);
  return join_all(store, ranks, std::vector<int>(ranks.size(), size));
}

}  // namespace

TEST_CASE("Ranks of later rounds meet at a store with the keys of dead ones, in any number", "[distributed]") {
  const StorePtr hash = c10::make_intrusive<c10d::HashStore>();
  const auto tcp = tcp_store();
  for (const StorePtr& store : {hash, tcp()}) {
    for (const int size : {2, 3, 2, 5}) CHECK(join_all(store, size) == std::vector<std::string>(size));
  }
}

namespace {

void torture_often(int times) {
  const auto seed = static_cast<uint64_t>(std::random_device()());
  const auto tcp = tcp_store();
  for (int i = 0; i < times; ++i) {
    const StorePtr hash = c10::make_intrusive<c10d::HashStore>();
    CHECK(torture([&] { return hash; }, {.seed = seed + static_cast<uint64_t>(i)}) == "");
    if (i % 3 == 0)
      CHECK(torture([&] { return hash; }, {.seed = seed + static_cast<uint64_t>(i), .overlap = true}) == "");
    if (i % 3 == 1) CHECK(torture(tcp, {.seed = seed + static_cast<uint64_t>(i), .longest_us = 100}) == "");
  }
}

}  // namespace

TEST_CASE("No two rounds mix whatever dies", "[distributed]") { torture_often(9); }

TEST_CASE("No two rounds mix whatever dies: 100 times", "[slow]") { torture_often(100); }

TEST_CASE("Two processes with one rank are found and named", "[distributed]") {
  const StorePtr store = c10::make_intrusive<c10d::HashStore>();
  SECTION("before the round begins") {
    for (const std::string& error : join_all(store, {0, 1, 1}, {3, 3, 3}))
      CHECK_THAT(error, Contains("78: rank 1 has come twice"));
    // The next job is not disturbed.
    CHECK(join_all(store, 3) == std::vector<std::string>(3));
  }
  SECTION("rank 0") {
    const auto errors = join_all(store, {0, 1, 0, 2}, {3, 3, 3, 3});
    CHECK_THAT(errors[0], Contains("78: rank 0 has come twice") && Contains("another process has come as rank 0"));
    for (const size_t joined : {1, 2, 3}) CHECK(errors[joined] == "");
  }
  SECTION("after the round has begun, and while its ranks live") {
    REQUIRE(join_all(store, 3) == std::vector<std::string>(3));
    const auto group = c10::make_intrusive<c10d::PrefixStore>(group_prefix(1), store);
    auto monitors = std::make_unique<std::vector<std::unique_ptr<CollectiveMonitor>>>();
    for (int rank = 0; rank < 3; ++rank)
      monitors->push_back(std::make_unique<CollectiveMonitor>(group, rank, 3, std::chrono::seconds(60)));
    for (const int rank : {0, 1, 2}) {
      const std::string error = join_all(store, {rank}, {3}).front();
      CHECK_THAT(error, Contains(fmt::format("78: rank {} has come twice", rank)) &&
                            Contains("its group is at work without this process"));
    }
    monitors.reset();
    CHECK(join_all(store, 3) == std::vector<std::string>(3));
  }
}

TEST_CASE("Ranks of jobs of different size are told which", "[distributed]") {
  const StorePtr store = c10::make_intrusive<c10d::HashStore>();
  for (const std::string& error : join_all(store, {0, 1}, {2, 3}))
    CHECK_THAT(error, Contains("78: the ranks here do not belong together: this is a job of 2 ranks, by rank 0, and of "
                               "3 ranks, by rank 1; check WORLD_SIZE"));
}

TEST_CASE("Ranks that do not come to a round are named", "[distributed]") {
  const StorePtr store = c10::make_intrusive<c10d::HashStore>();
  const auto errors = join_all(store, {1, 3}, {4, 4}, milliseconds(1000));
  for (const std::string& error : errors) CHECK(error == "69: ranks 0 and 2 did not come within 1 s: here");
  CHECK(join_all(store, {0, 1}, {4, 4}, milliseconds(1000)) ==
        std::vector<std::string>(2, "69: ranks 2 and 3 did not come within 1 s: here"));
}
