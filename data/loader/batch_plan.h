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

/// Packs the first items of `weights` into at most `bins` bins of `capacity`: as many of them as best-fit decreasing finds
/// room for, at least bins * floor(capacity / heaviest). Returns the bins that are not empty; their items are 0 .. n - 1,
/// and ascending in each bin. A pure function of its arguments. Throws std::invalid_argument for a weight below 1 or above
/// `capacity`, and if bins < 1.
///
/// Note [Packed micro-batches]
/// With micro_batch_tokens C, a step has a fixed number K of micro-batches, the one nearest to what global_batch_size
/// sequences of mean length need. A step takes as many of the next sequences as have room in K times C tokens. The first
/// sequence without room begins the next step. So the order of sequences is the usual one, a position is the number of
/// consumed sequences, and the step that begins at a position follows from that position alone.
/// Were the number of sequences of a step fixed instead, the last micro-batch of each step would be half full in the mean:
/// 6 % of a step of 256 sequences of Wikipedia with C = 8,192. As it is, a step misses less than a sequence, as long as the
/// packing finds room for the last ones. global_batch_size is the number of sequences in the mean, but for the rounding of
/// K: with K = 4 it is off by 12 % or less. fairseq (--max-tokens) counts a batch in tokens in this way, too.
/// A sum over the step weights losses by tokens and sequences, so it does not depend on how the step is divided.
/// Source of best-fit decreasing: D. S. Johnson, "Near-optimal bin packing algorithms", 1973.
std::vector<std::vector<int64_t>> pack(std::span<const int64_t> weights, int64_t capacity, int64_t bins);

/// Note [Static batches]
/// A micro-batch of micro_batch_tokens C has one of a handful of shapes, whatever its sequences are, so that the work of a
/// shape can be captured once in a CUDA graph. T is C. A tail of sequences of the token 0 fills the room behind the last
/// sequence, and sequences without tokens follow. B is a power of two, and so is max_seqlen, at least 64 and at most the
/// longest of all rows. M is a multiple of C / 64. Masked positions behind the last one are 0. PackedBatch::padding and
/// PackedBatch::counted say what is real: the losses leave out the rest, whose gradients are 0. On the CPU the real rows
/// of the forward pass are those of a batch without padding, to the bit where products of rows do not depend on their
/// number (those of MKL and oneDNN do in larger models, by rounding).
struct BatchShape {
  int64_t tokens = 0, sequences = 0, masked = 0, max_seqlen = 0;
  bool operator==(const BatchShape&) const = default;
};
/// The shape for a batch of shape `real` with `tokens` = C.
BatchShape static_shape(const BatchShape& real, int64_t tokens, int64_t longest_row);

/// Halves the bin with the greatest sum of weights until there are `least` bins, or no bin has two items. More ranks than
/// packed micro-batches need it: a rank without a micro-batch could not take part in the reduction. Items of a bin are
/// ascending. A pure function of its arguments.
void split_bins(std::vector<std::vector<int64_t>>& bins, std::span<const int64_t> weights, int64_t least);

/// Divides the items into groups of `size` with close weights: items are sorted by weight / `width` (rounded up),
/// heaviest first, and cut. Items of a group are ascending. weights.size() must be a multiple of `size`. Throws
/// std::invalid_argument.
std::vector<std::vector<int64_t>> group_by_weight(std::span<const int64_t> weights, int64_t size, int64_t width);

}  // namespace bert
