// How a global batch is cut into micro-batches, and how these are dealt to ranks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace bert {

/// Items 0 .. weights.size() - 1 dealt into `bins`: their numbers differ by at most one, those with one more come
/// first, and the sums of weights are close to each other. A pure function of its arguments. Items of a bin are
/// ascending. Throws std::invalid_argument when bins < 1.
///
/// Note [Balanced micro-batches]
/// Which sequences a step consumes depends on the step alone. How they are cut into micro-batches depends on these
/// sequences and on micro_batch_size, not on the number of ranks: so any number of ranks computes the same sums. Sequences
/// are dealt so that micro-batches have close numbers of tokens; whole micro-batches are then dealt to ranks in the
/// same way. Both take the heaviest items first, one to each bin in turn, to the lightest bin first; then the heaviest
/// and the lightest bin, or one of them and a third, swap items as long as that brings the two closer. What a sequence weighs is its length; in steps of
/// many sequences, where small errors average out, the size of its row, which is known without reading it: so a rank
/// reads the pages of its own sequences only.
std::vector<std::vector<int64_t>> deal_evenly(std::span<const int64_t> weights, int64_t bins);

}  // namespace bert
