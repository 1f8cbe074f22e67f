// Arrow and Parquet files row by row, through a shared library of our own that is there only where Arrow is.
//
// Note [Arrow apart]
// libarrow and libparquet come from the pyarrow wheel (`app/setup.sh --arrow`). They carry copies of many libraries, so
// nothing of ours links them but libbert_arrow.so, which is opened on demand with its own scope, as sentencepiece is
// (data/tokenizer/sentencepiece_library.h). Without it every other format works. Files are read in a child process
// (Note [Bounded child]).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bert {

/// A row. What the file has no column for is empty. Views hold until the next row.
struct ArrowRow {
  // LDDL: tokens with spaces between them, and a numpy array as numpy.save writes it.
  std::string_view a, b, masked_lm_positions, masked_lm_labels;
  int64_t num_tokens = 0;  // of the example; written, not read
  // Hugging Face datasets
  std::span<const int64_t> input_ids, attention_mask, token_type_ids, labels;
  std::span<const std::string_view> tokens;  // in place of input_ids; read, not written
  int64_t label = 0;                         // is_random_next, or next_sentence_label
};

/// Names and values in the schema's metadata.
using ArrowMetadata = std::vector<std::pair<std::string, std::string>>;

/// The columns of a file, which decide how its rows are examples.
struct ArrowSchema {
  bool lddl = false;    // columns A and B; else input_ids or tokens
  bool tokens = false;  // the column tokens, without input_ids
  bool masked = false;  // LDDL: masked_lm_positions and masked_lm_labels; else labels
};

struct ArrowFacts {
  ArrowSchema schema;
  ArrowMetadata metadata;
  int64_t rows = -1;  // -1: the format does not say
};

/// A value in a table. Views hold until the next row.
struct ArrowValue {
  enum class Kind : uint8_t { kAbsent, kText, kNumber, kOther };
  Kind kind = Kind::kAbsent;
  std::string_view text = {};  // kText; kNumber: as JSON writes it, or true and false
};

/// A cell of a table: a value, or a list of values.
struct ArrowCell {
  std::string_view column;
  bool list = false;
  std::span<const ArrowValue> values;  // one if it is no list
};

/// Receives text: results and reasons leave the library this way, so that no memory is freed by another allocator.
using TakeArrowText = std::function<void(std::string_view)>;

/// Writes rows. Each function returns false on failure and passes the reason to `error`.
class ArrowWriter {
 public:
  virtual ~ArrowWriter() = default;
  [[nodiscard]] virtual bool add(const ArrowRow& row, const TakeArrowText& error) = 0;
  [[nodiscard]] virtual bool finish(const TakeArrowText& error) = 0;
};

/// The functions of the library.
class ArrowLibrary {
 public:
  virtual ~ArrowLibrary() = default;
  /// Reads a Parquet file, or an Arrow file or stream, by its first bytes. Calls `begin` once, then `take` for each row
  /// with the share of the file that was read. Returns false on failure and passes the reason to `error`.
  [[nodiscard]] virtual bool read(const std::string& path, const std::function<void(const ArrowFacts&)>& begin,
                                  const std::function<void(const ArrowRow&, double share)>& take,
                                  const TakeArrowText& error) const = 0;
  /// Reads a file of the same formats with columns of any names. Calls `take` with the cells of each row. Returns false on
  /// failure and passes the reason to `error`.
  [[nodiscard]] virtual bool read_table(const std::string& path,
                                        const std::function<void(std::span<const ArrowCell>)>& take,
                                        const TakeArrowText& error) const = 0;
  /// Creates a file of LDDL's schema as Parquet (snappy), or of Hugging Face's as an Arrow stream. Returns null on
  /// failure and passes the reason to `error`.
  [[nodiscard]] virtual std::unique_ptr<ArrowWriter> create(const std::string& path, const ArrowSchema& schema,
                                                            const ArrowMetadata& metadata,
                                                            const TakeArrowText& error) const = 0;
};

/// Opens libbert_arrow.so at the first call. Throws InputMissing if this build has none, IoError if it does not load.
const ArrowLibrary& arrow_library();

}  // namespace bert

/// The one symbol of libbert_arrow.so. The result lives as long as the program.
extern "C" const bert::ArrowLibrary* bert_arrow_library();
