// Memory and disk that the making of examples takes, estimated before it begins.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "data/config.h"
#include "data/corpus/document_reader.h"

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

}  // namespace bert
