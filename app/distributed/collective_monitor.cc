#include "app/distributed/collective_monitor.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <sstream>
#include <thread>
#include <utility>

#include "app/distributed/answer_within.h"
#include "app/distributed/rank_lines.h"
#include "app/distributed/store_waits.h"
#include "app/system/error_report.h"
#include "app/system/errors.h"
#include "app/system/torch_errors.h"

namespace bert {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kLook{200};  // time between two looks at the works that the host does not wait for
constexpr int kExaminers = 2;       // ranks that look for the cause of a failure
constexpr const char* kVerdict = "verdict";
constexpr const char* kSame = "same";

using Lines = std::map<int, std::optional<RankLine>>;

std::string examiners_of(uint64_t sequence) { return "examiners/" + std::to_string(sequence); }

/// The finding of an examiner.
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

/// The examiner's finding about a collective that failed in rank `rank`, whose line is `here`: the lines of all ranks,
/// read twice in Pace::observation.
Diagnosis diagnose(int rank, const RankLine& here, const Lines& before, const Lines& after) {
  std::vector<int> silent, behind, different;
  Lines missing;
  for (const auto& [r, line] : after) {
    if (r == rank) continue;
    const auto& earlier = before.at(r);
    const bool still = !line || (earlier && earlier->beat == line->beat);
    if (!still && line->sequence >= here.sequence) {
      if (line->sequence > here.sequence || line->what != here.what) different.push_back(r);
      continue;
    }
    missing[r] = line;
    (still ? silent : behind).push_back(r);
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
    verdict = describe_ranks({r}) + " has issued " + name_of(*after.at(r)) +
              ": the ranks do not run the same program or configuration, unless the network between them does not "
              "carry it; TORCH_DISTRIBUTED_DEBUG=DETAIL names the first collective that differs";
  } else if (verdict.empty()) {
    verdict =
        "all ranks are in it, so the network between them does not carry it, or a GPU is stuck before it: check that "
        "they "
        "reach each other on every port (GLOO_SOCKET_IFNAME or NCCL_SOCKET_IFNAME chooses the interface)";
  } else {
    verdict += places_of(missing) +
               "\nCheck those ranks' logs and machines; distributed.timeout_seconds is how long the others wait";
  }
  const std::vector<int> accused = ranks_of(missing);
  return {rank, {accused.begin(), accused.end()}, verdict};
}

}  // namespace

struct CollectiveMonitor::State {
  State(const c10::intrusive_ptr<c10d::Store>& shared, int own_rank, int ranks, milliseconds longest)
      : store(shared), beats(shared->clone()), rank(own_rank), size(ranks), pace(ranks), timeout(longest) {}

  struct Watched {
    std::function<bool()> done;
    Clock::time_point deadline;
    std::function<void(const std::string&)> on_failure;
  };
  struct Question {
    std::string error;
    std::optional<std::string> answer;
  };

  RankLine own_line() {
    const std::lock_guard lock(mutex);
    return own;
  }

  Lines read_all_lines() {
    std::vector<int> ranks;
    for (int r = 0; r < size; ++r) ranks.push_back(r);
    return read_lines(*beats, ranks);
  }

  void beat() {
    RankLine line;
    {
      const std::lock_guard lock(mutex);
      line = own;
      line.beat = ++own.beat;
    }
    line.phase = name_of(current_phase());
    beats->set(line_key(rank), line.text());
  }

  /// Compares `here`, the line of this rank, with those of all ranks about to issue a collective. Throws PeerError if
  /// they differ.
  void compare(const RankLine& here) {
    if (!compared) compared = store->clone();
    const auto prefix_of = [](uint64_t sequence) { return "collective/" + std::to_string(sequence); };
    const auto key_of = [&](uint64_t sequence, int r) { return prefix_of(sequence) + "/" + std::to_string(r); };
    const std::string prefix = prefix_of(here.sequence), verdict_key = prefix + "/verdict";
    compared->set(key_of(here.sequence, rank), here.what);
    join_through_store(*compared, {.name = prefix,
                                   .rank = rank,
                                   .size = size,
                                   .timeout = timeout,
                                   .advice = "they have not issued " + name_of(here) + ", which " +
                                             describe_ranks({rank}) + " waits in, phase " + name_of(current_phase())});
    if (rank == 0) {
      KeysByRank keys;
      for (int r = 0; r < size; ++r) keys[r] = key_of(here.sequence, r);
      std::string verdict = kSame;
      for (const auto& [r, other] : read_present(*compared, keys)) {
        if (verdict != kSame || other == here.what) continue;
        verdict = "collective " + std::to_string(here.sequence) + " differs between ranks: " + describe_ranks({0}) +
                  " issues " + here.what + ", " + describe_ranks({r}) + " issues " + other +
                  ". All ranks must issue the same collectives in the same order";
      }
      compared->set(verdict_key, verdict);
    }
    const std::string verdict = compared->get_to_str(verdict_key);
    if (rank == 0 && verdict != kSame) std::this_thread::sleep_for(pace.linger);
    if (verdict != kSame) throw PeerError(verdict);
    if (here.sequence == 1) return;  // every rank has come here, so every rank has read the keys of the last collective
    compared->deleteKey(key_of(here.sequence - 1, rank));
    if (rank != 0) return;
    for (const char* key : {"/came", "/count", "/all", "/verdict"})
      compared->deleteKey(prefix_of(here.sequence - 1) + key);
  }

