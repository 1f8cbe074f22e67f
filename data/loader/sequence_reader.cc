#include "data/loader/sequence_reader.h"

#include <utility>

#include "data/io/error.h"

namespace bert {

SequenceReader::SequenceReader(std::shared_ptr<const PretrainingShards> shards,
                               const std::vector<ExampleSource>& sources, uint64_t seed, bool shuffle,
                               bool replace_damaged)
    : shards_(std::move(shards)), order_(sources, seed, shuffle), replace_damaged_(replace_damaged) {}

SequenceReader::Sequence SequenceReader::read(int64_t number) {
  Sequence sequence{.row = {}, .place = order_(number)};
  if (!replace_damaged_) {
    sequence.row = shards_->row(sequence.place.example);
    return sequence;
  }
  const int64_t wanted = sequence.place.example;
  if (const auto known = replacements_.find(wanted); known != replacements_.end()) {
    sequence.place.example = known->second;
  }
  while (true) {
    try {
      sequence.row = shards_->row(sequence.place.example);
      break;
    } catch (const DataError& error) {
      damage_.emplace_back(error.what());
      sequence.place.example = next_in_source(sequence.place);
      if (sequence.place.example == wanted) throw;  // no row of the source is good
    }
  }
  sequence.replaced = sequence.place.example != wanted;
  if (sequence.replaced) replacements_[wanted] = sequence.place.example;
  return sequence;
}

int64_t SequenceReader::next_in_source(const ExampleOrder::Place& place) const {
  const int64_t next = place.example + 1;
  return next == order_.end_of(place.source) ? order_.begin_of(place.source) : next;
}

std::vector<std::string> SequenceReader::take_damage() { return std::exchange(damage_, {}); }

}  // namespace bert
