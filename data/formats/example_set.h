// Files of examples that are read one after another as one set.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/formats/example_file.h"

namespace bert {

/// The example_files() of `paths`, in order. Throws what example_files() throws.
std::vector<std::string> all_example_files(const std::vector<std::string>& paths);

/// The facts that hold for all files: the largest lengths and vocabulary; 0 where a file does not know; the vocabulary's
/// checksum if all files have the same, empty if one does not know it; the parameters that all have in common. Opens
/// each file. Throws what open_examples() throws, and DataError for files of two vocabularies.
ExampleFileInfo common_info(const std::vector<std::string>& files, const Vocabulary* vocabulary);

/// The same for files whose examples become one file. Training relies on the objective, the masking and the settings of
/// the tokenizer; common_info() leaves out those that differ. So this function throws DataError, with both files and both
/// values, where they differ. A file that does not say its objective or its masking has the default, as in training, or
/// the objective `unsaid` if there is one; DataError if a file says another.
ExampleFileInfo joint_info(const std::vector<std::string>& files, const Vocabulary* vocabulary,
                           std::optional<Objective> unsaid = {});

/// Passes every example of the files to `take`, and the share that is done, 0 to 1, to `progress`.
void for_each_example(const std::vector<std::string>& files, const Vocabulary* vocabulary,
                      const std::function<void(const PretrainingExample&)>& take,
                      const std::function<void(double)>& progress);

/// A range of lengths in tokens, both ends included, and the number of examples in it.
struct LengthBin {
  int64_t shortest = 0, longest = 0, examples = 0;
};

/// Counts of examples. The memory does not grow with their number.
class ExampleCounts {
 public:
  void add(const PretrainingExample& example);
  void add(const ExampleCounts& other);
  /// 16 equally wide ranges of lengths, from 1 to `longest` or more.
  [[nodiscard]] std::vector<LengthBin> length_bins() const;

  int64_t examples = 0, tokens = 0, masked_tokens = 0, random_next = 0;
  int64_t longest = 0;             // tokens
  int64_t most_masked = 0;         // of one example
  int64_t max_id = -1;             // of the tokens and the original ids
  int64_t pairs = 0;               // examples with a second segment
  std::vector<int64_t> by_length;  // number of examples of each length, from 0 to longest
};

}  // namespace bert
