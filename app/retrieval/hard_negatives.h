// The choice of hard negatives among the nearest documents of a query, as sentence-transformers' mine_hard_negatives()
// makes it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "app/retrieval/neighbour.h"
#include "data/random/py_random.h"

namespace bert {

enum class Sampling : uint8_t { kTop, kRandom };
inline std::span<const char* const> names_of(Sampling /*type*/) {
  static constexpr std::array<const char*, 2> kNames = {"top", "random"};
  return kNames;
}

/// Names and defaults of mine_hard_negatives().
struct MiningOptions {
  int64_t range_min = 0;                  // candidates that are passed over, from the nearest on
  std::optional<int64_t> range_max = {};  // candidates that are looked at
  std::optional<double> min_score = {}, max_score = {};
  std::optional<double> absolute_margin = {}, relative_margin = {};  // below the positive: p - m, and p - |p| m
  int64_t num_negatives = 3;
  Sampling sampling = Sampling::kTop;
  uint64_t seed = 42;  // of kRandom: that of Python's random.seed()
};

/// Candidates that are looked at. Without a range_max: range_min + max_positives + num_negatives, with a margin or a
/// max_score 10 times num_negatives. `max_positives`: the most positives of a query. Throws UsageError if
/// the range has no room for the negatives.
int64_t range_max_of(const MiningOptions& options, int64_t max_positives);

/// A query's side of the choice.
struct MinedQuery {
  std::span<const Neighbour> nearest;    // best first: range_max + max_positives documents, or all there are
  std::span<const Neighbour> positives;  // with their scores, one or more
  int64_t range_max = 0;
};

/// The negatives of a query, best first: num_negatives, or fewer if there are no more. Positives, documents beyond a
/// margin of the lowest positive score, and documents outside of the scores are no candidates. Of the first range_max
/// that are left the first range_min are passed over. kRandom draws with `random`, as random.sample() does. Scores and
/// limits are compared in fp32.
std::vector<Neighbour> choose_negatives(const MiningOptions& options, const MinedQuery& query, PyRandom& random);

/// `count` different numbers of [0, size), with the draws and in the order of random.sample(range(size), count).
std::vector<size_t> sample_range(PyRandom& random, size_t size, size_t count);

}  // namespace bert
