// Files of pre-training examples in any format: one reader and one writer for all, chosen by content or by name.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/examples/pretraining_data.h"
#include "data/tokenizer/vocabulary.h"

namespace bert {

/// The facts that hold for all examples of a file.
struct ExampleFileInfo {
  int64_t max_seq_length = 0;           // tokens; formats that pad, pad to it
  int64_t max_predictions_per_seq = 0;  // masked tokens; formats that pad, pad to it
  int64_t vocab_size = 0;               // every id is below; 0: unknown
  std::string vocabulary_checksum;      // Vocabulary::hash(); empty: unknown
  Parameters parameters;                // settings of creation; training relies on some (joint_info in example_set.h)
};

/// Reads the examples of one file in order. Every example has passed validate().
class ExampleReader {
 public:
  virtual ~ExampleReader() = default;
  [[nodiscard]] virtual const ExampleFileInfo& info() const = 0;
  /// The number of examples, or -1 for a format that does not say.
  [[nodiscard]] virtual int64_t size() const = 0;
  /// Reads the next example into `example`. Returns false after the last one. Throws DataError with file and offset.
  virtual bool next(PretrainingExample& example) = 0;
  /// Passes over `count` examples, fewer at the end of the file. Returns their number. Throws what next() throws.
  virtual int64_t skip(int64_t count);
  /// The share of the file that was read, 0 to 1.
  [[nodiscard]] virtual double share() const = 0;
};

/// Writes examples one by one. The file gets its name on commit().
class ExampleWriter {
 public:
  virtual ~ExampleWriter() = default;
  /// Throws DataError if the example is malformed or exceeds the file's facts, IoError.
  virtual void add(const PretrainingExample& example) = 0;
  /// Completes the file. No call may follow. Throws IoError.
  virtual void commit() = 0;
};

/// The names that create_examples_file takes, as at --format. ".gz" means packed with gzip.
std::vector<std::string> example_formats();

/// The name of a file after its conversion into `format`: its own, with the format's extension in place of that of any
/// format. Throws std::invalid_argument for an unknown format.
std::string name_in_format(const std::string& name, std::string_view format);

/// Throws InputMissing, with the way to get it, if the format needs a library that is absent.
void require_format(std::string_view format);

/// The sentence for people who write examples with these parameters into a file `path` of a format that does not keep the
/// objective; empty for a format that does, and for examples of next sentence, which such a format stands for.
std::string unsaid_objective(std::string_view format, const std::string& path, const Parameters& parameters);

/// The format of a file, one of example_formats(); its first bytes tell. Throws InputMissing, IoError, and DataError for
/// content that is none of them.
std::string format_of_file(const std::string& path);

/// The files behind a path: the path itself, or for a directory its files of examples, sorted by name. A name says that
/// a file has examples: ".shard", ".tfrecord", ".tfrecord.gz", ".hdf5", ".h5", ".parquet", ".parquet_0" and so on, ".arrow". Throws InputMissing if there are none, or
/// if one of a numbered set is absent (data/formats/numbered_files.h).
std::vector<std::string> example_files(const std::string& path);

/// Opens a file of any format that `bert data` reads. LDDL's files hold tokens, which are looked up in `vocabulary`; no
/// other format needs it. Throws InputMissing, IoError, DataError.
std::unique_ptr<ExampleReader> open_examples(const std::string& path, const Vocabulary* vocabulary = nullptr);

/// Creates a file. Throws IoError, and DataError for facts that the format cannot hold. A format without a place for the
/// vocabulary or the parameters leaves them out. LDDL's files need the `vocabulary` of the examples.
std::unique_ptr<ExampleWriter> create_examples_file(std::string_view format, const std::string& path,
                                                    const ExampleFileInfo& info,
                                                    const Vocabulary* vocabulary = nullptr);

}  // namespace bert
