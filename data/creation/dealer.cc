#include "data/creation/dealer.h"

#include "data/examples/example_maker.h"
#include "data/random/permutation.h"

namespace bert {

Dealer::Dealer(const DealOptions& options)
    : options_(options),
      text_bytes_(options.shards + options.validation_shards),
      documents_(options.shards + options.validation_shards) {
  for (uint32_t target = 0; target < text_bytes_.size(); ++target)
    (target < options.shards ? training_ : validation_).emplace(0, target);
}

std::vector<uint32_t> Dealer::deal(std::span<const int64_t> text_bytes) {
  const size_t count = text_bytes.size();
  std::vector<uint32_t> targets(count);
  if (count == 0) return targets;
  std::vector<uint8_t> held(count);
  if (options_.validation_shards > 0)
    held = held_out(next_document_, count, options_.validation_share, options_.seed, next_document_ == 0);
  const Permutation order(static_cast<int64_t>(count), options_.seed, chunks_);
  for (size_t i = 0; i < count; ++i) {
    const auto document = static_cast<size_t>(order(static_cast<int64_t>(i)));
    ByText& set = held[document] != 0 ? validation_ : training_;
    auto least = set.extract(set.begin());
    const uint32_t target = least.value().second;
    targets[document] = target;
    ++documents_[target];
    least.value().first = text_bytes_[target] += text_bytes[document];
    set.insert(std::move(least));
  }
  ++chunks_;
  next_document_ += count;
  return targets;
}

}  // namespace bert
