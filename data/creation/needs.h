// Memory and disk that the making of examples takes, estimated before it begins.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/config.h"
#include "data/corpus/document_reader.h"

namespace bert {

/// Bytes of text in files: plain files count as they are, compressed ones are unpacked, several at a time. Throws what
/// TextSource throws, and DataError for pipes, which can be read only once.
int64_t count_text_bytes(const std::vector<InputFile>& files, const std::string& encoding, int64_t num_threads);

/// The same from the sizes of the files alone: compressed text is taken for as many times larger as English is.
int64_t guess_text_bytes(const std::vector<InputFile>& files);

/// What is made, for the estimates below.
struct Workload {
  double tokens = 0, sentences = 0, documents = 0;
  int64_t vocab_size = 0;
  PretrainingDataConfig examples;
};

/// English text of that many bytes. An upper estimate: 3.5 bytes a token, 60 a sentence, 600 a document.
Workload workload_of_text(int64_t text_bytes, int64_t vocab_size, const PretrainingDataConfig& examples);

/// Number of examples, estimated.
double examples_of(const Workload& work);
/// Memory of TokenizedDocuments and ExampleMaker together.
int64_t memory_of(const Workload& work);
/// Bytes of the files of examples in `format` (example_formats()).
int64_t disk_of_examples(const Workload& work, const std::string& format);
/// Bytes of the chunk files.
int64_t disk_of_chunks(const Workload& work);

}  // namespace bert
