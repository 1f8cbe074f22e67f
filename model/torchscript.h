// Export to TorchScript.
#pragma once

#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>

#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "model/bert.h"

namespace bert {

/// The attention of an export. kFused is scaled_dot_product_attention, which PyTorch and LibTorch have from 2.0 on. kPlain
/// has the matrix products and the softmax one by one, for older versions; it takes more memory and time.
enum class ExportedAttention { kFused, kPlain };

/// A model whose outputs come from the hidden states of its encoder, the child `bert`. An export takes any such model.
struct EncoderWithOutputs : torch::nn::Module {
  using ParameterNamed = std::function<torch::Tensor(const std::string& name)>;

  explicit EncoderWithOutputs(const BertModel& encoder) : bert(register_module("bert", encoder)) {}

  /// The outputs [B, ...] of input ids, token type ids and mask, int64 [B, S].
  virtual std::vector<torch::Tensor> forward(const torch::Tensor& input_ids, const torch::Tensor& token_type_ids,
                                             const torch::Tensor& attention_mask) = 0;
  /// The same from hidden states [B, S, H], in ATen operators that hold for every B and S. `parameter` gives a parameter
  /// of the export by its name in state_dict(); both have the dtype of the export. Values at padding may be any.
  [[nodiscard]] virtual std::vector<torch::Tensor> outputs(const torch::Tensor& hidden_states,
                                                           const torch::Tensor& input_ids,
                                                           const torch::Tensor& attention_mask,
                                                           const ParameterNamed& parameter) const = 0;

  BertModel bert;
};

/// A traced copy of `module` in evaluation mode. forward(input_ids, token_type_ids, attention_mask) takes int64 [B, S]
/// for any B and S, and returns a tuple of fp32 tensors:
///   BertForPreTraining                                       (mlm_logits [B, S, V], nsp_logits [B, 2])
///   BertForPreTraining without the sentence-pair head        (mlm_logits [B, S, V],)
///   BertForQuestionAnswering                                 (start_logits [B, S], end_logits [B, S])
///   BertForSequenceClassification                            (logits [B, C],)
///   BertForTokenClassification                               (logits [B, S, C],)
///   BertForMultipleChoice                                    (logits [B, 1],), B sequences of any number of questions
///   BertModel                                                (last_hidden_state [B, S, H], pooler_output [B, H])
///   BertModel without a pooler                               (last_hidden_state [B, S, H],)
///   EncoderWithOutputs                                       its outputs
/// Attributes have the names of state_dict(). The copy uses ATen operators only, so the file loads in any LibTorch or
/// PyTorch that has these (ExportedAttention), and on any device. `dtype` (fp32, fp16, bf16) is the dtype of the weights and of the computation; the
/// outputs are fp32. An fp32 export shares the module's tensors if they are on the CPU.
/// Before it is returned, the copy runs at another batch size and length, padded, next to the module. Throws c10::Error
/// if fp32 differs by more than 1e-5 (relative above 1), or lower precision by more than its rounding explains.
/// `module` must have fp32 parameters; its training mode stays.
torch::jit::Module export_torchscript(torch::nn::Module& module, torch::Dtype dtype = torch::kFloat,
                                      ExportedAttention attention = ExportedAttention::kFused);

/// Files stored in the archive beside the code, by name: "config.json", "vocab.txt".
using ExtraFiles = std::unordered_map<std::string, std::string>;

/// Passes the bytes of the archive to `writer`, in order. `writer` must return its second argument, and must not throw:
/// LibTorch writes from a destructor, where an exception ends the process.
void save_torchscript(const torch::jit::Module& module, const ExtraFiles& extra_files,
                      const std::function<size_t(const void* data, size_t bytes)>& writer);

}  // namespace bert
