// Memory of a single file of examples, which is made of all documents at once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/config.h"
#include "data/corpus/input_files.h"
#include "data/creation/document_tokenizer.h"
#include "data/creation/needs.h"

namespace bert {

/// Compares the need of a file with the memory that it may take, at each step with what is known. The messages advise a
/// directory of files.
class FileMemory {
 public:
  FileMemory(const PretrainingDataConfig& examples, int64_t vocab_size, int64_t allowed)
      : examples_(examples), vocab_size_(vocab_size), allowed_(allowed) {}

  /// The need by the sizes of the files, about, as a sentence. Pipes have no size. Throws TooMuchMemory.
  [[nodiscard]] std::string check_files(const std::vector<InputFile>& files) const;
  /// Throws TooMuchMemory if the text up to now takes too much.
  void check_text(const CorpusStatistics& so_far) const;
  /// The number of examples of the text, and the memory that they may take.
  [[nodiscard]] double examples(const CorpusStatistics& text) const { return examples_of(workload(text)); }
  [[nodiscard]] int64_t for_examples(const CorpusStatistics& text) const;
  /// The error for examples that took more.
  [[nodiscard]] TooMuchMemory exceeded(const CorpusStatistics& text) const;

 private:
  [[nodiscard]] Workload workload(const CorpusStatistics& text) const;
  [[nodiscard]] std::string sentence(int64_t text_bytes, const char* takes, int64_t need) const;
  [[nodiscard]] TooMuchMemory too_much(int64_t text_bytes, const char* takes, int64_t need) const;

  const PretrainingDataConfig& examples_;
  int64_t vocab_size_, allowed_;
};

}  // namespace bert
