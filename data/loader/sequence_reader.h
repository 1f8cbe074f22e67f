// The rows of a run's sequences, with the rule for damaged ones.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "data/formats/shard.h"
#include "data/loader/example_order.h"

namespace bert {

/// Note [Damaged rows]
/// A damaged row, as its checksum shows, ends a run, unless the run asks to skip such rows. Then the sequence takes the
/// next good row of its source instead, the first after the last; so the number of sequences of a step stays, and every
/// rank, which reads the same files, finds the same replacement. A source without a good row ends the run all the same.

/// Each thread needs its own object.
class SequenceReader {
 public:
  /// The examples of `sources` follow each other in `shards`. Throws what ExampleOrder throws.
  SequenceReader(std::shared_ptr<const PretrainingShards> shards, const std::vector<ExampleSource>& sources,
                 uint64_t seed, bool shuffle, bool replace_damaged);

  struct Sequence {
    ShardRow row;
    ExampleOrder::Place place;  // the example of `row`
    bool replaced = false;      // the example of the order is damaged
  };
  /// Throws DataError with file and offset for a damaged row that is not to be replaced.
  Sequence read(int64_t number);

  /// The order without regard to damage.
  ExampleOrder& order() { return order_; }
  /// Descriptions of the damaged rows that were found since the last call.
  std::vector<std::string> take_damage();

 private:
  [[nodiscard]] int64_t next_in_source(const ExampleOrder::Place& place) const;

  std::shared_ptr<const PretrainingShards> shards_;
  ExampleOrder order_;
  bool replace_damaged_;
  std::unordered_map<int64_t, int64_t> replacements_;  // of damaged examples
  std::vector<std::string> damage_;
};

}  // namespace bert
