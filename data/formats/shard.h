// A file of pre-training examples: memory-mapped, without padding, every byte under a checksum.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/examples/pretraining_data.h"
#include "data/io/files.h"

namespace bert {

// Note [Shard format]
// Little-endian. `id` takes 2 bytes if the vocabulary has at most 65536 entries, otherwise 4.
//   header   128 bytes: ShardHeader in shard.cc; its last 8 bytes are the XXH3-64 of the bytes before
//   rows     each from a multiple of 4: u32 low half of the XXH3-64 of the rest of the row, u16 length,
//            u16 segment_b_start, u16 masked tokens, u16 1 when the next sentence is random, id input_ids[],
//            id masked_ids[], u16 masked_positions[], zeros
//   offsets  from a multiple of 8: u64 per row, where it starts in the file, and one more for where the rows end
//   text     the vocabulary's checksum and the parameters of creation, "key=value\n" each
// Opening a shard checks header, size, offsets and text, and reads 8 bytes a row. Reading a row checks the row. So
// damaged bytes are never trained on, and rows are read only when they are needed. The checksum of the content, in the
// header, covers rows, offsets and text. It identifies the data in logs and checkpoints, and `bert data verify`
// compares it.

/// The figures that a shard stores of itself.
struct ShardManifest {
  int64_t rows = 0;
  int64_t tokens = 0;  // in all rows, with [CLS] and [SEP]
  int64_t masked_tokens = 0;
  int64_t max_id = 0;          // largest id in any row
  int64_t longest_row = 0;     // tokens
  int64_t vocab_size = 0;      // every id is below
  int64_t max_seq_length = 0;  // no row is longer
  std::string vocabulary_checksum;
  std::string content_checksum;
  std::vector<std::pair<std::string, std::string>> parameters;  // settings of creation, for people
};

/// The objective that the rows were made for. Throws DataError for an unknown word.
inline Objective objective_of(const ShardManifest& manifest) { return objective_of(manifest.parameters); }

struct ShardOptions {
  int64_t vocab_size = 0;
  int64_t max_seq_length = 128;                                 // at most 65535
  std::string vocabulary_checksum;                              // Vocabulary::hash() of the tokenizer's vocabulary
  std::vector<std::pair<std::string, std::string>> parameters;  // names without '=', both without line breaks
};

/// Writes examples one by one. The file gets its name on commit().
class ShardWriter {
 public:
  /// Throws IoError, and DataError when an option is out of range.
  ShardWriter(const std::string& path, ShardOptions options);
  ~ShardWriter();
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;

  /// Throws DataError if the example is malformed (see validate()) or has an id outside of the vocabulary.
  void add(const PretrainingExample& example);
  /// Completes the file. No call may follow. Throws IoError.
  ShardManifest commit();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// A checked row in the mapping. Valid as long as its shard.
class ShardRow {
 public:
  int64_t length = 0;  // tokens
  int64_t segment_b_start = 0;
  int64_t num_masked = 0;
  bool is_random_next = false;

  /// Copies to `out`, which must have room for `length` or `num_masked` elements. Out is int32_t or int64_t.
  template <class Out>
  void copy_input_ids(Out* out) const {
    copy_ids(input_ids_, length, out);
  }
  template <class Out>
  void copy_masked_ids(Out* out) const {
    copy_ids(masked_ids_, num_masked, out);
  }
  [[nodiscard]] int64_t masked_position(int64_t i) const { return masked_positions_[i]; }
  /// Makes `example` the example in the row.
  void copy_to(PretrainingExample& example) const;
  /// Undoes the masks in `ids`, a copy of the input ids.
  template <class Out>
  void restore_masked_ids(Out* ids) const {
    if (wide_) {
      restore<uint32_t>(ids);
    } else {
      restore<uint16_t>(ids);
    }
  }

 private:
  friend class Shard;
  template <class Out>
  void copy_ids(const char* ids, int64_t count, Out* out) const {
    if (wide_) {
      for (int64_t i = 0; i < count; ++i) out[i] = static_cast<Out>(reinterpret_cast<const uint32_t*>(ids)[i]);
    } else {
      for (int64_t i = 0; i < count; ++i) out[i] = static_cast<Out>(reinterpret_cast<const uint16_t*>(ids)[i]);
    }
  }

