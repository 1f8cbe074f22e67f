// Pre-training examples from documents, as Google's create_pretraining_data.py makes them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/config.h"
#include "data/examples/masking.h"
#include "data/examples/packed_examples.h"
#include "data/examples/pretraining_data.h"
#include "data/examples/tokenized_documents.h"
#include "data/random/py_random.h"

namespace bert {

// Note [Examples of each objective]
// kNsp: Google's create_training_instances. The same documents, vocabulary and settings give the same examples in the
// same order, except for Note [The next sentence of a lone document].
// kMlm: the sentences of a document, joined to sequences of at most max_seq_length tokens. A sequence ends with a
// sentence; a sentence that is longer than a sequence is cut, and no token is lost. short_seq_prob does not apply.
// Source: DOC-SENTENCES of RoBERTa (Liu et al., 2019), section 4.2.
// kSop: the segments of kNsp, but B always follows A, and in half of the examples the two are swapped. A chunk of one
// sentence is cut inside of the sentence. Source: ALBERT (Lan et al., 2020), section 3.1.

/// Makes the examples of a set of documents, and holds them at about 40 bytes each beside the documents.
class ExampleMaker {
 public:
  /// Uses the documents with the numbers `which`, in this order. `documents` must outlive the object. Throws DataError
  /// if `which` is empty.
  /// With `scratch_directory` the examples, but for 8 bytes each, are in a file there without a name.
  ExampleMaker(const TokenizedDocuments& documents, std::vector<uint32_t> which,
               std::shared_ptr<const MaskingVocabulary> vocabulary, const PretrainingDataConfig& config, uint64_t seed,
               const std::string& scratch_directory = "");

  /// Reserves memory for the places of so many examples: a list that grows is copied.
  void reserve(size_t examples) { examples_.reserve(examples); }
  /// Makes all examples. To be called once. `progress` may be empty; it gets the finished share, 0 to 1, after each
  /// document, and an exception of it ends the making.
  void make(const std::function<void(double)>& progress = {});

  /// Number of examples that were made.
  [[nodiscard]] size_t size() const { return examples_.size(); }
  /// Memory of the examples, beside the documents.
  [[nodiscard]] size_t bytes() const { return examples_.bytes(); }
  /// Makes `example` the example at place `i` of the final order.
  void get(size_t i, PretrainingExample& example) const;
  /// Sentences of one token from which no pair could be made (kSop).
  [[nodiscard]] int64_t lone_tokens() const { return lone_tokens_; }

 private:
  void add_pairs(size_t place);
  size_t add_pair(size_t place, size_t begin, size_t end, int64_t target_length);
  void add_full_sequences(size_t document);
  void choose_next(size_t place, int64_t target_length, SegmentPair& pair);
  void truncate(SegmentPair& pair);
  void add(const SegmentPair& pair);

  const TokenizedDocuments& documents_;
  std::vector<uint32_t> which_;
  std::shared_ptr<const MaskingVocabulary> vocabulary_;
  PretrainingDataConfig config_;
  PyRandom random_;
  Masker masker_;
  PackedExamples examples_;
  int64_t lone_tokens_ = 0;
  std::vector<int32_t> ids_;  // keeps its memory from example to example
};

/// The first documents [first, first + count) of a numbered corpus that are held out for validation: 1 for those whose
/// number hashes, with `seed`, below `share`. With `at_least_one` and two documents or more, at least one is held out
/// and at least one is not. Throws std::invalid_argument for a share outside of (0, 1).
std::vector<uint8_t> held_out(uint64_t first, size_t count, double share, uint64_t seed, bool at_least_one);

}  // namespace bert
