#include "app/distributed/collective_monitor.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <sstream>
#include <thread>
#include <utility>

#include "app/distributed/answer_within.h"
#include "app/system/error_report.h"
#include "app/system/errors.h"
#include "app/system/torch_errors.h"

namespace bert {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kBeat{200};         // time between two heartbeats
constexpr milliseconds kObservation{450};  // more than two beats: a live rank has beaten
constexpr milliseconds kExaminedBeat{150};
constexpr milliseconds kLinger{150};    // rank 0 may hold the store: the others need time to read the verdict
constexpr milliseconds kPatience{900};  // longest wait of explain() for the store
constexpr milliseconds kPoll{20};       // time between two looks for a key
constexpr size_t kMostPlaces = 8;       // number of ranks that a message describes

std::string key_of(const std::string& kind, int rank) { return kind + "/" + std::to_string(rank); }

/// The line that a rank writes into the store.
struct Line {
  uint64_t beat = 0, sequence = 0;
  std::string phase, what;

  [[nodiscard]] std::string text() const {
    return std::to_string(beat) + "\n" + std::to_string(sequence) + "\n" + phase + "\n" + what;
  }
  static Line parse(const std::string& text) {
    Line line;
    std::istringstream in(text);
    in >> line.beat >> line.sequence;
    in.ignore();
    std::getline(in, line.phase);
    std::getline(in, line.what);
    return line;
  }
};

/// The finding of the first rank that noticed a failure.
struct Diagnosis {
  int author = 0;
  std::set<int> accused;  // ranks that are missing in the collective
  std::string text;

  [[nodiscard]] std::string joined() const {
    std::string result = std::to_string(author);
    for (const int rank : accused) result += " " + std::to_string(rank);
    return result + "\n" + text;
  }
  static Diagnosis parse(const std::string& joined) {
    Diagnosis diagnosis;
    const size_t end = joined.find('\n');
    std::istringstream in(joined.substr(0, end));
    in >> diagnosis.author;
    for (int rank = 0; in >> rank;) diagnosis.accused.insert(rank);
    diagnosis.text = joined.substr(end + 1);
    return diagnosis;
  }
};

/// The message of a rank about a failed collective. The missing ranks come first: readers look for them, and launchers
/// show only the beginning of a message.
std::string message_of(const std::string& failure, const Diagnosis& diagnosis) {
  if (diagnosis.accused.empty()) return failure + ": " + diagnosis.text;
  const size_t end = std::min(diagnosis.text.find('\n'), diagnosis.text.size());
  return diagnosis.text.substr(0, end) + ": " + failure + diagnosis.text.substr(end);
}

std::string name_of(const Line& line) {
  return "collective " + std::to_string(line.sequence) + (line.what.empty() ? "" : " (" + line.what + ")");
}

std::string place_of(int rank, const std::optional<Line>& line) {
  return "\n  rank " + std::to_string(rank) + ": " +
         (line ? "phase " + line->phase + ", last issued " + name_of(*line) : "has said nothing");
}

/// The reason for which the store does not answer this rank.
std::string store_is_silent(int rank) {
  return std::string(rank == 0 ? "the launcher that holds it" : "rank 0 or the launcher, which hold it,") +
         " is stopped, dead, or cut off; check rank 0's log and machine";
}

using Beats = std::map<int, std::string>;  // last line of each rank; "" if there is none

std::string describe_ranks_of(const std::map<int, std::string>& by_rank) {
  std::vector<int> ranks;
  for (const auto& [rank, text] : by_rank) ranks.push_back(rank);
  return describe_ranks(ranks);
}

std::string places_of(const Beats& beats) {
  std::string places;
  size_t left = kMostPlaces;
  for (auto each = beats.begin(); each != beats.end() && left > 0; ++each, --left)
    places += place_of(each->first, each->second.empty() ? std::nullopt : std::optional(Line::parse(each->second)));
  return places;
}

int64_t seconds_of(Clock::duration time) { return std::chrono::duration_cast<std::chrono::seconds>(time).count(); }

/// The last lines of the ranks whose keys are absent. Asks in a separate thread, because a store whose holder is
/// stopped never answers.
Beats missing_beats(const c10::intrusive_ptr<c10d::Store>& store, const std::map<int, std::string>& keys,
                    const Awaited& awaited) {
  const auto look = [store, keys] {
    Beats beats;
    for (const auto& [rank, key] : keys) {
      const std::string heart = key_of("beat", rank);
      if (!store->check({key})) beats[rank] = store->check({heart}) ? store->get_to_str(heart) : "";
    }
    return beats;
  };
  std::string reason = "no answer within " + std::to_string(seconds_of(awaited.timeout)) + " s";
  try {
    if (auto beats = answer_within<Beats>(awaited.timeout, look)) return *std::move(beats);
  } catch (const c10::Error& error) {
    reason = first_line(error.what());
  }
  throw PeerError(fmt::format("rank {} waits for the {} of {}, and the store does not answer: {}. ({})", awaited.rank,
                              awaited.what, describe_ranks_of(keys), store_is_silent(awaited.rank), reason));
}

}  // namespace

