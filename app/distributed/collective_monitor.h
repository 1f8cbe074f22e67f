// A monitor of what each rank is doing. A rank that waits in vain can name the ranks that are missing.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace bert {

/// Note [Who is missing]
/// Gloo and NCCL report that a collective has timed out, but not the ranks that are missing. So every rank counts the
/// collectives that it issues. A thread of the monitor, never the training thread, writes this count, the phase and a
/// heartbeat into the store: Pace in app/distributed/rank_lines.h. When a collective fails, the first two ranks to
/// notice are its examiners: the second is there in case the first dies. An examiner reads the lines of all ranks
/// twice. A rank whose heartbeat stands still is stopped or dead. A rank with a heartbeat and fewer collectives is busy
/// elsewhere, and its phase tells in what. The first verdict in the store is that of all ranks. The other ranks only
/// wait for it, so an examination costs 2 requests of many keys and a few small ones of each rank. If a collective
/// lasts until shortly before the timeout, the examiners observe the ranks from then on, so that the verdict is ready
/// in time.

/// Each rank makes one for each process group, in the same order.
class CollectiveMonitor {
 public:
  /// Opens its own connection to the store: a call that blocks another connection must not stop the heartbeat. `rank`
  /// is this process, `size` the number of ranks of the group, `timeout` the longest time of a collective.
  CollectiveMonitor(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                    std::chrono::milliseconds timeout);
  ~CollectiveMonitor();
  CollectiveMonitor(const CollectiveMonitor&) = delete;
  CollectiveMonitor& operator=(const CollectiveMonitor&) = delete;

  /// Counts a collective that this rank is about to issue. `what` is its kind, dtype and size.
  void begin(const std::string& what);

  /// begin(), then compares `what` with that of all other ranks before any rank issues it. Throws PeerError with the
  /// first difference, or with the ranks that did not come in time. For debugging: it waits for all ranks, and opens
  /// another connection to the store.
  void begin_together(const std::string& what);

  /// The message for a collective that failed with `error`: the ranks that are not in it, their phases, and advice.
  /// Takes about 0.5 s, and never more than 1 s, up to 400 ranks; at 1,024 ranks 1.2 s and 2.4 s.
  [[nodiscard]] std::string explain(const std::string& error);

  /// Watches a work that the host does not wait for (NCCL). Until it is done, a thread that no store can block asks
  /// `done` several times a second. After the timeout, or if `done` throws a c10::DistError, it calls `on_failure` with the
  /// message of explain().
  void watch(std::function<bool()> done, std::function<void(const std::string& message)> on_failure);

  /// Waits until all watched works are done, or have failed: nobody asks any of them after that.
  void wait_until_done();

  /// Forgets the watched works. A work that is being asked at this moment is not reported any more.
  void stop_watching();

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the thread, which may hang in a store that does not answer
};

}  // namespace bert
