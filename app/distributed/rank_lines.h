// The line that each rank of a group writes into the store several times a second, and its readers.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

namespace bert {

/// Note [Requests to the store]
/// All ranks of a job share one store. The requests of a rank therefore must not grow with the number of ranks: no rank
/// asks for a key of each other rank, unless it does so for all. One rank reads the keys of all ranks with requests that
/// name many keys, and writes a result under one key, for which the others look. Requests that repeat become rarer as
/// ranks become more, and as the wait becomes longer: Pace and Looks. (A blocking wait of c10d::TCPStore would save the
/// looks, but it writes two warnings to stderr when its time is over, and it blocks the connection.)

/// The times of a group, which grow with the number of its ranks. Up to 400 ranks a rank beats every 200 ms, and up to
/// 80 ranks it looks for a key every 20 ms. All ranks together write at most 2,000 heartbeats and look at most 4,000
/// times in a second.
struct Pace {
  explicit Pace(int ranks);
  std::chrono::milliseconds beat;           // time between two heartbeats
  std::chrono::milliseconds examined_beat;  // the same while ranks are being examined
  std::chrono::milliseconds observation;    // more than two beats: a live rank has beaten
  std::chrono::milliseconds look;           // time between two looks for a key
  // Rank 0 may hold the store: the others need time to read its last word, after looks at equal times or after Looks.
  std::chrono::milliseconds linger, linger_for_looks;
  std::chrono::milliseconds patience;  // longest wait of CollectiveMonitor::explain() for the store
};

/// The pauses of a rank that waits for a key: a small part of the time that it has waited so far.
class Looks {
 public:
  /// `ranks`: number of ranks that may wait at the same time.
  explicit Looks(int ranks) : shortest_(Pace(ranks).look) {}
  void pause() const;

 private:
  std::chrono::milliseconds shortest_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

/// The heartbeat of a rank, and its place in the program.
struct RankLine {
  uint64_t beat = 0, sequence = 0;  // sequence: number of collectives that it has issued
  std::string phase, what;          // what: the last collective

  [[nodiscard]] std::string text() const;
  static RankLine parse(const std::string& text);
};

/// The key of a rank's line.
std::string line_key(int rank);

using KeysByRank = std::map<int, std::string>;

/// The values of those keys that are there. Takes two or three requests if all are there, and about 2 log2 n more for
/// each absent one.
std::map<int, std::string> read_present(c10d::Store& store, const KeysByRank& keys);

/// Those of the keys that are absent, in as many requests.
KeysByRank absent_keys(c10d::Store& store, const KeysByRank& keys);

/// The lines of these ranks; none for a rank that has written none.
std::map<int, std::optional<RankLine>> read_lines(c10d::Store& store, const std::vector<int>& ranks);

/// "collective 7 (barrier)"
std::string name_of(const RankLine& line);

/// A line of a message: the rank's phase and its last collective.
std::string place_of(int rank, const std::optional<RankLine>& line);

/// place_of() of the first ranks.
std::string places_of(const std::map<int, std::optional<RankLine>>& lines);

/// A list of ranks for messages: "rank 3", "ranks 1, 4 and 7". A long list is cut.
std::string describe_ranks(const std::vector<int>& ranks);

/// The ranks that are keys of a map.
template <class Value>
std::vector<int> ranks_of(const std::map<int, Value>& by_rank) {
  std::vector<int> ranks;
  for (const auto& [rank, value] : by_rank) ranks.push_back(rank);
  return ranks;
}

}  // namespace bert
