// BERT as an ONNX graph.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/checkpoint/safetensors.h"
#include "app/config/sentence_encoder.h"
#include "app/export/onnx_graph.h"
#include "model/config.h"

namespace bert {

/// A model as tensors.
struct NamedModel {
  std::string name;  // stands in messages
  BertConfig config;
  std::string architecture;                      // the class whose state dict the tensors are, as transformers names it
  std::vector<TensorSource> tensors;             // F32, or all F16
  std::optional<SentenceEncoder> sentence = {};  // of a BertModel: what gives the vectors of texts
  std::array<int64_t, 2> marker_ids = {};        // of a BertForEntityMarkers: [E1] and [E2]
};

/// The graph of `model`. Inputs are input_ids, attention_mask and token_type_ids, int64 [B, S] with padding on the
/// right, of any B and S. Input names, output names and names of sizes are those of transformers and optimum. The
/// computation has the dtype of the tensors; outputs are fp32. Values at padding mean nothing.
///   BertForPreTraining             prediction_logits [B, S, V], seq_relationship_logits [B, 2]
///   BertForMaskedLM                logits [B, S, V]
///   BertForQuestionAnswering       start_logits [B, S], end_logits [B, S]
///   BertForSequenceClassification  logits [B, C]
///   BertForEntityMarkers           logits [B, C]; each text has one [E1] and one [E2]
///   BertForTokenClassification     logits [B, S, C]
///   BertForMultipleChoice          logits [B, N]; the inputs are [B, N, S]
///   BertModel with `sentence`      sentence_embedding [B, D], token_embeddings [B, S, H]
///   BertModel                      last_hidden_state [B, S, H], pooler_output [B, H] if there is a pooler
/// Initializers have the names of the tensors; the weight of a linear layer is transposed to [in, out], and its name ends
/// with ".transposed". Tensors that the graph does not use are left out. The graph refers to `model.tensors` and does
/// not read them.
/// Throws DataError for another architecture, an absent tensor, another shape or dtype.
OnnxGraph bert_onnx_graph(const NamedModel& model);

}  // namespace bert
