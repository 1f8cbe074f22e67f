// Examples of documents that are in memory.
#pragma once

#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

#include "data/examples/example_maker.h"
#include "data/tokenizer/tokenizer.h"

namespace bert::testing {

/// All examples of all documents.
inline std::vector<PretrainingExample> create_examples(const TokenizedDocuments& documents, const Tokenizer& tokenizer,
                                                       const PretrainingDataConfig& config) {
  std::vector<uint32_t> which(documents.size());
  std::iota(which.begin(), which.end(), 0U);
  ExampleMaker maker(documents, which, std::make_shared<const MaskingVocabulary>(tokenizer), config,
                     static_cast<uint64_t>(config.random_seed));
  maker.make();
  std::vector<PretrainingExample> examples(maker.size());
  for (size_t i = 0; i < examples.size(); ++i) maker.get(i, examples[i]);
  return examples;
}

}  // namespace bert::testing
