#include "app/export/onnx_bert.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <map>
#include <memory>
#include <numbers>
#include <utility>

#include "app/interop/hugging_face_files.h"
#include "app/interop/transpose.h"
#include "data/io/error.h"

namespace bert {
namespace {

const char* const kBatch = "batch_size";
const char* const kSequence = "sequence_length";
const char* const kChoices = "num_choices";

/// Names of results that several layers read.
struct GraphInputs {
  std::string input_ids, attention_mask, token_type_ids;  // [B, S]
  std::string sequences = kBatch;                         // the name of the size B
};

class GraphOfBert {
 public:
  explicit GraphOfBert(const NamedModel& model);

  void pretraining();
  void masked_tokens() {
    graph_.output("logits", mlm_logits(encode(inputs())), {kBatch, kSequence, config_.vocab_size});
  }
  void features();
  void question_answering();
  void sequence_classification();
  void entity_markers();
  void token_classification();
  void multiple_choice();

  OnnxGraph take() { return std::move(graph_); }

 private:
  using Name = std::string;

  Name node(const std::string& op, const std::string& scope, const std::vector<Name>& arguments,
            const std::vector<OnnxAttribute>& attributes = {}) {
    return graph_.node(op, scope, arguments, attributes);
  }

  const TensorSource& tensor(const Name& name, const std::vector<int64_t>& shape) const;
  Name parameter(const Name& name, const std::vector<int64_t>& shape) {
    return graph_.initializer(tensor(name, shape));
  }
  Name transposed(const Name& name, int64_t rows, int64_t columns);
  int64_t labels(const Name& layer) const;

  Name linear(const std::string& layer, const Name& x, int64_t in, int64_t out);
  Name layer_norm(const std::string& layer, const Name& x);
  Name gelu(const std::string& scope, const Name& x, Activation form);
  Name look_up(const std::string& table, const Name& ids, int64_t rows);
  Name embeddings(const GraphInputs& input);
  Name additive_mask(const Name& attention_mask);
  Name self_attention(const std::string& scope, const Name& x, const Name& mask);
  Name encoder_layer(const std::string& scope, const Name& x, const Name& mask);
  Name encode(const GraphInputs& input);
  Name pool(const Name& x);
  Name pooled_tokens(SentencePooling mode, const Name& x, const Name& mask);
  Name dense_activation(DenseActivation activation, const std::string& scope, const Name& x);
  Name sentence(const Name& x, const Name& attention_mask);
  Name mlm_logits(const Name& x);
  GraphInputs inputs(const OnnxShape& shape = {kBatch, kSequence});

  const NamedModel& model_;
  const BertConfig& config_;
  const int64_t hidden_;
  std::map<Name, const TensorSource*> tensors_;
  std::shared_ptr<std::string> buffer_ =
      std::make_shared<std::string>();  // of the transposed tensor that was read last
  OnnxGraph graph_;
};

GraphOfBert::GraphOfBert(const NamedModel& model)
    : model_(model),
      config_(model.config),
      hidden_(model.config.hidden_size),
      graph_(model.tensors.empty() ? "F32" : model.tensors.front().dtype) {
  for (const TensorSource& each : model.tensors) tensors_[each.name] = &each;
}

// ---- weights ----

const TensorSource& GraphOfBert::tensor(const Name& name, const std::vector<int64_t>& shape) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end())
    throw DataError(fmt::format("{}: has no tensor {}; {} needs it", model_.name, name, model_.architecture));
  if (found->second->shape != shape) {
    throw DataError(fmt::format("{}: tensor {} has shape [{}]; expected [{}]", model_.name, name,
                                fmt::join(found->second->shape, ", "), fmt::join(shape, ", ")));
  }
  if (found->second->dtype != graph_.dtype()) {
    throw DataError(fmt::format("{}: tensor {} is {}; expected {}, as the first tensor", model_.name, name,
                                found->second->dtype, graph_.dtype()));
  }
  return *found->second;
}

/// A tensor of rows x columns as columns x rows.
std::string GraphOfBert::transposed(const Name& name, int64_t rows, int64_t columns) {
  const TensorSource& source = tensor(name, {rows, columns});
  const auto width = static_cast<size_t>(element_bytes(source.dtype));
  return graph_.initializer({.name = name + ".transposed",
                             .dtype = source.dtype,
                             .shape = {columns, rows},
                             .bytes = [=, bytes = source.bytes, buffer = buffer_]() -> std::string_view {
                               transpose(bytes(), static_cast<size_t>(rows), static_cast<size_t>(columns), width,
                                         *buffer);
                               return *buffer;
                             }});
}

