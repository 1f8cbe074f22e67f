// Memory and disk that the making of examples takes, estimated before it begins.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "data/config.h"
#include "data/corpus/document_reader.h"
#include "data/corpus/input_files.h"
#include "data/creation/document_tokenizer.h"

namespace bert {

/// Examples need more memory than they may take: exit code 71 of a program.
struct TooMuchMemory : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Bytes of text in files: plain files count as they are, compressed ones are unpacked, several at a time. Throws what
/// TextSource throws, and DataError for pipes, which can be read only once.
int64_t count_text_bytes(const std::vector<InputFile>& files, const std::string& encoding, int64_t num_threads);

/// The same from the sizes of the files alone: compressed text is taken for as many times larger as English is.
int64_t guess_text_bytes(const std::vector<InputFile>& files);

/// The counts of a text, and the examples that are made of it.
struct Workload {
  double tokens = 0, sentences = 0, documents = 0;
  int64_t vocab_size = 0;
  PretrainingDataConfig examples;
};

/// English text of that many bytes, which is not read yet: 3.5 bytes a token, 60 a sentence, 600 a document.
Workload workload_of_text(int64_t text_bytes, int64_t vocab_size, const PretrainingDataConfig& examples);

/// Number of examples: an upper bound of the expected number, whatever the lengths of the sentences.
double examples_of(const Workload& work);
/// Memory of TokenizedDocuments.
int64_t memory_of_documents(const Workload& work);
/// The place of examples in the making (PackedExamples).
enum class ExamplesIn { kMemory, kScratchFile };
/// Memory of TokenizedDocuments, ExampleMaker and a writer together, for examples_of(work) examples.
int64_t memory_of(const Workload& work, ExamplesIn place = ExamplesIn::kMemory);
/// The part of `bytes` for a file that ExampleMaker may take for its examples.
int64_t memory_for_examples(const Workload& work, int64_t bytes, ExamplesIn place = ExamplesIn::kMemory);
/// Bytes of the files of examples in `format` (example_formats()).
int64_t disk_of_examples(const Workload& work, const std::string& format);
/// Bytes of the chunk files.
int64_t disk_of_chunks(const Workload& work);

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
