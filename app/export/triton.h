// The configuration of a model in a repository of NVIDIA's Triton Inference Server, for its LibTorch backend.
// Source: docs/user_guide/model_configuration.md of github.com/triton-inference-server/server; the names and types of inputs
// and outputs are those of DeepLearningExamples, PyTorch/LanguageModeling/BERT/triton/model.py.
#pragma once

#include <cstdint>
#include <string>

#include "model/config.h"

namespace bert {

/// Files of a model in a repository, from the model's directory on.
inline constexpr const char* kTritonConfigFile = "config.pbtxt";
inline constexpr const char* kTritonVersion = "1";  // directory of kTritonModelFile
inline constexpr const char* kTritonModelFile = "model.pt";

struct TritonModel {
  BertConfig config;
  std::string architecture;     // as NamedModel has it
  bool pooler = true;           // of a BertModel
  int64_t num_labels = 0;       // of a classifier of sequences or tokens
  int64_t vector_size = 0;      // of a BertModel that is a sentence encoder: the numbers of a text's vector
  int64_t max_batch_size = 16;  // the largest batch of the reference's tables
};

/// The text of config.pbtxt for an export of the model (model/torchscript.h). The inputs are input__0 (input ids),
/// input__1 (token type ids) and input__2 (attention mask), int32 [S] for each sequence; the outputs are output__0 and
/// so on, fp32. Requests of one length are computed together. Throws DataError for an unknown architecture.
std::string triton_config(const TritonModel& model);

}  // namespace bert
