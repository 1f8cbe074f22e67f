// Waits of ranks for each other through the store. Their requests: Note [Requests to the store].
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "app/distributed/rank_lines.h"

namespace bert {

/// Appends to the value of a key. Appends of several ranks do not mix.
void append_text(c10d::Store& store, const std::string& key, const std::string& text);

/// A place in the program at which ranks wait for each other through the store.
struct Meeting {
  std::string name;        // unique for each meeting
  int rank = 0, size = 0;  // this rank, and the number of ranks that meet
  std::chrono::milliseconds timeout;
  std::string advice = {};  // advice for the case that a rank does not come
};

/// Waits until every rank has called it. Throws PeerError with the missing ranks after the timeout.
void join_through_store(c10d::Store& store, const Meeting& meeting);

/// The ranks that have not called join_through_store() yet for the meeting of that name.
std::vector<int> missing_at(c10d::Store& store, const std::string& name, int size);

/// The message about ranks that did not come to a meeting: names, time and advice.
std::string did_not_come(const std::vector<int>& missing, std::chrono::milliseconds timeout, const std::string& advice);

/// Keys of the store that a rank waits for.
struct Awaited {
  std::string what;  // for messages: "checkpoint of step 7"
  int rank = 0;      // the rank that waits
  int size = 0;      // number of ranks, which may all wait
  KeysByRank keys;   // key by the rank that sets it
  std::chrono::milliseconds timeout;
  std::chrono::milliseconds longest = std::chrono::hours(24 * 365);
  std::function<void()> waiting = [] {};  // called during the wait; may throw, and then the store must not be used
};

/// Returns "" if all keys are there. The other ranks may take until `longest` as long as their heartbeats continue; a
/// line on stderr names them after each timeout. Otherwise returns a message with the ranks that did not come within
/// `longest`, or whose heartbeats have stopped for the timeout, and advice. Throws PeerError if the store does not
/// answer for the timeout; the store must not be used after that.
[[nodiscard]] std::string wait_for_ranks(const c10::intrusive_ptr<c10d::Store>& store, const Awaited& awaited);

/// The reason for which the store does not answer this rank, for messages.
std::string store_is_silent(int rank);

}  // namespace bert
