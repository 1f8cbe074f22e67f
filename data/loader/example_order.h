// The order in which a run reads its examples: any element of it is computed directly.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/loader/source_mix.h"
#include "data/random/permutation.h"

namespace bert {

/// Examples that follow each other in the numbering of all examples, and the share of sequences that they get.
struct ExampleSource {
  std::string name;
  int64_t examples = 0;
  double weight = 1;  // in relation to the other sources
};

/// The example of any sequence number. Sources are interleaved by weight, and each has epochs of its own: in an epoch
/// every example of the source comes once, in an order that seed, source and epoch give. The order of a single source
/// depends on seed and epoch alone. Keeps the permutation of each source's last epoch, so each thread needs its own
/// object.
class ExampleOrder {
 public:
  /// Throws std::invalid_argument for a source without examples, and what SourceMix throws.
  ExampleOrder(const std::vector<ExampleSource>& sources, uint64_t seed, bool shuffle);

  struct Place {
    int64_t source = 0;
    int64_t epoch = 0;    // of the source
    int64_t example = 0;  // in the numbering of all sources
    bool operator==(const Place&) const = default;
  };
  Place operator()(int64_t sequence);

  /// The first example of a source, and the first after its last.
  [[nodiscard]] int64_t begin_of(int64_t source) const { return sources_[static_cast<size_t>(source)].begin; }
  [[nodiscard]] int64_t end_of(int64_t source) const {
    const Source& found = sources_[static_cast<size_t>(source)];
    return found.begin + found.size;
  }

 private:
  struct Source {
    int64_t begin, size;
    uint64_t seed;
    int64_t epoch;  // of `permutation`
    Permutation permutation;
  };

  SourceMix mix_;
  std::vector<Source> sources_;
  bool shuffle_;
};

}  // namespace bert