struct CollectiveMonitor::State {
  State(const c10::intrusive_ptr<c10d::Store>& shared, int own_rank, int ranks, milliseconds longest)
      : store(shared->clone()), beats(shared->clone()), rank(own_rank), size(ranks), timeout(longest) {}

  struct Watched {
    std::function<bool()> done;
    Clock::time_point deadline;
    std::function<void(const std::string&)> on_failure;
  };
  struct Question {
    std::string error;
    std::optional<std::string> answer;
  };

  std::vector<std::optional<Line>> read_lines() {
    std::vector<std::optional<Line>> lines(static_cast<size_t>(size));
    for (int r = 0; r < size; ++r) {
      if (beats->check({key_of("beat", r)}))
        lines[static_cast<size_t>(r)] = Line::parse(beats->get_to_str(key_of("beat", r)));
    }
    return lines;
  }

  void beat() {
    Line line;
    {
      const std::lock_guard lock(mutex);
      line = own;
      line.beat = ++own.beat;
    }
    line.phase = name_of(current_phase());
    beats->set(key_of("beat", rank), line.text());
  }

  /// Compares `here`, the line of this rank, with those of all ranks about to issue a collective. Throws PeerError if
  /// they differ.
  void compare(const Line& here) {
    const std::string prefix = "collective/" + std::to_string(here.sequence);
    store->set(key_of(prefix, rank), here.what);
    join_through_store(*store, {.name = prefix + "/join",
                                .rank = rank,
                                .size = size,
                                .timeout = timeout,
                                .advice = "they have not issued " + name_of(here) + ", which " +
                                          describe_ranks({rank}) + " waits in, phase " + name_of(current_phase())});
    const std::string first = store->get_to_str(key_of(prefix, 0));
    for (int r = 1; r < size; ++r) {
      const std::string other = store->get_to_str(key_of(prefix, r));
      if (other != first) {
        throw PeerError("collective " + std::to_string(here.sequence) + " differs between ranks: " +
                        describe_ranks({0}) + " issues " + first + ", " + describe_ranks({r}) + " issues " + other +
                        ". All ranks must issue the same collectives in the same order");
      }
    }
    if (here.sequence > 1) {  // every rank has come here, so every rank has read it
      const std::string past = "collective/" + std::to_string(here.sequence - 1);
      store->deleteKey(key_of(past, rank));
      store->deleteKey(key_of(past + "/join", rank));
    }
  }

  /// Reads the lines of the other ranks shortly before the last collective of this rank is late.
  void observe_early() {
    {
      const std::lock_guard lock(mutex);
      if (own.sequence == 0 || Clock::now() - issued < timeout - kObservation - 2 * kBeat) return;
      if (early && early->sequence == own.sequence) return;
      early = Observation{own.sequence, Clock::now(), {}};
    }
    early->lines = read_lines();  // only this thread uses `early`
  }

