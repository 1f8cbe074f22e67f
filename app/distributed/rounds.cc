#include "app/distributed/rounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "app/distributed/rank_lines.h"
#include "app/distributed/store_waits.h"
#include "app/system/errors.h"

namespace bert {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kPause{20};  // between two looks of rank 0 for new entrants
constexpr const char* kOpened = "rounds/opened";
constexpr const char* kTickets = "rounds/tickets";
constexpr const char* kCame = "came";    // list of the processes that have entered a round
constexpr const char* kEarly = "early";  // list of those that wait for it to be opened, for messages
constexpr const char* kVoid = "void";
constexpr const char* kGo = "go";
constexpr const char* kRefused = "refused: ";  // prefix of an outcome
constexpr const char* kAtWork = ": its group is at work without this process";
constexpr int kMovesOfALiveRank = 2;  // heartbeats seen one after another: a dying rank makes one

std::string key_of(int64_t round, const char* name) { return fmt::format("rounds/{}/{}", round, name); }

struct Entry {
  int64_t ticket = 0;
  int rank = 0, size = 0;
};

std::string came_twice(int rank) {
  return fmt::format("rank {} has come twice; check RANK, or whether a job was started twice", rank);
}

/// The tickets of a round that has begun, by rank; none if `outcome` is another.
std::vector<int64_t> tickets_of(const std::string& outcome) {
  std::istringstream in(outcome);
  std::string word;
  std::vector<int64_t> tickets;
  if (in >> word && word == kGo) {
    for (int64_t ticket = 0; in >> ticket;) tickets.push_back(ticket);
  }
  return tickets;
}

/// Watches the last round that began before this process came, if there is one.
class LastRound {
 public:
  LastRound(int64_t round, int size, int own_rank)
      : round_(round), rank_(own_rank), size_(size), pause_(Pace(size).observation) {}

  /// True if the process of this rank in that round is alive, and its rank 0. Asks the store at most once in a time in
  /// which a live rank beats.
  bool is_alive(c10d::Store& store) {
    if (rank_ >= size_ || Clock::now() - looked_ < pause_) return false;
    looked_ = Clock::now();
    KeysByRank keys;
    for (const int rank : {0, std::max(rank_, 1)}) keys[rank] = group_prefix(round_) + "/" + line_key(rank);
    std::map<int, std::string> lines = read_present(store, keys);
    bool moved = lines.size() == keys.size();
    for (const auto& [rank, line] : lines) moved = moved && lines_.contains(rank) && lines_[rank] != line;
    moves_ = moved ? moves_ + 1 : 0;
    lines_ = std::move(lines);
    return moves_ == kMovesOfALiveRank;
  }

 private:
  int64_t round_;
  int rank_, size_;
  milliseconds pause_;
  Clock::time_point looked_;
  std::map<int, std::string> lines_;
  int moves_ = 0;
};

class Meeter {
 public:
  Meeter(c10d::Store& store, const Entrant& entrant)
      : store_(store), entrant_(entrant), deadline_(Clock::now() + entrant.timeout), ticket_(store.add(kTickets, 1)) {}

  /// Implements join_round() for rank 0.
  int64_t lead() {
    const int64_t round = store_.add(kOpened, 1);
    void_undecided(round - 1);
    LastRound last = last_begun(round - 1);
    store_.set(key_of(round, "open"), std::string("1"));
    enter(round);
    for (int64_t known = 0;; std::this_thread::sleep_for(kPause)) {
      const int64_t count = store_.add(key_of(round, "count"), 0);
      if (count != known) {
        known = count;
        const std::string decision = decision_on(entries(round, kCame));
        if (!decision.empty()) return decide(round, decision);
      }
      if (store_.check({key_of(round, "outcome")})) return round_of(round, kVoid);
      if (last.is_alive(store_)) return decide(round, kRefused + came_twice(0) + kAtWork);
      expect_time_left(round, kCame);
    }
  }

  /// Implements join_round() for the other ranks.
  int64_t follow() {
    for (int64_t round = std::max<int64_t>(store_.add(kOpened, 0), 1);; ++round) {
      LastRound last = last_begun(round - 1);
      if (!store_.check({key_of(round, "open")})) {
        sign(round, kEarly);
        await(round, "open", last, kEarly);
      }
      const std::string outcome = key_of(round, "outcome");
      if (store_.check({outcome})) continue;
      enter(round);
      await(round, "outcome", last, kCame);
      if (const int64_t joined = round_of(round, store_.get_to_str(outcome)); joined > 0) return joined;
    }
  }

 private:
  /// Voids the undecided rounds up to `round`. All rounds before one that its own rank 0 has decided are decided: that
  /// rank 0 has been here.
  void void_undecided(int64_t round) {
    for (bool is_void = true; is_void && round > 0; --round) {
      is_void = store_.compareSet(key_of(round, "outcome"), "", kVoid) == kVoid;
      store_.set(key_of(round, "open"), std::string("1"));  // its rank 0 may have died before
    }
  }

