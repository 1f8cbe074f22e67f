// The export is a module tree that mirrors ours and holds its tensors, a forward of plain ATen operators on padded
// tensors that reads them, and a trace of that forward.
#include "model/torchscript.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tanh.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/csrc/jit/serialization/export.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "model/bert.h"
#include "model/evaluation_guard.h"

namespace bert {
namespace {

using torch::Tensor;
using Mirror = torch::jit::Module;

struct Input {
  Tensor input_ids, token_type_ids, attention_mask;  // [B, S]
};

struct PaddedForm : BertConfig {
  ExportedAttention attention = ExportedAttention::kFused;
};

// ---- the mirror ----

/// "bert::BertLayerImpl" -> "__torch__.bert.BertLayer".
std::string class_name(const torch::nn::Module& module) {
  std::string name = module.name();
  if (const size_t colons = name.rfind("::"); colons != std::string::npos) name.erase(0, colons + 2);
  if (name.ends_with("Impl")) name.resize(name.size() - 4);
  return "__torch__.bert." + name;
}

Mirror mirror(const torch::nn::Module& module, torch::Dtype dtype,
              const std::shared_ptr<torch::jit::CompilationUnit>& unit) {
  Mirror result(c10::QualifiedName(class_name(module)), unit, /*shouldMangle=*/true);
  result.register_attribute("training", c10::BoolType::get(), false);  // Python's eval() sets it
  for (const auto& item : module.named_parameters(/*recurse=*/false)) {
    result.register_parameter(item.key(), item.value().to(torch::kCPU, dtype), /*is_buffer=*/false);
  }
  for (const auto& item : module.named_children())
    result.register_module(item.key(), mirror(*item.value(), dtype, unit));
  return result;
}

// ---- forward on padded tensors ----
// Sizes come from the configuration or are left open, so that the trace holds for every B and S.

Tensor tensor(const Mirror& module, const char* name) { return module.attr(name).toTensor(); }

Mirror child(const Mirror& module, const char* name) { return module.attr(name).toModule(); }

/// A parameter by its name in state_dict(), such as "bert.pooler.dense.weight".
Tensor parameter_named(Mirror module, const std::string& name) {
  size_t begin = 0;
  for (size_t end = name.find('.'); end != std::string::npos; begin = end + 1, end = name.find('.', begin))
    module = child(module, name.substr(begin, end - begin).c_str());
  return tensor(module, name.substr(begin).c_str());
}

Tensor linear(const Mirror& module, const Tensor& x) {
  return at::linear(x, tensor(module, "weight"), tensor(module, "bias"));
}

Tensor layer_norm(const Mirror& module, const Tensor& x, const BertConfig& config) {
  return at::layer_norm(x, {config.hidden_size}, tensor(module, "weight"), tensor(module, "bias"),
                        config.layer_norm_eps);
}

Tensor gelu(const Tensor& x, const BertConfig& config) {
  return at::gelu(x, gelu_form(config) == ops::Gelu::kTanh ? "tanh" : "none");
}

Tensor embeddings(const Mirror& module, const Input& input, const BertConfig& config) {
  const auto look_up = [&](const char* table, const Tensor& ids) {
    return at::embedding(tensor(child(module, table), "weight"), ids);
  };
  const Tensor position_ids = at::ones_like(input.input_ids).cumsum(1) - 1;
  const Tensor sum = look_up("word_embeddings", input.input_ids) + look_up("position_embeddings", position_ids) +
                     look_up("token_type_embeddings", input.token_type_ids);
  return layer_norm(child(module, "LayerNorm"), sum, config);
}

/// softmax(query key^T / sqrt(D)) value, [B, A, S, D]. -10,000 is Google's number for padding (modeling.py): its
/// exponential is 0 beside any score, and fp16 has it.
Tensor plain_attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& attend) {
  const Tensor scores = at::matmul(query, key.transpose(2, 3)) / std::sqrt(static_cast<double>(query.size(-1)));
  return at::matmul(at::softmax(scores.masked_fill(attend.logical_not(), -10000.0), -1), value);
}

/// `attend` [B, 1, 1, S] bool: true for real tokens.
Tensor self_attention(const Mirror& module, const Tensor& x, const Tensor& attend, const PaddedForm& config) {
  const auto heads = [&](const char* name) {
    const std::vector<int64_t> sizes = {config.num_attention_heads, config.hidden_size / config.num_attention_heads};
    return linear(child(module, name), x).unflatten(-1, sizes).transpose(1, 2);  // [B, A, S, D]
  };
  const Tensor query = heads("query"), key = heads("key"), value = heads("value");
  const Tensor mixed = config.attention == ExportedAttention::kPlain
                           ? plain_attention(query, key, value, attend)
                           : at::scaled_dot_product_attention(query, key, value, attend);
  return mixed.transpose(1, 2).flatten(2);
}

Tensor output(const Mirror& module, const Tensor& x, const Tensor& residual, const BertConfig& config) {
  return layer_norm(child(module, "LayerNorm"), linear(child(module, "dense"), x) + residual, config);
}

Tensor layer(const Mirror& module, const Tensor& x, const Tensor& attend, const PaddedForm& config) {
  const Mirror attention = child(module, "attention");
  const Tensor attended =
      output(child(attention, "output"), self_attention(child(attention, "self"), x, attend, config), x, config);
  const Tensor intermediate = gelu(linear(child(child(module, "intermediate"), "dense"), attended), config);
  return output(child(module, "output"), intermediate, attended, config);
}

Tensor encode(const Mirror& bert, const Input& input, const PaddedForm& config) {
  const Tensor attend = input.attention_mask.ne(0).unsqueeze(1).unsqueeze(2);
  Tensor x = embeddings(child(bert, "embeddings"), input, config);
  for (const torch::jit::NameModule& item : child(child(bert, "encoder"), "layer").named_children()) {
    x = layer(item.value, x, attend, config);
  }
  return x;
}

Tensor pool(const Mirror& bert, const Tensor& x) {
  return at::tanh(linear(child(child(bert, "pooler"), "dense"), x.select(1, 0)));
}

Tensor mlm_logits(const Mirror& model, const Tensor& x, const BertConfig& config) {
  const Mirror predictions = child(child(model, "cls"), "predictions"), transform = child(predictions, "transform");
  const Tensor transformed =
      layer_norm(child(transform, "LayerNorm"), gelu(linear(child(transform, "dense"), x), config), config);
  const Tensor word_embeddings = tensor(child(child(child(model, "bert"), "embeddings"), "word_embeddings"), "weight");
  return at::linear(transformed, word_embeddings, tensor(predictions, "bias"));
}

// ---- each kind of model: its padded forward, and the answer of our module ----

struct Kind {
  BertConfig config;
  std::function<std::vector<Tensor>(const Mirror& model, const Input& input)> forward;
  std::function<std::vector<Tensor>(const Input& input)> expected;
};

Kind kind_of(torch::nn::Module& module, ExportedAttention attention) {
  if (auto* m = module.as<BertForPreTraining>()) {
    const PaddedForm config = {m->bert->config, attention};
    return {config,
            [config](const Mirror& model, const Input& input) -> std::vector<Tensor> {
              const Mirror bert = child(model, "bert"), cls = child(model, "cls");
              const Tensor x = encode(bert, input, config);
              std::vector<Tensor> outputs = {mlm_logits(model, x, config)};
              if (cls.hasattr("seq_relationship")) {
                outputs.push_back(linear(child(cls, "seq_relationship"), pool(bert, x)));
              }
              return outputs;
            },
            [m](const Input& input) -> std::vector<Tensor> {
              const PretrainingOutput out = m->forward(input.input_ids, input.token_type_ids, input.attention_mask);
              std::vector<Tensor> outputs = {out.mlm_logits};
              if (out.nsp_logits.defined()) outputs.push_back(out.nsp_logits);
              return outputs;
            }};
  }
  if (auto* m = module.as<BertForQuestionAnswering>()) {
    const PaddedForm config = {m->bert->config, attention};
    return {config,
            [config](const Mirror& model, const Input& input) -> std::vector<Tensor> {
              const Tensor logits = linear(child(model, "qa_outputs"), encode(child(model, "bert"), input, config));
              return {logits.select(-1, 0), logits.select(-1, 1)};
            },
            [m](const Input& input) -> std::vector<Tensor> {
              const QuestionAnsweringOutput out =
                  m->forward(input.input_ids, input.token_type_ids, input.attention_mask);
              return {out.start_logits, out.end_logits};
            }};
  }
  const auto classify = [attention](const BertConfig& model_config) {
    const PaddedForm config = {model_config, attention};
    return [config](const Mirror& model, const Input& input) -> std::vector<Tensor> {
      const Mirror bert = child(model, "bert");
      return {linear(child(model, "classifier"), pool(bert, encode(bert, input, config)))};
    };
  };
  if (auto* m = module.as<BertForSequenceClassification>()) {
    return {m->bert->config, classify(m->bert->config), [m](const Input& input) -> std::vector<Tensor> {
              return {m->forward(input.input_ids, input.token_type_ids, input.attention_mask)};
            }};
  }
  if (auto* m = module.as<BertForMultipleChoice>()) {
    return {m->bert->config, classify(m->bert->config), [m](const Input& input) -> std::vector<Tensor> {
              return {m->forward(input.input_ids.unsqueeze(1), input.token_type_ids.unsqueeze(1),
                                 input.attention_mask.unsqueeze(1))};
            }};
  }
  if (auto* m = module.as<BertForTokenClassification>()) {
    const PaddedForm config = {m->bert->config, attention};
    return {config,
            [config](const Mirror& model, const Input& input) -> std::vector<Tensor> {
              return {linear(child(model, "classifier"), encode(child(model, "bert"), input, config))};
            },
            [m](const Input& input) -> std::vector<Tensor> {
              return {m->forward(input.input_ids, input.token_type_ids, input.attention_mask)};
            }};
  }
  if (auto* m = module.as<EncoderWithOutputs>()) {
    const PaddedForm config = {m->bert->config, attention};
    return {
        config,
        [config, m](const Mirror& model, const Input& input) {
          return m->outputs(encode(child(model, "bert"), input, config), input.input_ids, input.attention_mask,
                            [&](const std::string& name) { return parameter_named(model, name); });
        },
        [m](const Input& input) { return m->forward(input.input_ids, input.token_type_ids, input.attention_mask); }};
  }
  auto* m = module.as<BertModel>();
  TORCH_CHECK(m != nullptr, "export_torchscript: ", module.name(),
              " is not exported; give a BertModel or one of the BertFor... models.");
  const PaddedForm config = {m->config, attention};
  return {config,
          [config](const Mirror& model, const Input& input) -> std::vector<Tensor> {
            const Tensor x = encode(model, input, config);
            if (!model.hasattr("pooler")) return {x};
            return {x, pool(model, x)};
          },
          [m](const Input& input) -> std::vector<Tensor> {
            const BertModelOutput out = m->forward(input.input_ids, input.token_type_ids, input.attention_mask);
            if (!out.pooler_output.defined()) return {out.last_hidden_state};
            return {out.last_hidden_state, out.pooler_output};
          }};
}

// ---- tracing and checking ----

/// A made-up batch. Row b has b tokens of padding where S allows it.
Input made_up_input(const BertConfig& config, int64_t batch_size, int64_t sequence_length) {
  const Tensor columns = at::arange(sequence_length, torch::kLong).expand({batch_size, -1});
  const Tensor rows = at::arange(batch_size, torch::kLong).unsqueeze(1);
  return {.input_ids = (columns * 7 + rows * 3 + 1).remainder(config.vocab_size),
          .token_type_ids = (columns * 2 / sequence_length).to(torch::kLong).clamp_max(config.type_vocab_size - 1),
          .attention_mask = (columns < (sequence_length - rows).clamp_min(1)).to(torch::kLong)};
}

void check_aten_only(const torch::jit::Block* block) {
  for (const torch::jit::Node* node : block->nodes()) {
    const std::string space = node->kind().ns().toUnqualString();
    TORCH_INTERNAL_ASSERT(space == "aten" || space == "prim", "the export has a node ", node->kind().toQualString());
    for (const torch::jit::Block* inner : node->blocks()) check_aten_only(inner);
  }
}

void trace(Mirror& model, const Kind& kind) {
  const auto run = [&](const torch::jit::Stack& inputs) -> torch::jit::Stack {
    std::vector<c10::IValue> outputs;
    for (const Tensor& x : kind.forward(model, {inputs[0].toTensor(), inputs[1].toTensor(), inputs[2].toTensor()})) {
      outputs.emplace_back(x.to(torch::kFloat));
    }
    return {c10::ivalue::Tuple::create(std::move(outputs))};
  };
  const Input input = made_up_input(kind.config, 2, std::min<int64_t>(8, kind.config.max_position_embeddings));
  const auto state =
      torch::jit::tracer::trace({input.input_ids, input.token_type_ids, input.attention_mask}, run,
                                [](const Tensor&) { return std::string(); }, /*strict=*/true,
                                /*force_outplace=*/false, &model, {"input_ids", "token_type_ids", "attention_mask"})
          .first;
  torch::jit::EliminateDeadCode(state->graph);
  check_aten_only(state->graph->block());
  torch::jit::Function* method = model._ivalue()->compilation_unit()->create_function(
      c10::QualifiedName(*model.type()->name(), "forward"), state->graph);
  model.type()->addMethod(method);
}

/// Throws if the traced model differs from `want` by more than `tolerance`, relative to the largest value above 1.
/// Padding is not compared.
void check_equal(Mirror& model, const Kind& kind, double tolerance, const char* against,
                 const std::function<std::vector<Tensor>(const Input&)>& expected) {
  const Input input = made_up_input(kind.config, 3, std::min<int64_t>(13, kind.config.max_position_embeddings));
  const std::vector<Tensor> want = expected(input);
  const auto got = model.forward({input.input_ids, input.token_type_ids, input.attention_mask}).toTuple();
  for (size_t i = 0; i < want.size(); ++i) {
    Tensor difference = (got->elements()[i].toTensor() - want[i].to(torch::kCPU)).abs();
    if (difference.dim() > 1 && difference.size(1) == input.input_ids.size(1)) {
      difference = difference.index({input.attention_mask.to(torch::kBool)});
    }
    const double scale = std::max(1.0, want[i].abs().max().item<double>());
    const double worst = difference.max().item<double>();
    TORCH_CHECK(worst <= tolerance * scale, "export_torchscript: output ", i, " differs from ", against, " by ", worst,
                " at ", input.input_ids.sizes(), ", allowed is ", tolerance * scale, ". The export is not published.");
  }
}

constexpr double kTolerance = 1e-5;  // for two fp32 computations that sum in different orders

}  // namespace