  /// Reads the lines of the other ranks twice and compares them. Runs in the thread.
  std::string examine(const std::string& error) {
    Line here;
    {
      const std::lock_guard lock(mutex);
      here = own;
    }
    const std::string head = name_of(here) + " failed on " + describe_ranks({rank});
    const bool observed = early && early->sequence == here.sequence;
    const auto before = observed ? early->lines : read_lines();
    const auto begin = observed ? early->time : Clock::now();
    for (beat(); Clock::now() - begin < kObservation; beat()) {  // other ranks may be examining this rank
      std::this_thread::sleep_for(std::min<Clock::duration>(kExaminedBeat, kObservation - (Clock::now() - begin)));
    }
    if (beats->check({"verdict"})) {
      const Diagnosis first = Diagnosis::parse(beats->get_to_str("verdict"));
      if (first.accused.contains(rank))
        return head + ": the others have waited for this rank longer than they may; " + describe_ranks({first.author}) +
               " says: " + first.text + " (" + error + ")";
      if (first.author != rank) return message_of(head, first);
    }
    const auto after = read_lines();
    std::vector<int> silent, behind, different;
    std::set<int> accused;
    std::string places;
    for (int r = 0; r < size; ++r) {
      if (r == rank) continue;
      const auto& line = after[static_cast<size_t>(r)];
      const auto& earlier = before[static_cast<size_t>(r)];
      const bool still = !line || (earlier && earlier->beat == line->beat);
      if (!still && line->sequence >= here.sequence) {
        if (line->sequence > here.sequence || line->what != here.what) different.push_back(r);
        continue;
      }
      accused.insert(r);
      (still ? silent : behind).push_back(r);
      if (silent.size() + behind.size() > kMostPlaces) continue;
      places += place_of(r, line);
    }
    std::string verdict;
    if (!silent.empty())
      verdict +=
          describe_ranks(silent) + (silent.size() > 1 ? " do" : " does") + " not respond (stopped, dead, or cut off)";
    if (!behind.empty()) {
      verdict += (verdict.empty() ? "" : "; ") + describe_ranks(behind) + (behind.size() > 1 ? " are" : " is") +
                 " not in the collective, but busy elsewhere";
    }
    if (!different.empty() && verdict.empty()) {
      const int r = different.front();
      verdict = describe_ranks({r}) + " has issued " + name_of(*after[static_cast<size_t>(r)]) +
                ": the ranks do not run the same program or configuration, unless the network between them does not "
                "carry it; distributed.debug=true names the first collective that differs";
    } else if (verdict.empty()) {
      verdict =
          "all ranks are in it, so the network between them does not carry it: check that they reach each other "
          "on every port (GLOO_SOCKET_IFNAME or NCCL_SOCKET_IFNAME chooses the interface)";
    } else {
      verdict +=
          places + "\nCheck those ranks' logs and machines; distributed.timeout_seconds is how long the others wait";
    }
    const Diagnosis diagnosis{rank, accused, verdict};
    beats->compareSet("verdict", "", diagnosis.joined());
    if (rank == 0) std::this_thread::sleep_for(kLinger);
    return message_of(head, diagnosis) + ". (" + error + ")";
  }

  /// Implements explain().
  std::string ask(const std::string& error) {
    std::unique_lock lock(mutex);
    question = Question{error, std::nullopt};
    changed.notify_all();
    changed.wait_for(lock, kPatience, [&] { return ended || question->answer; });
    if (question->answer) return *question->answer;
    return name_of(own) + " failed on " + describe_ranks({rank}) + ": the store does not answer either, so " +
           store_is_silent(rank) + ". (" + error + ")";
  }

