#include "app/distributed/store_waits.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include "app/distributed/answer_within.h"
#include "app/system/errors.h"
#include "app/system/torch_errors.h"

namespace bert {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// The heartbeats of awaited ranks are compared so often in a timeout, or every kLongestTrust if that is more often.
constexpr int kComparisonsPerTimeout = 4;
constexpr milliseconds kLongestTrust{5000};

using Lines = std::map<int, std::optional<RankLine>>;

int64_t seconds_of(Clock::duration time) { return std::chrono::duration_cast<std::chrono::seconds>(time).count(); }

/// Waits for the keys for a while. Returns the lines of the ranks whose keys are absent then. Asks in a separate thread,
/// because a store whose holder is stopped never answers.
Lines wait_a_while(const c10::intrusive_ptr<c10d::Store>& store, const KeysByRank& keys, const Awaited& awaited,
                   const Looks& looks) {
  const milliseconds trust = std::min(kLongestTrust, awaited.timeout / kComparisonsPerTimeout);
  const auto ask = [store, keys, looks, end = Clock::now() + trust] {
    std::vector<std::string> list;
    for (const auto& [rank, key] : keys) list.push_back(key);
    for (; !store->check(list); looks.pause()) {
      if (Clock::now() >= end) return read_lines(*store, ranks_of(absent_keys(*store, keys)));
    }
    return Lines();
  };
  std::string reason = "no answer within " + std::to_string(seconds_of(awaited.timeout)) + " s";
  try {
    if (auto lines = answer_within<Lines>(trust + awaited.timeout, ask, awaited.waiting)) return *std::move(lines);
  } catch (const c10::Error& error) {
    reason = first_line(error.what());
  }
  throw PeerError(fmt::format("rank {} waits for the {} of {}, and the store does not answer: {}. ({})", awaited.rank,
                              awaited.what, describe_ranks(ranks_of(keys)), store_is_silent(awaited.rank), reason));
}

}  // namespace

std::string store_is_silent(int rank) {
  return std::string(rank == 0 ? "the launcher that holds it" : "rank 0 or the launcher, which hold it,") +
         " is stopped, dead, or cut off; check rank 0's log and machine";
}

void append_text(c10d::Store& store, const std::string& key, const std::string& text) {
  store.append(key, std::vector<uint8_t>(text.begin(), text.end()));
}

void join_through_store(c10d::Store& store, const Meeting& meeting) {
  append_text(store, meeting.name + "/came", std::to_string(meeting.rank) + "\n");
  const std::string all = meeting.name + "/all";
  if (store.add(meeting.name + "/count", 1) == meeting.size) store.set(all, std::string("1"));
  const auto deadline = Clock::now() + meeting.timeout;
  for (const Looks looks(meeting.size); !store.check({all}); looks.pause()) {
    if (Clock::now() < deadline) continue;
    const std::vector<int> missing = missing_at(store, meeting.name, meeting.size);
    if (missing.empty()) return;
    throw PeerError(did_not_come(missing, meeting.timeout, meeting.advice));
  }
}

std::vector<int> missing_at(c10d::Store& store, const std::string& name, int size) {
  std::set<int> came;
  if (store.check({name + "/came"})) {
    std::istringstream list(store.get_to_str(name + "/came"));
    for (int rank = 0; list >> rank;) came.insert(rank);
  }
  std::vector<int> missing;
  for (int rank = 0; rank < size; ++rank) {
    if (!came.contains(rank)) missing.push_back(rank);
  }
  return missing;
}

std::string did_not_come(const std::vector<int>& missing, milliseconds timeout, const std::string& advice) {
  return fmt::format("{} did not come within {} s: {}", describe_ranks(missing), seconds_of(timeout), advice);
}

std::string wait_for_ranks(const c10::intrusive_ptr<c10d::Store>& store, const Awaited& awaited) {
  struct Pulse {
    uint64_t beat;
    Clock::time_point moved;
  };
  std::map<int, Pulse> pulses;
  KeysByRank keys = awaited.keys;
  const Looks looks(awaited.size);
  const auto begin = Clock::now();
  for (auto reported = begin;;) {
    const Lines lines = wait_a_while(store, keys, awaited, looks);
    if (lines.empty()) return "";
    std::erase_if(keys, [&](const auto& key) { return !lines.contains(key.first); });
    const auto now = Clock::now();
    Clock::duration longest{0};
    for (const auto& [rank, line] : lines) {
      const uint64_t beat = line ? line->beat : 0;
      Pulse& pulse = pulses.try_emplace(rank, Pulse{beat, now}).first->second;
      if (pulse.beat != beat) pulse = {beat, now};
      longest = std::max(longest, now - pulse.moved);
    }
    if (now - begin > awaited.longest) {
      return fmt::format("{}, for whose {} rank {} waits, did not come within {} s: check the log{}",
                         describe_ranks(ranks_of(lines)), awaited.what, awaited.rank, seconds_of(awaited.longest),
                         places_of(lines));
    }
    if (longest > awaited.timeout) {
      Lines silent = lines;  // also ranks that became silent a little later
      std::erase_if(silent, [&](const auto& each) { return now - pulses[each.first].moved < awaited.timeout / 2; });
      const bool one = silent.size() == 1;
      return fmt::format(
          "{}, for whose {} rank {} waits, {} not responded for {} s (stopped, dead, or cut off): check {}{}",
          describe_ranks(ranks_of(silent)), awaited.what, awaited.rank, one ? "has" : "have",
          seconds_of(awaited.timeout), one ? "its log and machine" : "their logs and machines", places_of(silent));
    }
    if (now - reported > awaited.timeout) {
      reported = now;
      fmt::print(
          stderr, "bert: rank {} has waited {} s for the {} of {}, which responds: its log may say what it is at{}\n",
          awaited.rank, seconds_of(now - begin), awaited.what, describe_ranks(ranks_of(lines)), places_of(lines));
    }
  }
}

}  // namespace bert