  template <class Stored, class Out>
  void restore(Out* ids) const {
    const auto* originals = reinterpret_cast<const Stored*>(masked_ids_);
    for (int64_t i = 0; i < num_masked; ++i) ids[masked_positions_[i]] = static_cast<Out>(originals[i]);
  }

  const char* input_ids_ = nullptr;
  const char* masked_ids_ = nullptr;
  const uint16_t* masked_positions_ = nullptr;
  bool wide_ = false;
};

/// One file. Any number of threads may read it.
class Shard {
 public:
  /// Checks header, size, offsets and text. Throws InputMissing, IoError, DataError with the byte offset.
  explicit Shard(const std::string& path);

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const ShardManifest& manifest() const { return manifest_; }
  [[nodiscard]] int64_t size() const { return manifest_.rows; }
  /// Throws DataError with the byte offset if the row is damaged, std::out_of_range for an index outside of the shard.
  [[nodiscard]] ShardRow row(int64_t index) const;
  /// The size of a row in bytes, without reading the row. Throws std::out_of_range.
  [[nodiscard]] int64_t bytes_of_row(int64_t index) const;
  /// Reads and checks every byte. `progress` may be empty; it gets the finished share, 0 to 1. Throws DataError with
  /// the byte offset of the first error.
  void verify(const std::function<void(double)>& progress = {}) const;

 private:
  /// The reason why a row is not the one that was there when the file was opened.
  [[nodiscard]] std::string changed() const;

  std::string path_;
  MappedFile file_;
  ShardManifest manifest_;
  const uint64_t* offsets_ = nullptr;
  bool wide_ = false;
};

/// True if `start`, the first bytes of a file, is the beginning of a shard.
bool is_shard(std::string_view start);
using ShardSpan = std::span<const std::unique_ptr<Shard>>;

/// A checksum of the contents' checksums in order.
std::string content_checksum_of(ShardSpan shards);

/// The files behind a path: the path itself, or for a directory its files *.shard, sorted. Throws InputMissing if there
/// are none, or if one of a numbered set is absent (data/formats/numbered_files.h).
std::vector<std::string> shard_files(const std::string& path);

/// Shards of one vocabulary as one indexable set of examples. Any number of threads may read it. Shards that were
/// converted from a format without vocabulary have an empty vocabulary_checksum, and go together with any others.
class PretrainingShards {
 public:
  /// Opens the shard_files() of each path. Throws what Shard throws, and DataError if there are no rows or the
  /// vocabularies differ.
  explicit PretrainingShards(const std::vector<std::string>& paths);

  [[nodiscard]] int64_t size() const { return first_rows_.back(); }
  /// Throws what Shard::row throws.
  [[nodiscard]] ShardRow row(int64_t index) const;
  [[nodiscard]] int64_t bytes_of_row(int64_t index) const;
  [[nodiscard]] PretrainingExample example(int64_t index) const;

  [[nodiscard]] const std::vector<std::unique_ptr<Shard>>& shards() const { return shards_; }
  /// Every id is below.
  [[nodiscard]] int64_t vocab_size() const { return vocab_size_; }
  /// Takes the ids of shards that do not say their vocabulary as those of one with `vocab_size` entries, which
  /// vocab_size() is then. Throws DataError if an id is not below.
  void assume_vocabulary(int64_t vocab_size);
  /// Vocabulary::hash() of the vocabulary that the shards were made with; empty if none of them knows it.
  [[nodiscard]] const std::string& vocabulary_checksum() const { return known_->manifest().vocabulary_checksum; }
  [[nodiscard]] int64_t longest_row() const;
  /// True if a shard has_pairs(). Throws DataError if one was made for an unknown objective.
  [[nodiscard]] bool any_pairs() const;
  /// Mean number of tokens of a row.
  [[nodiscard]] double mean_length() const;
  /// content_checksum_of() all shards. A checkpoint stores it to recognise its data.
  [[nodiscard]] std::string content_checksum() const { return content_checksum_of(shards_); }

 private:
  /// The shard with row `index`, and the number of the row in it. Throws std::out_of_range.
  [[nodiscard]] std::pair<const Shard*, int64_t> locate(int64_t index) const;

  std::vector<std::unique_ptr<Shard>> shards_;
  int64_t vocab_size_ = 0;
  const Shard* known_ = nullptr;           // the first shard with a known vocabulary, else the first shard
  std::vector<int64_t> first_rows_ = {0};  // first row of each shard, then the total
};

}  // namespace bert