  /// Begins to observe the other ranks if this rank is an examiner of collective `sequence`.
  void observe(uint64_t sequence) {
    observation = Observation{sequence, Clock::now(), false, {}};
    const int64_t place = beats->add(examiners_of(sequence), 1);
    if (place > kExaminers) return;
    beats->set(examiners_of(sequence) + "/" + std::to_string(place), std::to_string(rank));
    observation->examines = true;
    observation->lines = read_all_lines();
  }

  /// Calls observe() shortly before the last collective of this rank is late.
  void observe_early() {
    uint64_t sequence = 0;
    {
      const std::lock_guard lock(mutex);
      if (own.sequence == 0 || Clock::now() - issued < timeout - pace.observation - 2 * pace.beat) return;
      sequence = own.sequence;
    }
    if (!observation || observation->sequence != sequence) observe(sequence);
  }

  /// Sleeps until `end`, and beats: this rank too is being examined.
  void beat_until(Clock::time_point end, Clock::duration pause) {
    for (beat(); Clock::now() < end; beat()) std::this_thread::sleep_for(std::min(pause, end - Clock::now()));
  }

  /// The examiner's part: reads the lines a second time.
  Diagnosis find_cause(const RankLine& here) {
    beat_until(observation->time + pace.observation, pace.examined_beat);
    if (beats->check({kVerdict})) return Diagnosis::parse(beats->get_to_str(kVerdict));
    const Diagnosis own_finding = diagnose(rank, here, observation->lines, read_all_lines());
    return Diagnosis::parse(beats->compareSet(kVerdict, "", own_finding.joined()));
  }

  /// The part of the other ranks. Accuses the examiners if there is no verdict in time.
  Diagnosis await_verdict(const RankLine& here) {
    const auto end = Clock::now() + pace.observation * 3 / 2;
    auto next_beat = Clock::now();
    for (; !beats->check({kVerdict}); std::this_thread::sleep_for(pace.look)) {
      if (Clock::now() > end) return accuse_examiners(here);
      if (Clock::now() < next_beat) continue;
      next_beat = Clock::now() + pace.examined_beat;
      beat();
    }
    return Diagnosis::parse(beats->get_to_str(kVerdict));
  }

  Diagnosis accuse_examiners(const RankLine& here) {
    KeysByRank keys;
    for (int place = 1; place <= kExaminers; ++place)
      keys[place] = examiners_of(here.sequence) + "/" + std::to_string(place);
    std::set<int> examiners;
    for (const auto& [place, examiner] : read_present(*beats, keys)) examiners.insert(std::stoi(examiner));
    return {rank, examiners,
            describe_ranks({examiners.begin(), examiners.end()}) +
                ", which had to find the cause, did not do so in time (stopped, dead, or cut off)" +
                "\nCheck the logs and machines of those ranks"};
  }

  /// Finds the ranks that are missing in the last collective of this rank. Runs in the thread.
  std::string examine(const std::string& error) {
    const RankLine here = own_line();
    const std::string head = name_of(here) + " failed on " + describe_ranks({rank});
    beat();
    if (!observation || observation->sequence != here.sequence) observe(here.sequence);
    const Diagnosis found = observation->examines ? find_cause(here) : await_verdict(here);
    if (rank == 0) beat_until(Clock::now() + pace.linger, pace.examined_beat);
    if (found.accused.contains(rank))
      return head + ": the others have waited for this rank longer than they may; " + describe_ranks({found.author}) +
             " says: " + found.text + " (" + error + ")";
    return message_of(head, found) + ". (" + error + ")";
  }

