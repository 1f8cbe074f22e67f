// The dealing of documents to shards.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace bert {

// Note [Dealing]
// Documents are numbered in the order of the text. They arrive in chunks of consecutive numbers. The documents of a chunk
// are dealt in the order of a permutation that is keyed by seed and chunk (data/random/permutation.h): each goes to
// the shard that has the least text so far, the first of these if there are several. So neighbours in the text are
// spread, any two shards differ by at most the largest document, and the text is read once. Documents that are held out
// (held_out() of data/examples/example_maker.h) are dealt to the shards for validation in the same way.

struct DealOptions {
  uint64_t seed = 0;
  uint32_t shards = 1;
  uint32_t validation_shards = 0;  // 0: nothing is held out
  double validation_share = 0;     // of the documents
};

class Dealer {
 public:
  explicit Dealer(const DealOptions& options);

  /// Deals the next chunk. Returns the target of each document: a shard, or shards + v for the shard v for validation.
  std::vector<uint32_t> deal(std::span<const int64_t> text_bytes);

  /// Bytes of text by target.
  [[nodiscard]] const std::vector<int64_t>& text_bytes() const { return text_bytes_; }
  [[nodiscard]] const std::vector<int64_t>& documents() const { return documents_; }

 private:
  using ByText = std::set<std::pair<int64_t, uint32_t>>;  // bytes, target: the least first

  DealOptions options_;
  uint64_t chunks_ = 0, next_document_ = 0;
  ByText training_, validation_;
  std::vector<int64_t> text_bytes_, documents_;
};

}  // namespace bert