  /// The body of the thread that watch() starts.
  static void look_after_works(const std::shared_ptr<State>& state) {
    try {
      std::unique_lock lock(state->mutex);
      while (!state->changed.wait_for(lock, kBeat, [&] { return state->stopping; })) {
        while (!state->watched.empty()) {
          const Watched first = state->watched.front();
          lock.unlock();
          bool done = false;
          try {
            done = first.done();  // may block in the device's driver
            if (!done && Clock::now() >= first.deadline) first.on_failure(state->ask("timed out"));
          } catch (const c10::DistError& error) {
            done = true;
            first.on_failure(state->ask(first_line(error.what())));
          }
          lock.lock();
          if (!done && Clock::now() < first.deadline) break;
          state->watched.pop_front();
        }
      }
    } catch (const std::exception&) {  // an error of the device: the training thread gets it too
    }
  }

  static void run(const std::shared_ptr<State>& state) {
    try {
      std::unique_lock lock(state->mutex);
      while (!state->stopping) {
        lock.unlock();
        state->beat();
        state->observe_early();
        lock.lock();
        if (state->question && !state->question->answer) {
          const std::string error = state->question->error;
          lock.unlock();
          std::string answer = state->examine(error);
          lock.lock();
          state->question->answer = std::move(answer);
          state->changed.notify_all();
        }
        state->changed.wait_for(lock, kBeat,
                                [&] { return state->stopping || (state->question && !state->question->answer); });
      }
    } catch (const std::exception&) {  // the store is gone; explain() reports it
    }
    const std::lock_guard lock(state->mutex);
    state->ended = true;
    state->changed.notify_all();
  }

  c10::intrusive_ptr<c10d::Store> store, beats;  // `store` is for the training thread, `beats` for the monitor's
  const int rank, size;
  const milliseconds timeout;

  struct Observation {
    uint64_t sequence = 0;
    Clock::time_point time;
    std::vector<std::optional<Line>> lines;
  };
  std::optional<Observation> early;  // used by the thread only

  std::mutex mutex;
  std::condition_variable changed;
  Line own;
  Clock::time_point issued;  // time at which collective own.sequence was issued
  std::deque<Watched> watched;
  std::optional<Question> question;
  bool stopping = false, ended = false;
  std::thread thread, watcher;
};

CollectiveMonitor::CollectiveMonitor(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                     milliseconds timeout)
    : state_(std::make_shared<State>(store, rank, size, timeout)) {
  state_->beat();  // before any rank can ask
  state_->thread = std::thread([state = state_] { State::run(state); });
}

CollectiveMonitor::~CollectiveMonitor() {
  std::unique_lock lock(state_->mutex);
  state_->stopping = true;
  state_->changed.notify_all();
  const bool ended = state_->changed.wait_for(lock, kPatience, [&] { return state_->ended; });
  lock.unlock();
  if (state_->watcher.joinable()) state_->watcher.join();
  ended ? state_->thread.join()
        : state_->thread.detach();  // a thread that has not ended hangs in a store that does not answer
}

void CollectiveMonitor::begin(const std::string& what) {
  set_last_collective(what);
  const std::lock_guard lock(state_->mutex);
  ++state_->own.sequence;
  state_->own.what = what;
  state_->issued = Clock::now();
}

void CollectiveMonitor::begin_together(const std::string& what) {
  begin(what);
  Line own;
  {
    const std::lock_guard lock(state_->mutex);
    own = state_->own;
  }
  const auto compared = answer_within<bool>(state_->timeout + kAfterOwnTimeout, [state = state_, own] {
    state->compare(own);
    return true;
  });
  if (!compared) throw PeerError(explain("no answer to the comparison that distributed.debug asks for"));
}

std::string CollectiveMonitor::explain(const std::string& error) { return state_->ask(error); }

