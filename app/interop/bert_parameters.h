// The parameters of BertForPreTraining by name and shape, without LibTorch.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"

namespace bert {

// The parameters with a row for each token. The decoder repeats the first.
inline constexpr const char* kWordEmbeddings = "bert.embeddings.word_embeddings.weight";
inline constexpr const char* kPredictionBias = "cls.predictions.bias";

/// The parts of BertForPreTraining that checkpoints of other programs have or lack as a whole.
enum class BertPart : uint8_t {
  kEncoder,           // embeddings and layers
  kPooler,            // bert.pooler
  kMaskedTokenHead,   // cls.predictions
  kSentencePairHead,  // cls.seq_relationship
};

struct BertParameter {
  std::string name;
  std::vector<int64_t> shape;
  BertPart part = BertPart::kEncoder;
  bool has_vocabulary_rows = false;  // the first dimension is vocab_size
};

/// All parameters, in the order of the modules. They are those of state_dict() (model/state_dict.h) of a
/// BertForPreTraining of `config`.
std::vector<BertParameter> bert_parameters(const BertConfig& config);

/// The part of the parameter with this name of bert_parameters().
BertPart part_of(std::string_view parameter);

}  // namespace bert
