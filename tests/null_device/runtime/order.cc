// Order: work runs at once, in the order of the calls, but nothing is known to have run before a stream, an event or a
// wait says so. Every work has a number in its stream and a clock of what it comes after.
#include <algorithm>
#include <cstring>
#include <utility>

#include "tests/null_device/runtime/state.h"

namespace null_device {
namespace {

std::vector<PendingCopy>& pending() {
  static auto* instance = new std::vector<PendingCopy>;
  return *instance;
}

bool overlaps(const PendingCopy& copy, const char* begin, size_t bytes) {
  return copy.host < begin + bytes && begin < copy.host + copy.bytes;
}

/// Results arrive in the memory of the host, and sources are compared.
void finish_pending(const std::function<bool(const PendingCopy&)>& is_done) {
  std::vector<PendingCopy> done;
  std::erase_if(pending(), [&](PendingCopy& copy) {
    if (!is_done(copy)) return false;
    done.push_back(std::move(copy));
    return true;
  });
  for (const PendingCopy& copy : done) {
    if (copy.to_host) {
      std::memcpy(copy.host, copy.data.data(), copy.bytes);
    } else if (checksum_of(copy.host, copy.bytes) != copy.checksum) {
      fault_of_two("the host has changed pinned memory (" + std::to_string(copy.bytes) +
                       " bytes) before it knew that the copy from it on stream " +
                       std::to_string(copy.position.stream) +
                       " had run; this wait shows it, the copy was queued at the other place",
                   copy.place);
    }
  }
}

}  // namespace

void Clock::join(const Clock& other) {
  if (numbers.size() < other.numbers.size()) numbers.resize(other.numbers.size());
  for (size_t i = 0; i < other.numbers.size(); ++i) numbers[i] = std::max(numbers[i], other.numbers[i]);
}
void Clock::set(size_t stream, uint64_t number) {
  if (numbers.size() <= stream) numbers.resize(stream + 1);
  numbers[stream] = std::max(numbers[stream], number);
}
bool Clock::covers(size_t stream, uint64_t number) const {
  return stream < numbers.size() && numbers[stream] >= number;
}

AccessHistory& history() {
  static auto* instance = new AccessHistory;
  return *instance;
}

void AccessHistory::split_at(const char* place) {
  auto next = intervals_.upper_bound(place);
  if (next == intervals_.begin()) return;
  const auto interval = std::prev(next);
  if (interval->first == place || place >= interval->second.end) return;
  Interval rest = interval->second;
  interval->second.end = place;
  intervals_.emplace(place, std::move(rest));
}

void AccessHistory::note(const Position& position, const Clock& after, const Clock& known, const Work& work,
                         const Place& place) {
  const Last self{.position = position,
                  .name = std::make_shared<const std::string>(work.name),
                  .place = std::make_shared<const Place>(place)};
  bool reported = false;
  for (const Access& access : work.accesses) {
    if (access.bytes == 0 || device_of(access.data) < 0) continue;
    const auto compare = [&](const Last& other, const char* did) {
      const auto& [stream, number] = other.position;
      if (reported || stream == position.stream || after.covers(stream, number) || known.covers(stream, number)) return;
      reported = true;
      add_count("race");
      fault_of_two("race: " + work.name + " on stream " + std::to_string(position.stream) +
                       (access.write ? " writes" : " reads") + " bytes that " + *other.name + " on stream " +
                       std::to_string(stream) + " has " + did + ", and neither an event nor a wait orders them (" +
                       block_in_words(access.data) + ")",
                   *other.place);
    };
    access.write ? note_write(access, self, compare) : note_read(access, self, compare);
  }
}

void AccessHistory::note_write(const Access& access, const Last& self, const Compare& compare) {
  const auto* const begin = static_cast<const char*>(access.data);
  const char* const end = begin + access.bytes;
  split_at(begin);
  split_at(end);
  auto interval = intervals_.lower_bound(begin);
  for (; interval != intervals_.end() && interval->first < end; interval = intervals_.erase(interval)) {
    if (interval->second.written) compare(interval->second.writer, "written");
    for (const Last& reader : interval->second.readers) compare(reader, "read");
  }
  intervals_.emplace_hint(interval, begin, Interval{.end = end, .written = true, .writer = self, .readers = {}});
}

void AccessHistory::note_read(const Access& access, const Last& self, const Compare& compare) {
  const auto* const begin = static_cast<const char*>(access.data);
  const char* const end = begin + access.bytes;
  split_at(begin);
  split_at(end);
  auto interval = intervals_.lower_bound(begin);
  for (const char* at = begin; at < end; at = interval->second.end, ++interval) {
    if (interval == intervals_.end() || interval->first > at) {
      const char* const stop = interval == intervals_.end() ? end : std::min(end, interval->first);
      interval =
          intervals_.emplace_hint(interval, at, Interval{.end = stop, .written = false, .writer = {}, .readers = {}});
    }
    Interval& found = interval->second;
    if (found.written) compare(found.writer, "written");
    const auto same = std::find_if(found.readers.begin(), found.readers.end(),
                                   [&](const Last& r) { return r.position.stream == self.position.stream; });
    same == found.readers.end() ? found.readers.push_back(self) : static_cast<void>(*same = self);
  }
}

void AccessHistory::forget(const char* begin, size_t bytes) {
  split_at(begin);
  split_at(begin + bytes);
  intervals_.erase(intervals_.lower_bound(begin), intervals_.lower_bound(begin + bytes));
}

Clock& host_knowledge() {
  static auto* instance = new Clock;
  return *instance;
}

void host_learns(const Clock& clock) {
  host_knowledge().join(clock);
  finish_pending(
      [](const PendingCopy& copy) { return host_knowledge().covers(copy.position.stream, copy.position.number); });
}

void settle_pending(const Stream& stream, const char* begin, size_t bytes, bool write) {
  const auto is_before = [&](const PendingCopy& copy) {
    return copy.position.stream == stream.id || stream.after.covers(copy.position.stream, copy.position.number);
  };
  for (const PendingCopy& copy : pending()) {
    const bool both_read = !write && !copy.to_host;
    if (both_read || !overlaps(copy, begin, bytes) || is_before(copy)) continue;
    add_count("race");
    fault_of_two("race: a copy on stream " + std::to_string(stream.id) + (write ? " writes" : " reads") +
                     " pinned memory that a copy on stream " + std::to_string(copy.position.stream) +
                     (copy.to_host ? " writes" : " reads") + ", and neither an event nor a wait orders them",
                 copy.place);
  }
  finish_pending([&](const PendingCopy& copy) { return overlaps(copy, begin, bytes) && (write || copy.to_host); });
}

// FNV-1a by words.
uint64_t checksum_of(const char* data, size_t bytes) {
  constexpr uint64_t kBasis = 1469598103934665603ULL, kPrime = 1099511628211ULL;
  constexpr int kShift = 29;
  uint64_t hash = kBasis;
  size_t i = 0;
  for (; i + sizeof(uint64_t) <= bytes; i += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, data + i, sizeof word);
    hash = (hash ^ word) * kPrime;
    hash ^= hash >> kShift;
  }
  for (; i < bytes; ++i) hash = (hash ^ static_cast<unsigned char>(data[i])) * kPrime;
  return hash;
}

void add_pending(PendingCopy copy) { pending().push_back(std::move(copy)); }

const PendingCopy* pending_copy_at(const char* begin, size_t bytes) {
  for (const PendingCopy& copy : pending()) {
    if (overlaps(copy, begin, bytes)) return &copy;
  }
  return nullptr;
}

}  // namespace null_device
