// The interleaving of several sources of examples by weight.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace bert {

/// Gives every position of an endless order to one of several sources. Among the first p positions, for every p, source
/// s has p * share(s) positions, with an error below 1. Both directions are computed without the positions before.
///
/// The order repeats a pattern. Its length is the smallest at which every source has a whole number of positions, at
/// most kLongestPattern; weights that need a longer one are rounded to it, and share() says to what. The pattern is that
/// of R. Tijdeman, "The chairman assignment problem", Discrete Mathematics 32 (1980): of the sources that may get the
/// next position, the one that must have it soonest gets it.
class SourceMix {
 public:
  static constexpr int64_t kLongestPattern = 1 << 16;  // 4 bytes a position; a rounded share is off by less than 2^-16

  /// Throws std::invalid_argument without weights, for a weight that is not finite and positive, and for a source whose
  /// share is less than 1 / kLongestPattern.
  explicit SourceMix(std::span<const double> weights);

  struct Place {
    int64_t source;
    int64_t position;  // number of the source's positions before this one
    bool operator==(const Place&) const = default;
  };
  /// The source of a position, at least 0.
  [[nodiscard]] Place operator()(int64_t position) const;

  /// The share of positions that a source gets. The shares add up to 1.
  [[nodiscard]] double share(int64_t source) const;
  [[nodiscard]] int64_t pattern_length() const { return static_cast<int64_t>(pattern_.size()); }

 private:
  struct Entry {
    uint16_t source, before;  // `before`: number of the source's entries before this one
  };

  std::vector<int64_t> counts_;  // entries of each source in the pattern
  std::vector<Entry> pattern_;
};

}  // namespace bert
