// Tensors of a small BERT as a reader of another program's checkpoint would give them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "app/checkpoint/safetensors.h"
#include "app/interop/bert_parameters.h"

namespace bert::testing {

/// A tensor of fp32 whose element i is `first` + i.
inline TensorSource counting_tensor(std::string name, std::vector<int64_t> shape, float first) {
  int64_t elements = 1;
  for (const int64_t size : shape) elements *= size;
  auto values = std::make_shared<std::vector<float>>(static_cast<size_t>(elements));
  for (size_t i = 0; i < values->size(); ++i) (*values)[i] = first + static_cast<float>(i);
  return {std::move(name), "F32", std::move(shape), [values] {
            return std::string_view(reinterpret_cast<const char*>(values->data()), values->size() * sizeof(float));
          }};
}

inline BertConfig small_bert() {
  return {.vocab_size = 10,
          .hidden_size = 4,
          .num_hidden_layers = 2,
          .num_attention_heads = 2,
          .intermediate_size = 8,
          .hidden_act = Activation::kGelu,
          .max_position_embeddings = 6};
}

/// Every parameter of small_bert(); the n-th one counts from n.
inline std::vector<TensorSource> small_bert_tensors() {
  std::vector<TensorSource> tensors;
  for (const BertParameter& parameter : bert_parameters(small_bert()))
    tensors.push_back(counting_tensor(parameter.name, parameter.shape, static_cast<float>(tensors.size())));
  return tensors;
}

/// The tensor of this name. Throws std::out_of_range.
inline TensorSource& tensor_named(std::vector<TensorSource>& tensors, const std::string& name) {
  for (TensorSource& tensor : tensors) {
    if (tensor.name == name) return tensor;
  }
  throw std::out_of_range(name);
}

}  // namespace bert::testing