torch::jit::Module export_torchscript(torch::nn::Module& module, torch::Dtype dtype, ExportedAttention attention) {
  TORCH_CHECK(dtype == torch::kFloat || dtype == torch::kHalf || dtype == torch::kBFloat16,
              "export_torchscript: dtype must be fp32, fp16 or bf16, got ", dtype, ".");
  const std::vector<Tensor> parameters = module.parameters();
  for (const Tensor& parameter : parameters) {
    TORCH_CHECK(parameter.dtype() == torch::kFloat, "export_torchscript: the module must have fp32 parameters, got ",
                parameter.dtype(), ". Load the weights into an fp32 module.");
  }
  const torch::NoGradGuard no_grad;
  const EvaluationGuard evaluation(module);
  const Kind kind = kind_of(module, attention);
  const auto traced = [&](torch::Dtype weights) {
    Mirror model = mirror(module, weights, std::make_shared<torch::jit::CompilationUnit>());
    trace(model, kind);
    model.eval();
    return model;
  };

  Mirror full = traced(torch::kFloat);
  check_equal(full, kind, kTolerance, "the module", [&](const Input& input) {
    const torch::Device device = parameters.front().device();
    return kind.expected(
        {input.input_ids.to(device), input.token_type_ids.to(device), input.attention_mask.to(device)});
  });
  if (dtype == torch::kFloat) return full;

  Mirror low = traced(dtype);
  // Rounding errors of a layer add up like a random walk of about 8 roundings. Twice that is allowed.
  const double epsilon = dtype == torch::kHalf ? 0x1p-11 : 0x1p-8;
  const double roundings = 8.0 * static_cast<double>(kind.config.num_hidden_layers + 1);
  check_equal(low, kind, 2.0 * epsilon * std::sqrt(roundings), "the fp32 export", [&](const Input& input) {
    std::vector<Tensor> outputs;
    const auto tuple = full.forward({input.input_ids, input.token_type_ids, input.attention_mask}).toTuple();
    for (const c10::IValue& value : tuple->elements()) outputs.push_back(value.toTensor());
    return outputs;
  });
  return low;
}

void save_torchscript(const torch::jit::Module& module, const ExtraFiles& extra_files,
                      const std::function<size_t(const void* data, size_t bytes)>& writer) {
  torch::jit::ExportModule(module, writer, extra_files);
}

}  // namespace bert