/// The number of rows of the weight of a classifier.
int64_t GraphOfBert::labels(const Name& layer) const {
  const auto found = tensors_.find(layer + ".weight");
  const bool is_matrix = found != tensors_.end() && found->second->shape.size() == 2;
  return is_matrix ? found->second->shape.front() : 2;  // tensor() says what is wrong
}

// ---- layers ----

std::string GraphOfBert::linear(const std::string& layer, const Name& x, int64_t in, int64_t out) {
  const Name product = node("MatMul", layer, {x, transposed(layer + ".weight", out, in)});
  return node("Add", layer, {product, parameter(layer + ".bias", {out})});
}

std::string GraphOfBert::layer_norm(const std::string& layer, const Name& x) {
  return node("LayerNormalization", layer,
              {x, parameter(layer + ".weight", {hidden_}), parameter(layer + ".bias", {hidden_})},
              {{"axis", int64_t{-1}}, {"epsilon", static_cast<float>(config_.layer_norm_eps)}});
}

/// The erf form, or the tanh form (Hendrycks and Gimpel, arXiv 1606.08415), in the order of operations that ONNX Runtime
/// recognises and fuses.
std::string GraphOfBert::gelu(const std::string& scope, const Name& x, Activation form) {
  const Name one = graph_.scalar(1), half = graph_.scalar(0.5);
  if (form == Activation::kGelu) {
    const Name erf = node("Erf", scope, {node("Div", scope, {x, graph_.scalar(std::numbers::sqrt2_v<float>)})});
    return node("Mul", scope, {node("Mul", scope, {x, node("Add", scope, {erf, one})}), half});
  }
  const Name cube = node("Mul", scope, {node("Pow", scope, {x, graph_.scalar(3)}), graph_.scalar(0.044715F)});
  const float factor = std::sqrt(2 * std::numbers::inv_pi_v<float>);
  const Name tanh = node("Tanh", scope, {node("Mul", scope, {node("Add", scope, {x, cube}), graph_.scalar(factor)})});
  return node("Mul", scope, {node("Mul", scope, {x, half}), node("Add", scope, {tanh, one})});
}

std::string GraphOfBert::look_up(const std::string& table, const Name& ids, int64_t rows) {
  return node("Gather", table, {parameter(table + ".weight", {rows, hidden_}), ids});
}

std::string GraphOfBert::embeddings(const GraphInputs& input) {
  const std::string scope = "bert.embeddings", positions = scope + ".position_embeddings";
  const Name sizes = node("Shape", positions, {input.input_ids});
  const Name length = node("Gather", positions, {sizes, graph_.integer(1)});
  const Name columns = node("Range", positions, {graph_.integer(0), length, graph_.integer(1)});
  const Name words = look_up(scope + ".word_embeddings", input.input_ids, config_.vocab_size);
  const Name types = look_up(scope + ".token_type_embeddings", input.token_type_ids, config_.type_vocab_size);
  const Name sum = node(
      "Add", scope, {node("Add", scope, {words, look_up(positions, columns, config_.max_position_embeddings)}), types});
  // Where the length of the positions meets that of the ids, the size loses its name, without which ONNX Runtime fuses
  // no residual sum with its normalisation.
  graph_.describe(sum, {input.sequences, kSequence, hidden_});
  return layer_norm(scope + ".LayerNorm", sum);
}

/// 0 for a token and -10,000 for padding, [B, 1, 1, S]. Google's modeling.py has this number: its exponential is 0 beside
/// any score, and fp16 has it.
std::string GraphOfBert::additive_mask(const Name& attention_mask) {
  const std::string scope = "bert.attention_mask";
  const Name rows = node("Unsqueeze", scope, {attention_mask, graph_.integers({1})});
  const Name mask = node("Unsqueeze", scope, {rows, graph_.integers({2})});
  const Name ones = node("Cast", scope, {mask}, {{"to", onnx_type(graph_.dtype())}});
  return node("Mul", scope, {node("Sub", scope, {graph_.scalar(1), ones}), graph_.scalar(-10000)});
}

