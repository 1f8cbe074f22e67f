// The assignment of whole tensors to ranks, for the sharded optimizer and for `bert plan`.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace bert {

/// The owner of each of `sizes` (elements, in the order of the parameters): Note [Sharding by whole tensors] in
/// optim/sharded_optimizer.h. 1 <= ranks <= sizes.size().
[[nodiscard]] inline std::vector<int> owners_of_runs(const std::vector<int64_t>& sizes, int ranks) {
  /// True if `ranks` runs of at most `most` elements each, last parameter first, hold everything.
  const auto fits = [&](int64_t most) {
    int64_t run = 0;
    int runs = 1;
    for (auto size = sizes.rbegin(); size != sizes.rend(); ++size) {
      if (run > 0 && run + *size > most) {
        ++runs;
        run = 0;
      }
      run += *size;
    }
    return runs <= ranks;
  };
  int64_t low = 1, high = 1;
  for (const int64_t size : sizes) {
    low = std::max(low, size);
    high += size;
  }
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    fits(middle) ? high = middle : low = middle + 1;
  }
  std::vector<int> owners(sizes.size());
  int64_t run = 0;
  int owner = 0;
  for (size_t i = sizes.size(); i-- > 0;) {
    const bool every_rank_after_needs_one = i + 1 <= static_cast<size_t>(ranks - 1 - owner);
    if (i + 1 < sizes.size() && (run + sizes[i] > low || every_rank_after_needs_one)) {
      ++owner;
      run = 0;
    }
    run += sizes[i];
    owners[i] = owner;
  }
  return owners;
}

/// Elements of the largest share.
[[nodiscard]] inline int64_t largest_share(const std::vector<int64_t>& sizes, int ranks) {
  const std::vector<int> owners = owners_of_runs(sizes, ranks);
  std::vector<int64_t> shares(static_cast<size_t>(ranks));
  for (size_t i = 0; i < sizes.size(); ++i) shares[static_cast<size_t>(owners[i])] += sizes[i];
  return *std::ranges::max_element(shares);
}

}  // namespace bert
