// Documents in memory to one file of examples.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/creation/example_directory.h"
#include "data/creation/needs.h"
#include "data/examples/tokenized_documents.h"

namespace bert {

struct ExampleFileOptions {
  std::vector<std::string> paths;  // several files get the examples in turn, as in Google's script
  std::string format;
  std::string named;              // the name of the file in messages
  std::vector<uint32_t> which{};  // numbers of the documents; empty: all
  PretrainingDataConfig config;
  uint64_t seed = 0;
  Parameters parameters;
  std::string scratch_directory{};   // for the examples that are not in memory; empty: all are
  double expected_examples = 0;      // examples_of(), for whose places memory is reserved
  int64_t memory_bytes = INT64_MAX;  // for the examples, beside the documents
};

/// The examples took more than ExampleFileOptions::memory_bytes. No file was written.
struct MemoryExceeded : TooMuchMemory {
  using TooMuchMemory::TooMuchMemory;
};

/// Makes the examples and writes the files. The figures of the first one count the documents. `progress` may be empty; it
/// gets the finished share, 0 to 1. Throws IoError, MemoryExceeded, and DataError if no example has a masked token though
/// masks are stored: no model learns from them.
std::vector<ExampleFileFigures> write_examples(const ExampleFileOptions& options, const TokenizedDocuments& documents,
                                               const Tokenizer& tokenizer, const std::function<void(double)>& progress);

/// The sentence about examples without masked tokens, which Google's create_pretraining_data.py makes, too.
std::string without_masks_message(const std::string& name, const PretrainingDataConfig& config,
                                  const ExampleFileFigures& figures);

}  // namespace bert