void CollectiveMonitor::watch(std::function<bool()> done, std::function<void(const std::string& message)> on_failure) {
  const std::lock_guard lock(state_->mutex);
  state_->watched.push_back({std::move(done), Clock::now() + state_->timeout, std::move(on_failure)});
  if (!state_->watcher.joinable()) state_->watcher = std::thread([state = state_] { State::look_after_works(state); });
}

void join_through_store(c10d::Store& store, const Meeting& meeting) {
  store.set(key_of(meeting.name, meeting.rank), std::string("1"));
  std::vector<std::string> keys;
  for (int r = 0; r < meeting.size; ++r) keys.push_back(key_of(meeting.name, r));
  const auto deadline = Clock::now() + meeting.timeout;
  while (!store.check(keys)) {
    if (Clock::now() > deadline) {
      std::vector<int> missing;
      for (int r = 0; r < meeting.size; ++r) {
        if (!store.check({key_of(meeting.name, r)})) missing.push_back(r);
      }
      if (missing.empty()) return;
      throw PeerError(describe_ranks(missing) + " did not come within " +
                      std::to_string(std::chrono::duration_cast<std::chrono::seconds>(meeting.timeout).count()) +
                      " s: " + meeting.advice);
    }
    std::this_thread::sleep_for(kPoll);
  }
}

std::string wait_for_ranks(const c10::intrusive_ptr<c10d::Store>& store, const Awaited& awaited) {
  struct Pulse {
    std::string beat;
    Clock::time_point moved;
  };
  std::map<int, Pulse> pulses;
  std::map<int, std::string> keys = awaited.keys;
  const auto begin = Clock::now();
  for (auto said = begin;; std::this_thread::sleep_for(kPoll)) {
    const Beats beats = missing_beats(store, keys, awaited);
    if (beats.empty()) return "";
    std::erase_if(keys, [&](const auto& key) { return !beats.contains(key.first); });
    const auto now = Clock::now();
    Clock::duration longest{0};
    for (const auto& [rank, beat] : beats) {
      Pulse& pulse = pulses.try_emplace(rank, Pulse{beat, now}).first->second;
      if (pulse.beat != beat) pulse = {beat, now};
      longest = std::max(longest, now - pulse.moved);
    }
    awaited.waiting();
    if (now - begin > awaited.longest) {
      return fmt::format("{}, for whose {} rank {} waits, did not come within {} s: check the log{}",
                         describe_ranks_of(beats), awaited.what, awaited.rank, seconds_of(awaited.longest),
                         places_of(beats));
    }
    if (longest > awaited.timeout) {
      Beats silent = beats;  // also ranks that became silent a little later
      std::erase_if(silent, [&](const auto& each) { return now - pulses[each.first].moved < awaited.timeout / 2; });
      const bool one = silent.size() == 1;
      return fmt::format(
          "{}, for whose {} rank {} waits, {} not responded for {} s (stopped, dead, or cut off): check {}{}",
          describe_ranks_of(silent), awaited.what, awaited.rank, one ? "has" : "have", seconds_of(awaited.timeout),
          one ? "its log and machine" : "their logs and machines", places_of(silent));
    }
    if (now - said > awaited.timeout) {
      said = now;
      fmt::print(stderr,
                 "bert: rank {} has waited {} s for the {} of {}, which responds: its log may say what it is at{}\n",
                 awaited.rank, seconds_of(now - begin), awaited.what, describe_ranks_of(beats), places_of(beats));
    }
  }
}

std::string describe_ranks(const std::vector<int>& ranks) {
  constexpr size_t kMost = 16;
  std::string list;
  for (size_t i = 0; i < ranks.size() && i < kMost; ++i) {
    const bool last = i + 1 == ranks.size();
    list += (i == 0 ? "" : last ? " and " : ", ") + std::to_string(ranks[i]);
  }
  if (ranks.size() > kMost) list += " and " + std::to_string(ranks.size() - kMost) + " more";
  return (ranks.size() == 1 ? "rank " : "ranks ") + list;
}

}  // namespace bert