std::string GraphOfBert::self_attention(const std::string& scope, const Name& x, const Name& mask) {
  const int64_t head_size = hidden_ / config_.num_attention_heads;
  const auto heads = [&](const char* name, const std::vector<int64_t>& order) {
    const std::string layer = scope + "." + name;
    const Name shape = graph_.integers({0, 0, config_.num_attention_heads, head_size});  // 0: as it was
    return node("Transpose", layer, {node("Reshape", layer, {linear(layer, x, hidden_, hidden_), shape})},
                {{"perm", order}});
  };
  const Name query = heads("query", {0, 2, 1, 3}), key = heads("key", {0, 2, 3, 1}),
             value = heads("value", {0, 2, 1, 3});
  const Name root = graph_.scalar(std::sqrt(static_cast<float>(head_size)));
  const Name scores = node("Div", scope, {node("MatMul", scope, {query, key}), root});
  const Name shares = node("Softmax", scope, {node("Add", scope, {scores, mask})}, {{"axis", int64_t{-1}}});
  const Name mixed =
      node("Transpose", scope, {node("MatMul", scope, {shares, value})}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
  return node("Reshape", scope, {mixed, graph_.integers({0, 0, hidden_})});
}

std::string GraphOfBert::encoder_layer(const std::string& scope, const Name& x, const Name& mask) {
  const auto output = [&](const std::string& part, const Name& result, int64_t in, const Name& residual) {
    const Name dense = linear(part + ".dense", result, in, hidden_);
    return layer_norm(part + ".LayerNorm", node("Add", part, {dense, residual}));
  };
  const Name attended =
      output(scope + ".attention.output", self_attention(scope + ".attention.self", x, mask), hidden_, x);
  const std::string intermediate = scope + ".intermediate";
  const Name wide = gelu(intermediate, linear(intermediate + ".dense", attended, hidden_, config_.intermediate_size),
                         config_.hidden_act);
  return output(scope + ".output", wide, config_.intermediate_size, attended);
}

std::string GraphOfBert::encode(const GraphInputs& input) {
  const Name mask = additive_mask(input.attention_mask);
  Name x = embeddings(input);
  for (int64_t layer = 0; layer < config_.num_hidden_layers; ++layer)
    x = encoder_layer(fmt::format("bert.encoder.layer.{}", layer), x, mask);
  return x;
}

std::string GraphOfBert::pool(const Name& x) {
  const std::string layer = "bert.pooler.dense";
  const Name first = node("Gather", layer, {x, graph_.integer(0)}, {{"axis", int64_t{1}}});
  return node("Tanh", layer, {linear(layer, first, hidden_, hidden_)});
}

/// The vectors [B, H] of texts by one mode. `mask`: [B, S, 1], 1 for a token and 0 for padding.
std::string GraphOfBert::pooled_tokens(SentencePooling mode, const Name& x, const Name& mask) {
  const std::string scope = "sentence.pooling";
  const auto sum = [&](const Name& values) {
    return node("ReduceSum", scope, {values, graph_.integers({1})}, {{"keepdims", int64_t{0}}});
  };
  // The places [S, 1] of the tokens, from 1.
  const auto places = [&] {
    const Name length = node("Gather", scope, {node("Shape", scope, {x}), graph_.integer(1)});
    const Name end = node("Add", scope, {length, graph_.integer(1)});
    const Name numbers = node("Range", scope, {graph_.integer(1), end, graph_.integer(1)});
    return node("Unsqueeze", scope, {numbers, graph_.integers({1})});
  };
  const auto as_number = [&](const Name& value) {
    return node("Cast", scope, {value}, {{"to", onnx_type(graph_.dtype())}});
  };
  switch (mode) {
    case SentencePooling::kCls:
      return node("Gather", scope, {x, graph_.integer(0)}, {{"axis", int64_t{1}}});
    case SentencePooling::kMax: {
      const Name padding = node("Mul", scope, {node("Sub", scope, {graph_.scalar(1), mask}), graph_.scalar(-10000)});
      return node("ReduceMax", scope, {node("Add", scope, {x, padding})},
                  {{"axes", std::vector<int64_t>{1}}, {"keepdims", int64_t{0}}});
    }
    case SentencePooling::kMean:
      return node("Div", scope, {sum(node("Mul", scope, {x, mask})), sum(mask)});
    case SentencePooling::kMeanSqrtLen:
      return node("Div", scope, {sum(node("Mul", scope, {x, mask})), node("Sqrt", scope, {sum(mask)})});
    case SentencePooling::kWeightedMean: {
      const Name weights = node("Mul", scope, {mask, as_number(places())});
      return node("Div", scope, {sum(node("Mul", scope, {x, weights})), sum(weights)});
    }
    case SentencePooling::kLastToken:
      break;
  }
  const Name last = node("Unsqueeze", scope, {sum(mask), graph_.integers({1})});
  const Name is_last = as_number(node("Equal", scope, {as_number(places()), last}));
  return sum(node("Mul", scope, {x, is_last}));
}

std::string GraphOfBert::dense_activation(DenseActivation activation, const std::string& scope, const Name& x) {
  switch (activation) {
    case DenseActivation::kTanh:
      return node("Tanh", scope, {x});
    case DenseActivation::kGelu:
      return gelu(scope, x, Activation::kGelu);
    case DenseActivation::kRelu:
      return node("Relu", scope, {x});
    case DenseActivation::kSigmoid:
      return node("Sigmoid", scope, {x});
    case DenseActivation::kSilu:
      return node("Mul", scope, {x, node("Sigmoid", scope, {x})});
    case DenseActivation::kIdentity:
      break;
  }
  return x;
}

std::string GraphOfBert::sentence(const Name& x, const Name& attention_mask) {
  const std::string scope = "sentence";
  const Name ones = node("Cast", scope, {attention_mask}, {{"to", onnx_type(graph_.dtype())}});
  const Name mask = node("Unsqueeze", scope, {ones, graph_.integers({2})});
  std::vector<Name> parts;
  for (const SentencePooling mode : model_.sentence->pooling) parts.push_back(pooled_tokens(mode, x, mask));
  Name vector = parts.size() == 1 ? parts.front() : node("Concat", scope, parts, {{"axis", int64_t{1}}});
  for (size_t i = 0; i < model_.sentence->dense.size(); ++i) {
    const SentenceDense& dense = model_.sentence->dense[i];
    const std::string prefix = sentence_dense_prefix(i), layer = prefix.substr(0, prefix.size() - 1);
    vector = node("MatMul", layer, {vector, transposed(prefix + "weight", dense.out_features, dense.in_features)});
    if (dense.bias) vector = node("Add", layer, {vector, parameter(prefix + "bias", {dense.out_features})});
    vector = dense_activation(dense.activation, layer, vector);
  }
  if (!model_.sentence->normalize) return vector;
  constexpr float kSmallest = 0x1p-14F;  // the least normal number of fp16
  const Name length = node("ReduceL2", scope, {vector}, {{"axes", std::vector<int64_t>{1}}, {"keepdims", int64_t{1}}});
  return node("Div", scope, {vector, node("Max", scope, {length, graph_.scalar(kSmallest)})});
}

/// The decoder's weight is the table of the word embeddings, which the file has once.
std::string GraphOfBert::mlm_logits(const Name& x) {
  const std::string predictions = "cls.predictions", transform = predictions + ".transform";
  const Name activated = gelu(transform, linear(transform + ".dense", x, hidden_, hidden_), config_.hidden_act);
  const Name words = parameter("bert.embeddings.word_embeddings.weight", {config_.vocab_size, hidden_});
  const Name decoder = node("Transpose", predictions, {words}, {{"perm", std::vector<int64_t>{1, 0}}});
  const Name product = node("MatMul", predictions, {layer_norm(transform + ".LayerNorm", activated), decoder});
  return node("Add", predictions, {product, parameter(predictions + ".bias", {config_.vocab_size})});
}

GraphInputs GraphOfBert::inputs(const OnnxShape& shape) {
  GraphInputs result;
  result.input_ids = graph_.input("input_ids", shape);
  result.attention_mask = graph_.input("attention_mask", shape);
  result.token_type_ids = graph_.input("token_type_ids", shape);
  return result;
}

// ---- whole models ----

void GraphOfBert::pretraining() {
  const Name x = encode(inputs());
  graph_.output("prediction_logits", mlm_logits(x), {kBatch, kSequence, config_.vocab_size});
  graph_.output("seq_relationship_logits", linear("cls.seq_relationship", pool(x), hidden_, 2), {kBatch, int64_t{2}});
}

void GraphOfBert::features() {
  const GraphInputs input = inputs();
  const Name x = encode(input);
  if (model_.sentence) {
    graph_.output("sentence_embedding", sentence(x, input.attention_mask),
                  {kBatch, vector_size(*model_.sentence, hidden_)});
    graph_.output("token_embeddings", x, {kBatch, kSequence, hidden_});
    return;
  }
  graph_.output("last_hidden_state", x, {kBatch, kSequence, hidden_});
  if (tensors_.contains("bert.pooler.dense.weight")) graph_.output("pooler_output", pool(x), {kBatch, hidden_});
}

void GraphOfBert::question_answering() {
  const std::string layer = "qa_outputs";
  const Name logits = linear(layer, encode(inputs()), hidden_, 2);
  const auto column = [&](int64_t index) {
    return node("Gather", layer, {logits, graph_.integer(index)}, {{"axis", int64_t{2}}});
  };
  graph_.output("start_logits", column(0), {kBatch, kSequence});
  graph_.output("end_logits", column(1), {kBatch, kSequence});
}

void GraphOfBert::sequence_classification() {
  const int64_t count = labels("classifier");
  graph_.output("logits", linear("classifier", pool(encode(inputs())), hidden_, count), {kBatch, count});
}

/// Reads the states of the tokens [E1] and [E2], found by their ids.
void GraphOfBert::entity_markers() {
  const std::string scope = "markers";
  const GraphInputs input = inputs();
  const Name x = encode(input);
  std::vector<Name> states;
  for (const int64_t id : model_.marker_ids) {
    const Name found =
        node("Cast", scope, {node("Equal", scope, {input.input_ids, graph_.integer(id)})}, {{"to", onnx_type("F32")}});
    const Name place = node("ArgMax", scope, {found}, {{"axis", int64_t{1}}, {"keepdims", int64_t{1}}});  // [B, 1]
    states.push_back(node("GatherND", scope, {x, place}, {{"batch_dims", int64_t{1}}}));
  }
  const Name both = node("Concat", scope, states, {{"axis", int64_t{1}}});
  const int64_t count = labels("classifier");
  graph_.output("logits", linear("classifier", both, 2 * hidden_, count), {kBatch, count});
}

void GraphOfBert::token_classification() {
  const int64_t count = labels("classifier");
  graph_.output("logits", linear("classifier", encode(inputs()), hidden_, count), {kBatch, kSequence, count});
}

/// The choices of all questions are sequences of one batch.
void GraphOfBert::multiple_choice() {
  const std::string scope = "choices";
  GraphInputs input = inputs({kBatch, kChoices, kSequence});
  const Name sizes = node("Shape", scope, {input.input_ids});
  const Name length = node("Gather", scope, {sizes, graph_.integers({2})});
  const Name flat = node("Concat", scope, {graph_.integers({-1}), length}, {{"axis", int64_t{0}}});
  for (Name* each : {&input.input_ids, &input.attention_mask, &input.token_type_ids})
    *each = node("Reshape", scope, {*each, flat});
  input.sequences = "batch_size * num_choices";
  const Name logits = linear("classifier", pool(encode(input)), hidden_, 1);
  const Name questions = node("Gather", scope, {sizes, graph_.integers({0, 1})});
  graph_.output("logits", node("Reshape", scope, {logits, questions}), {kBatch, kChoices});
}

struct Architecture {
  const char* name;
  void (GraphOfBert::*build)();
};

constexpr Architecture kArchitectures[] = {
    {"BertForPreTraining", &GraphOfBert::pretraining},
    {"BertForMaskedLM", &GraphOfBert::masked_tokens},
    {"BertModel", &GraphOfBert::features},
    {"BertForQuestionAnswering", &GraphOfBert::question_answering},
    {"BertForSequenceClassification", &GraphOfBert::sequence_classification},
    {kMarkerArchitecture, &GraphOfBert::entity_markers},
    {"BertForTokenClassification", &GraphOfBert::token_classification},
    {"BertForMultipleChoice", &GraphOfBert::multiple_choice},
};

}  // namespace

OnnxGraph bert_onnx_graph(const NamedModel& model) {
  std::string known;
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.name != model.architecture) {
      known += (known.empty() ? "" : ", ") + std::string(architecture.name);
      continue;
    }
    GraphOfBert graph(model);
    (graph.*architecture.build)();
    return graph.take();
  }
  throw DataError(
      fmt::format("{}: architecture {} has no ONNX graph; expected one of {}", model.name, model.architecture, known));
}

}  // namespace bert
