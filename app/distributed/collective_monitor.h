// A monitor of what each rank is doing. A rank that waits in vain can name the ranks that are missing.
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
/// Gloo and NCCL report that a collective has timed out, but not the ranks that are missing. So every rank counts the
/// collectives that it issues. A thread of the monitor, never the training thread, writes this count, the phase and a
/// heartbeat into the store several times a second. When a collective fails, the rank reads the lines of the others
/// twice. A rank whose heartbeat stands still is stopped or dead. A rank with a heartbeat and fewer collectives is busy
/// elsewhere, and its phase tells in what. The first rank to find out writes its finding into the store, because its
/// own end must not make the other ranks suspect it. If a collective lasts until shortly before the timeout, the
/// monitor observes the ranks from then on, so that the finding is ready in time.

/// Each rank makes one for each process group, in the same order.
class CollectiveMonitor {
 public:
  /// Opens its own connections to the store. `rank` is this process, `size` the number of ranks of the group, `timeout`
  /// the longest time of a collective.
  CollectiveMonitor(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                    std::chrono::milliseconds timeout);
  ~CollectiveMonitor();
  CollectiveMonitor(const CollectiveMonitor&) = delete;
  CollectiveMonitor& operator=(const CollectiveMonitor&) = delete;

  /// Counts a collective that this rank is about to issue. `what` is its kind, dtype and size.
  void begin(const std::string& what);

  /// begin(), then compares `what` with that of all other ranks before any rank issues it. Throws PeerError with the
  /// first difference, or with the ranks that did not come in time. For debugging: it waits for all ranks.
  void begin_together(const std::string& what);

  /// The message for a collective that failed with `error`: the ranks that are not in it, their phases, and advice.
  /// Takes about 0.5 s and never more than 1 s.
  [[nodiscard]] std::string explain(const std::string& error);

  /// Watches a work that the host does not wait for (NCCL). Until it is done, a thread that no store can block asks
  /// `done` several times a second. After the timeout, or if `done` throws a c10::DistError, it calls `on_failure` with the
  /// message of explain().
  void watch(std::function<bool()> done, std::function<void(const std::string& message)> on_failure);

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the thread, which may hang in a store that does not answer
};

/// A place in the program at which ranks wait for each other through the store.
struct Meeting {
  std::string name;        // unique for each meeting
  int rank = 0, size = 0;  // this rank, and the number of ranks that meet
  std::chrono::milliseconds timeout;
  std::string advice;  // advice for the case that a rank does not come
};

/// Waits until every rank has called it. Throws PeerError with the missing ranks after the timeout.
void join_through_store(c10d::Store& store, const Meeting& meeting);

/// Keys of the store that a rank waits for.
struct Awaited {
  std::string what;                 // for messages: "checkpoint of step 7"
  int rank = 0;                     // the rank that waits
  std::map<int, std::string> keys;  // key by the rank that sets it
  std::chrono::milliseconds timeout;
  std::chrono::milliseconds longest = std::chrono::hours(24 * 365);
  std::function<void()> waiting = [] {};  // called during the wait; may throw
};

/// Returns "" if all keys are there. The other ranks may take until `longest` as long as their heartbeats continue; a
/// line on stderr names them after each timeout. Otherwise returns a message with the ranks that did not come within
/// `longest`, or whose heartbeats have stopped for the timeout, and advice. Throws PeerError if the store does not
/// answer for the timeout; the store must not be used after that.
[[nodiscard]] std::string wait_for_ranks(const c10::intrusive_ptr<c10d::Store>& store, const Awaited& awaited);

/// A list of ranks for messages: "rank 3", "ranks 1, 4 and 7". A long list is cut.
std::string describe_ranks(const std::vector<int>& ranks);

}  // namespace bert
