// Knows what every rank is doing, so that a rank that waits in vain can say for whom.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace bert {

/// Note [Who is missing]
/// Gloo and NCCL say that a collective has timed out, not for whom it waited. So every rank counts the collectives that
/// it issues, and a thread of its own writes that count, its phase and a heartbeat into the store, a few times a second
/// and never in the training thread. When a collective fails, the rank reads the others' lines twice: a rank whose
/// heartbeat stands still is stopped or dead; one that beats but has issued fewer collectives is busy elsewhere, and
/// its phase says where. The first rank to find out leaves its finding in the store, since its own end must not make
/// it a suspect of the others. A collective that lasts until shortly before the timeout is observed from then on, so
/// that the finding is there when the time is up.

/// One per process group; every rank makes it, in the same order.
class CollectiveMonitor {
 public:
  /// Opens connections of its own to the store. `rank` is this process, `size` the number of ranks of the group,
  /// `timeout` the longest time that a collective may take.
  CollectiveMonitor(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                    std::chrono::milliseconds timeout);
  ~CollectiveMonitor();
  CollectiveMonitor(const CollectiveMonitor&) = delete;
  CollectiveMonitor& operator=(const CollectiveMonitor&) = delete;

  /// Counts a collective that this rank is about to issue; `what` is its kind, dtype and size.
  void begin(const std::string& what);

  /// begin(), and compares `what` with all other ranks' before anybody issues it. Throws PeerError with the first
  /// difference, or with the ranks that did not come in time. For debugging: it waits for everybody.
  void begin_together(const std::string& what);

  /// A message for a collective that failed with `error`: first which ranks are not in it, where they are, what to check.
  /// Takes about half a second, never more than one.
  [[nodiscard]] std::string explain(const std::string& error);

  /// For works that nobody waits for on the host (NCCL): while one is not done, a thread of its own, which no store can
  /// hold up, asks `done` a few times a second, and calls `on_timeout` with explain()'s message after the timeout.
  void watch(std::function<bool()> done, std::function<void(const std::string& message)> on_timeout);

 private:
  struct State;
  std::shared_ptr<State> state_;  // the thread's too: it may hang in a store that does not answer
};

/// A place in the program where ranks wait for each other through the store.
struct Meeting {
  std::string name;        // of one meeting only
  int rank = 0, size = 0;  // of all that meet
  std::chrono::milliseconds timeout;
  std::string advice;  // what to check when a rank does not come
};

/// Waits until every rank has called it. Throws PeerError with the missing ranks after the timeout.
void join_through_store(c10d::Store& store, const Meeting& meeting);

/// What a rank waits for in the store.
struct Awaited {
  std::string what;                 // for messages: "checkpoint of step 7"
  int rank = 0;                     // that waits
  std::map<int, std::string> keys;  // by the rank that sets it
  std::chrono::milliseconds timeout;
  std::chrono::milliseconds longest = std::chrono::hours(24 * 365);
  std::function<void()> waiting = [] {};  // called now and then; may throw
};

/// Returns "" when all keys are there. The others may take until `longest` while their heartbeats go on; every timeout a
/// line on stderr says who is waited for. Otherwise returns who has not come in that time, or whose heartbeats have stood
/// still for the timeout, and what to check. Throws PeerError when the store does not answer for as long; then it must not be asked
/// again.
[[nodiscard]] std::string wait_for_ranks(const c10::intrusive_ptr<c10d::Store>& store, const Awaited& awaited);

/// "rank 3", "ranks 1, 4 and 7", with a long list cut short.
std::string describe_ranks(const std::vector<int>& ranks);

}  // namespace bert
