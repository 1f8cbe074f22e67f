// Examples as references to the tokens of their documents: a tenth of the memory of PretrainingExample.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/examples/masking.h"
#include "data/io/descriptor.h"
#include "data/random/py_random.h"

namespace bert {

/// A file without a name: appended to, and read at any place.
class ScratchFile {
 public:
  /// Throws IoError.
  explicit ScratchFile(const std::string& directory);

  /// Throws IoError, on a full disk with the bytes needed and free.
  void append(const void* data, size_t bytes);
  /// Reads up to `bytes` bytes from `offset`, fewer at the end of the file. Returns their number. Throws IoError.
  size_t read(int64_t offset, void* to, size_t bytes) const;

 private:
  std::string directory_;
  Descriptor file_;
  int64_t size_ = 0;
};

/// The segments of an example as ranges of tokens [begin, end) in TokenizedDocuments.
struct SegmentPair {
  size_t a_begin = 0, a_end = 0;
  size_t b_begin = 0, b_end = 0;  // empty without B
  bool has_b = false;
  bool label = false;  // PretrainingExample::is_random_next
};

/// A token that was masked, and its replacement.
struct TokenReplacement {
  int32_t position;
  int32_t id;
};

/// A list of examples that can be shuffled. An example takes 8 bytes for its place, and as a rule 10 for its segments and
/// 1.3 for each masked token. The latter two may be on disk: then reading an example takes a call of the system.
class PackedExamples {
 public:
  /// All is in memory, or with a directory, all but the places in a file there without a name. Throws IoError.
  explicit PackedExamples(const std::string& scratch_directory = "");

  /// Appends an example. Throws IoError. `ids` is the sequence after `masked` was replaced in it.
  void add(const SegmentPair& pair, std::span<const MaskedToken> masked, std::span<const int32_t> ids, int32_t mask_id);
  [[nodiscard]] size_t size() const { return places_.size(); }
  void reserve(size_t examples) { places_.reserve(examples); }
  /// Memory of the list.
  [[nodiscard]] size_t bytes() const { return blocks_.size() * kBlockBytes + places_.capacity() * sizeof places_[0]; }
  void shuffle(PyRandom& random) { random.shuffle(places_); }

  /// Reads an example part by part: first pair(), then next_masked() while masked_left() is not 0. Throws IoError.
  class Reader {
   public:
    Reader(const PackedExamples& examples, size_t i);
    [[nodiscard]] const SegmentPair& pair() const { return pair_; }
    /// The number of masked tokens that are left.
    [[nodiscard]] size_t masked_left() const { return masked_; }
    /// The next masked token. `ids` is the sequence before any replacement.
    TokenReplacement next_masked(std::span<const int32_t> ids, int32_t mask_id);

   private:
    static constexpr size_t kReadBytes = 192;  // of a file: most examples are shorter

    uint64_t number();
    void read_more();
    const ScratchFile* file_ = nullptr;  // of the bytes that follow those in buffer_
    int64_t file_offset_ = 0;
    std::array<uint8_t, kReadBytes> buffer_;
    const uint8_t *at_ = nullptr, *end_ = nullptr;
    SegmentPair pair_;
    size_t masked_ = 0;
    int32_t position_ = -1;
  };

 private:
  // The largest example, 65535 masked tokens of at most 8 bytes, fits in a block.
  static constexpr size_t kBlockBits = 20, kBlockBytes = size_t{1} << kBlockBits;

  std::optional<ScratchFile> on_disk_;              // the full blocks
  std::vector<std::unique_ptr<uint8_t[]>> blocks_;  // all, or the last one
  size_t full_blocks_ = 0;                          // before the last one
  size_t used_ = kBlockBytes;                       // bytes of the last block
  std::vector<uint64_t> places_;                    // block and byte in it
  std::vector<uint8_t> scratch_;
};

}  // namespace bert
