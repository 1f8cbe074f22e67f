#include "app/distributed/rank_lines.h"

#include <algorithm>
#include <iterator>
#include <sstream>
#include <thread>

namespace bert {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kShortestBeat{200}, kShortestLook{20}, kLongestLook{500}, kShortestLinger{150};
constexpr int kBeatsPerMillisecond = 2, kLooksPerMillisecond = 4;  // of all ranks together
constexpr size_t kMostPlaces = 8;                                  // number of ranks that a message describes

std::string text_of(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

using Keys = std::vector<std::pair<int, std::string>>;

/// Calls `present` for ranges of keys that are all there, and `absent` for each key that is not.
template <class Present, class Absent>
void sort_out(c10d::Store& store, Keys::const_iterator begin, Keys::const_iterator end, const Present& present,
              const Absent& absent) {
  if (begin == end) return;
  std::vector<std::string> keys;
  std::transform(begin, end, std::back_inserter(keys), [](const auto& key) { return key.second; });
  if (store.check(keys)) return present(begin, keys);
  if (keys.size() == 1) return absent(*begin);
  const auto middle = begin + static_cast<std::ptrdiff_t>(keys.size() / 2);
  sort_out(store, begin, middle, present, absent);
  sort_out(store, middle, end, present, absent);
}

}  // namespace

Pace::Pace(int ranks)
    : beat(std::max(kShortestBeat, milliseconds(ranks / kBeatsPerMillisecond))),
      examined_beat(beat * 3 / 4),
      observation(beat * 9 / 4),
      look(std::max(kShortestLook, milliseconds(ranks / kLooksPerMillisecond))),
      linger(std::max(kShortestLinger, 3 * look)),
      linger_for_looks(std::max(look, kLongestLook) + linger),
      patience(2 * observation) {}

void Looks::pause() const {
  constexpr int kPart = 32;  // a wait becomes longer by 3 % at most
  const auto part = std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - begin_) / kPart;
  std::this_thread::sleep_for(std::clamp(part, shortest_, std::max(shortest_, kLongestLook)));
}

std::string RankLine::text() const {
  return std::to_string(beat) + "\n" + std::to_string(sequence) + "\n" + phase + "\n" + what;
}

RankLine RankLine::parse(const std::string& text) {
  RankLine line;
  std::istringstream in(text);
  in >> line.beat >> line.sequence;
  in.ignore();
  std::getline(in, line.phase);
  std::getline(in, line.what);
  return line;
}

std::string line_key(int rank) { return "beat/" + std::to_string(rank); }

std::map<int, std::string> read_present(c10d::Store& store, const KeysByRank& keys) {
  const Keys list(keys.begin(), keys.end());
  std::map<int, std::string> values;
  sort_out(
      store, list.begin(), list.end(),
      [&](Keys::const_iterator first, const std::vector<std::string>& range) {
        for (const auto& value : store.multiGet(range)) values[(first++)->first] = text_of(value);
      },
      [](const auto&) {});
  return values;
}

KeysByRank absent_keys(c10d::Store& store, const KeysByRank& keys) {
  const Keys list(keys.begin(), keys.end());
  KeysByRank absent;
  sort_out(
      store, list.begin(), list.end(), [](Keys::const_iterator, const std::vector<std::string>&) {},
      [&](const auto& key) { absent.insert(key); });
  return absent;
}

std::map<int, std::optional<RankLine>> read_lines(c10d::Store& store, const std::vector<int>& ranks) {
  KeysByRank keys;
  for (const int rank : ranks) keys[rank] = line_key(rank);
  std::map<int, std::optional<RankLine>> lines;
  for (const int rank : ranks) lines[rank] = std::nullopt;
  for (const auto& [rank, text] : read_present(store, keys)) lines[rank] = RankLine::parse(text);
  return lines;
}

std::string name_of(const RankLine& line) {
  return "collective " + std::to_string(line.sequence) + (line.what.empty() ? "" : " (" + line.what + ")");
}

std::string place_of(int rank, const std::optional<RankLine>& line) {
  return "\n  rank " + std::to_string(rank) + ": " +
         (line ? "phase " + line->phase + ", last issued " + name_of(*line) : "has said nothing");
}

std::string places_of(const std::map<int, std::optional<RankLine>>& lines) {
  std::string places;
  size_t left = kMostPlaces;
  for (auto each = lines.begin(); each != lines.end() && left > 0; ++each, --left)
    places += place_of(each->first, each->second);
  return places;
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