  /// The last round up to `round` that has begun.
  LastRound last_begun(int64_t round) {
    for (; round > 0; --round) {
      const std::string outcome = key_of(round, "outcome");
      if (!store_.check({outcome})) continue;
      const std::vector<int64_t> tickets = tickets_of(store_.get_to_str(outcome));
      if (!tickets.empty()) return {round, static_cast<int>(tickets.size()), entrant_.rank};
    }
    return {0, 0, entrant_.rank};
  }

  /// Gives the round of this rank 0 its outcome, unless it is void by now.
  int64_t decide(int64_t round, const std::string& decision) {
    const std::string outcome = store_.compareSet(key_of(round, "outcome"), "", decision);
    if (!outcome.starts_with(kGo))
      std::this_thread::sleep_for(Pace(entrant_.size).linger_for_looks);  // it may hold the store
    return round_of(round, outcome);
  }

  /// Waits for a key of the round. The ranks that are not in `list` are missing if it does not come.
  void await(int64_t round, const char* key, LastRound& last, const char* list) {
    for (const Looks looks(entrant_.size); !store_.check({key_of(round, key)}); looks.pause()) {
      if (last.is_alive(store_)) throw ConfigError(came_twice(entrant_.rank) + kAtWork);
      expect_time_left(round, list);
    }
  }

  void sign(int64_t round, const char* list) {
    append_text(store_, key_of(round, list), fmt::format("{} {} {}\n", ticket_, entrant_.rank, entrant_.size));
  }

  void enter(int64_t round) {
    sign(round, kCame);
    store_.add(key_of(round, "count"), 1);
  }

  std::vector<Entry> entries(int64_t round, const char* list) {
    std::istringstream in(store_.get_to_str(key_of(round, list)));
    std::vector<Entry> result;
    for (Entry entry; in >> entry.ticket >> entry.rank >> entry.size;) result.push_back(entry);
    return result;
  }

  /// The outcome that rank 0 gives to its round; "" if it must wait for more ranks.
  std::string decision_on(const std::vector<Entry>& entries) {
    std::map<int, int64_t> tickets;
    for (const Entry& entry : entries) {
      if (entry.size != entrant_.size) {
        return kRefused + fmt::format(
                              "the ranks here do not belong together: this is a job of {} ranks, by rank 0, and of {} "
                              "ranks, by rank {}; check WORLD_SIZE, or what was started twice",
                              entrant_.size, entry.size, entry.rank);
      }
      if (!tickets.try_emplace(entry.rank, entry.ticket).second) return kRefused + came_twice(entry.rank);
    }
    if (tickets.size() < static_cast<size_t>(entrant_.size)) return "";
    std::string go = kGo;
    for (const auto& [rank, ticket] : tickets) go += fmt::format(" {}", ticket);
    return go;
  }

  /// The round, if it has begun with this process; 0 if this process must go on to another round. Throws ConfigError.
  [[nodiscard]] int64_t round_of(int64_t round, const std::string& outcome) const {
    if (outcome.starts_with(kRefused)) throw ConfigError(outcome.substr(std::string(kRefused).size()));
    const std::vector<int64_t> tickets = tickets_of(outcome);
    const auto place = static_cast<size_t>(entrant_.rank);
    if (place < tickets.size() && tickets[place] == ticket_) return round;
    if (entrant_.rank == 0) throw ConfigError(came_twice(0) + ": another process has come as rank 0 after this one");
    return 0;
  }

  /// Throws PeerError if the time is over. The ranks that are not in `list` are missing.
  void expect_time_left(int64_t round, const char* list) {
    if (Clock::now() < deadline_) return;
    std::set<int> came{entrant_.rank};
    if (store_.check({key_of(round, list)})) {
      for (const Entry& entry : entries(round, list)) came.insert(entry.rank);
    }
    std::vector<int> missing;
    for (int rank = 0; rank < entrant_.size; ++rank) {
      if (!came.contains(rank)) missing.push_back(rank);
    }
    if (missing.empty()) missing = {0};  // it has come, but it does not begin the round
    throw PeerError(did_not_come(missing, entrant_.timeout, entrant_.advice));
  }

  c10d::Store& store_;
  const Entrant entrant_;
  const Clock::time_point deadline_;
  const int64_t ticket_;
};

}  // namespace

int64_t join_round(c10d::Store& store, const Entrant& entrant) {
  Meeter meeter(store, entrant);
  return entrant.rank == 0 ? meeter.lead() : meeter.follow();
}

std::string group_prefix(int64_t round) { return fmt::format("rounds/{}/group", round); }

}  // namespace bert
