// The sources of hard negatives, and the files that they are written to. Readers throw InputMissing, IoError, and
// DataError with the file and the line.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/io/files.h"

namespace bert {

/// Texts, each once, in the order in which they came.
class DistinctTexts {
 public:
  /// The place of the text, which is new if it is not there yet.
  int64_t add(const std::string& text);
  [[nodiscard]] const std::string& at(int64_t place) const { return *texts_[static_cast<size_t>(place)]; }
  [[nodiscard]] int64_t size() const { return static_cast<int64_t>(texts_.size()); }

 private:
  std::unordered_map<std::string, int64_t> places_;
  std::vector<const std::string*> texts_;  // keys of places_, which stay where they are
};

/// Pairs of a table, by the names of its columns.
struct MiningPairs {
  std::string anchor_column, positive_column;
  std::vector<std::string> anchors, positives;
};

/// Reads a table: .tsv, .csv, .jsonl or .json. An empty name stands for "anchor" or "query", and for "positive". Throws
/// DataError for an empty text too.
MiningPairs read_mining_pairs(const std::string& path, const std::string& anchor_column,
                              const std::string& positive_column);

/// Reads further documents: JSON lines with "text" and perhaps "title", as BEIR's, where the name ends in .jsonl or
/// .json; else a text a line. Adds them to `documents`.
void read_mining_corpus(const std::string& path, DistinctTexts& documents);

enum class TupleFormat : uint8_t { kTriplet, kNTuple };
inline std::span<const char* const> names_of(TupleFormat /*type*/) {
  static constexpr std::array<const char*, 2> kNames = {"triplet", "n-tuple"};
  return kNames;
}

/// A text of a row, and its similarity to the anchor.
struct ScoredText {
  const std::string* text = nullptr;
  float score = 0;
};

/// Writes rows of an anchor, a positive and negatives, JSON lines or TSV by the name of the file. The columns of the
/// negatives are "negative" in triplets, one row for each negative; "negative_1" and so on in n-tuples. JSON lines may
/// have the list "scores" of the positive and the negatives.
class TupleWriter {
 public:
  struct Options {
    TupleFormat format = TupleFormat::kTriplet;
    int64_t num_negatives = 1;
    bool scores = false;
  };

  /// Throws UsageError for a name that ends in something else, and for scores in TSV.
  TupleWriter(const std::string& path, const MiningPairs& columns, const Options& options);

  /// Writes the triplets, or the n-tuple if there are enough negatives. Throws DataError for a text that TSV cannot
  /// hold.
  void write(const std::string& anchor, const ScoredText& positive, std::span<const ScoredText> negatives);
  void commit();

  [[nodiscard]] int64_t rows() const { return rows_; }

 private:
  void write_row(const std::string& anchor, const ScoredText& positive, std::span<const ScoredText> negatives);

  std::string path_, buffer_;
  std::vector<std::string> columns_;
  Options options_;
  bool json_;
  int64_t rows_ = 0;
  AtomicFile file_;
};

}  // namespace bert