  /// Implements explain().
  std::string ask(const std::string& error) {
    const auto question = std::make_shared<Question>(Question{error, std::nullopt});
    std::unique_lock lock(mutex);
    questions.push_back(question);
    changed.notify_all();
    changed.wait_for(lock, pace.patience, [&] { return ended || question->answer; });
    if (question->answer) return *question->answer;
    return name_of(own) + " failed on " + describe_ranks({rank}) + ": the store does not answer either, so " +
           store_is_silent(rank) + ". (" + error + ")";
  }

  /// The body of the thread that watch() starts.
  static void look_after_works(const std::shared_ptr<State>& state) {
    try {
      std::unique_lock lock(state->mutex);
      while (!state->changed.wait_for(lock, kLook, [&] { return state->stopping; })) {
        while (!state->watched.empty()) {
          const std::shared_ptr<const Watched> first = state->watched.front();
          const auto forgotten = [&] { return state->watched.empty() || state->watched.front() != first; };
          lock.unlock();
          bool done = false;
          std::string failure;
          try {
            done = first->done();  // may block in the device's driver
            if (!done && Clock::now() >= first->deadline) failure = "timed out";
          } catch (const c10::DistError& error) {
            failure = first_line(error.what());
          }
          lock.lock();
          if (forgotten()) continue;
          if (!failure.empty()) {
            lock.unlock();
            first->on_failure(state->ask(failure));
            lock.lock();
          } else if (!done) {
            break;
          }
          if (!forgotten()) state->watched.pop_front();
        }
        state->changed.notify_all();
      }
    } catch (const std::exception&) {  // an error of the device: the training thread gets it too
    }
    const std::lock_guard lock(state->mutex);
    state->watched.clear();
    state->watcher_ended = true;
    state->changed.notify_all();
  }

  static void run(const std::shared_ptr<State>& state) {
    try {
      std::unique_lock lock(state->mutex);
      while (!state->stopping) {
        lock.unlock();
        state->beat();
        state->observe_early();
        lock.lock();
        while (!state->questions.empty()) {
          const auto question = state->questions.front();
          lock.unlock();
          std::string answer = state->examine(question->error);
          lock.lock();
          question->answer = std::move(answer);
          state->questions.pop_front();
          state->changed.notify_all();
        }
        state->changed.wait_for(lock, state->pace.beat, [&] { return state->stopping || !state->questions.empty(); });
      }
    } catch (const std::exception&) {  // the store is gone; explain() reports it
    }
    const std::lock_guard lock(state->mutex);
    state->ended = true;
    state->changed.notify_all();
  }

  // `store` is that of the group. `beats` is for the monitor's thread, `compared` for the training thread in a debug run.
  c10::intrusive_ptr<c10d::Store> store, beats, compared;
  const int rank, size;
  const Pace pace;
  const milliseconds timeout;

  struct Observation {
    uint64_t sequence = 0;
    Clock::time_point time;
    bool examines = false;
    Lines lines;  // of all ranks, if this rank is an examiner
  };
  std::optional<Observation> observation;  // the last one; used by the thread only

  std::mutex mutex;
  std::condition_variable changed;
  RankLine own;
  Clock::time_point issued;  // time at which collective own.sequence was issued
  std::deque<std::shared_ptr<const Watched>> watched;
  std::deque<std::shared_ptr<Question>> questions;
  bool stopping = false, ended = false, watcher_ended = false;
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
  const bool ended = state_->changed.wait_for(lock, state_->pace.patience, [&] { return state_->ended; });
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
  const auto compared = answer_within<bool>(state_->timeout + kAfterOwnTimeout, [state = state_] {
    state->compare(state->own_line());
    return true;
  });
  if (!compared) throw PeerError(explain("no answer to the comparison that TORCH_DISTRIBUTED_DEBUG=DETAIL asks for"));
}

std::string CollectiveMonitor::explain(const std::string& error) { return state_->ask(error); }

void CollectiveMonitor::watch(std::function<bool()> done, std::function<void(const std::string& message)> on_failure) {
  const std::lock_guard lock(state_->mutex);
  if (state_->watcher_ended) return;
  state_->watched.push_back(std::make_shared<const State::Watched>(
      State::Watched{std::move(done), Clock::now() + state_->timeout, std::move(on_failure)}));
  if (!state_->watcher.joinable()) state_->watcher = std::thread([state = state_] { State::look_after_works(state); });
}

void CollectiveMonitor::wait_until_done() {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [&] { return state_->watched.empty(); });
}

void CollectiveMonitor::stop_watching() {
  const std::lock_guard lock(state_->mutex);
  state_->watched.clear();
}

}  // namespace bert
