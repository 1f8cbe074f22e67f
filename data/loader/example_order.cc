#include "data/loader/example_order.h"

#include <cstddef>

namespace bert {
namespace {

std::vector<double> weights_of(const std::vector<ExampleSource>& sources) {
  std::vector<double> weights;
  weights.reserve(sources.size());
  for (const ExampleSource& source : sources) weights.push_back(source.weight);
  return weights;
}

}  // namespace

ExampleOrder::ExampleOrder(const std::vector<ExampleSource>& sources, uint64_t seed, bool shuffle)
    : mix_(weights_of(sources)), shuffle_(shuffle) {
  int64_t begin = 0;
  for (size_t i = 0; i < sources.size(); ++i) {
    const int64_t size = sources[i].examples;
    const uint64_t source_seed = i == 0 ? seed : mix_bits(seed ^ mix_bits(i));
    sources_.push_back({begin, size, source_seed, 0, Permutation(size, source_seed, 0)});
    begin += size;
  }
}

ExampleOrder::Place ExampleOrder::operator()(int64_t sequence) {
  const SourceMix::Place place = mix_(sequence);
  Source& source = sources_[static_cast<size_t>(place.source)];
  const int64_t epoch = place.position / source.size, within = place.position % source.size;
  if (epoch != source.epoch && shuffle_) {
    source.permutation = Permutation(source.size, source.seed, static_cast<uint64_t>(epoch));
    source.epoch = epoch;
  }
  return {.source = place.source,
          .epoch = epoch,
          .example = source.begin + (shuffle_ ? source.permutation(within) : within)};
}

}  // namespace bert
