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

/// Packs the items 0 .. weights.size() - 1 into as few bins of `capacity` as best-fit decreasing finds, but at least
/// `least_bins` (if there are so many items). Items of a bin are ascending. A pure function of its arguments. Throws
/// std::invalid_argument for a weight below 1 or above `capacity`.
///
/// Note [Packed micro-batches]
/// With micro_batch_tokens, a micro-batch holds as many sequences of the step as have room in that many tokens. So the
/// number of micro-batches of a step follows from its sequences, and most are full to the last tokens. If the sequences
/// also have room in as many bins of nearly equal sums, these are taken: ranks then wait less for each other.
/// A sum over the step does not depend on the division, because losses are weighted by tokens and sequences: a run
/// consumes the same sequences as without packing and has the same gradients but for rounding.
/// `least_bins` is the number of ranks: a rank without a micro-batch could not take part in the reduction. It matters
/// only to a step that is smaller than the ranks' micro-batches together.
/// Source of best-fit decreasing: D. S. Johnson, "Near-optimal bin packing algorithms", 1973.
std::vector<std::vector<int64_t>> pack(std::span<const int64_t> weights, int64_t capacity, int64_t least_bins);

/// Divides the items into groups of `size` with close weights: items are sorted by weight / `width` (rounded up),
/// heaviest first, and cut. Items of a group are ascending. weights.size() must be a multiple of `size`. Throws
/// std::invalid_argument.
std::vector<std::vector<int64_t>> group_by_weight(std::span<const int64_t> weights, int64_t size, int64_t width);

}  // namespace bert
