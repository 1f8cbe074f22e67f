// The division of a global batch into micro-batches, and of micro-batches among ranks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace bert {

/// Deals the items 0 .. weights.size() - 1 into `bins`. The numbers of items differ by at most one, and bins with one
/// more come first. The sums of weights are close to each other. Items of a bin are ascending. A pure function of its
/// arguments. Throws std::invalid_argument if bins < 1.
///
/// Note [Balanced micro-batches]
/// The step alone decides which sequences it consumes. The division into micro-batches depends on these sequences and
/// on micro_batch_size, and not on the number of ranks. So any number of ranks computes the same sums.
/// Sequences are dealt so that micro-batches have close numbers of tokens. Whole micro-batches are then dealt to ranks
/// in the same way. Both take the heaviest items first, one for each bin in turn, the lightest bin first. Then the
/// heaviest and the lightest bin, or one of them and a third, swap items as long as that brings the two closer.
/// The weight of a sequence is its length. In steps of many sequences, where small errors average out, it is the size
/// of its row in bytes, which is known without reading the row. So a rank reads the pages of its own sequences only.
std::vector<std::vector<int64_t>> deal_evenly(std::span<const int64_t> weights, int64_t bins);

}  // namespace bert
