#include "tests/bench/kernel_cases.h"

#include <ATen/ATen.h>
#include <ATen/SDPBackend.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "cuda_ext/cuda/attention.h"
#include "cuda_ext/multi_tensor.h"
#include "cuda_ext/ops.h"
#include "tests/bench/plain_operators.h"

namespace bert {
namespace {

using at::Tensor;
using Tensors = KernelCase::Tensors;

constexpr double kEps = 1e-12;

double count(int64_t n) { return static_cast<double>(n); }

/// n elements through memory, in the shape's dtype.
KernelCost elements(const KernelShape& s, int64_t n) {
  return {.bytes = count(n) * count(static_cast<int64_t>(c10::elementSize(s.dtype)))};
}
/// `passes` of a [T, H] tensor, and of a [T, I] one.
KernelCost hidden_passes(const KernelShape& s, int64_t passes) { return elements(s, passes * s.tokens * s.hidden); }
KernelCost intermediate_passes(const KernelShape& s, int64_t passes) {
  return elements(s, passes * s.tokens * s.intermediate);
}
/// n multiplications with an addition each.
KernelCost products(double n) { return {.flops = 2.0 * n}; }

Tensor random(const KernelShape& s, at::IntArrayRef shape) {
  return at::randn(shape, at::TensorOptions().dtype(s.dtype).device(s.device));
}
Tensor ids(const KernelShape& s, int64_t high, int64_t n) {
  return at::randint(high, {n}, at::TensorOptions().dtype(at::kLong).device(s.device));
}
Tensor numbers(const KernelShape& s) {
  return at::arange(s.tokens, at::TensorOptions().dtype(at::kLong).device(s.device));
}

ops::Dropout drop(double p, const Tensor& keys) { return {.p = p, .seed = 42, .site = 1, .keys = keys}; }

/// Runs an operator of ops.h as its plain expression.
KernelCase::Op as_plain(OpGroup group, KernelCase::Op op) {
  return [group, op = std::move(op)](const Tensors& in) {
    const PlainOperators scope({group});
    return op(in);
  };
}

// ---- pointwise ----

KernelCase bias_gelu(const std::string& name, ops::Gelu form, const KernelShape& s) {
  const KernelCase::Op op = [form](const Tensors& in) { return ops::bias_gelu(in[0], in[1], form); };
  return {.name = name,
          .inputs =
              [s] {
                return Tensors{random(s, {s.tokens, s.intermediate}), random(s, {s.intermediate})};
              },
          .bert = op,
          .aten = as_plain(OpGroup::kGelu, op),
          .forward = intermediate_passes(s, 2),    // x; y
          .backward = intermediate_passes(s, 3)};  // dy, x; dx
}

KernelCase layer_norm(const KernelShape& s) {
  const KernelCase::Op op = [](const Tensors& in) { return ops::layer_norm(in[0], in[1], in[2], kEps); };
  return {.name = "layer_norm",
          .inputs =
              [s] {
                return Tensors{random(s, {s.tokens, s.hidden}), random(s, {s.hidden}), random(s, {s.hidden})};
              },
          .bert = op,
          .aten = as_plain(OpGroup::kLayerNorm, op),
          .forward = hidden_passes(s, 2),    // x; y
          .backward = hidden_passes(s, 3)};  // dy, x; dx
}

KernelCase bias_dropout_residual_layer_norm(const KernelShape& s) {
  const KernelCase::Op op = [p = s.dropout](const Tensors& in) {
    return ops::bias_dropout_residual_layer_norm(in[0], in[1], in[2], in[3], in[4], kEps, drop(p, in[5]));
  };
  return {.name = "bias_dropout_residual_layer_norm",
          .inputs =
              [s] {
                return Tensors{random(s, {s.tokens, s.hidden}), random(s, {s.hidden}), random(s, {s.tokens, s.hidden}),
                               random(s, {s.hidden}),           random(s, {s.hidden}), numbers(s)};
              },
          .bert = op,
          .aten = as_plain(OpGroup::kLayerNorm, op),
          .forward = hidden_passes(s, 3),    // x, residual; y
          .backward = hidden_passes(s, 5)};  // dy, x, residual; dx, dresidual
}

KernelCase embedding_layer_norm_dropout(const KernelShape& s) {
  const KernelCase::Op op = [p = s.dropout](const Tensors& in) {
    return ops::embedding_layer_norm_dropout(in[0], in[1], in[2], {.word = in[3], .position = in[4], .type = in[5]},
                                             in[6], in[7], kEps, drop(p, in[8]));
  };
  return {.name = "embedding_layer_norm_dropout",
          .inputs =
              [s] {
                return Tensors{ids(s, s.vocabulary, s.tokens),
                               numbers(s).remainder(s.length),
                               ids(s, 2, s.tokens),
                               random(s, {s.vocabulary, s.hidden}),
                               random(s, {s.length, s.hidden}),
                               random(s, {2, s.hidden}),
                               random(s, {s.hidden}),
                               random(s, {s.hidden}),
                               numbers(s)};
              },
          .bert = op,
          .aten = as_plain(OpGroup::kLayerNorm, op),
          .forward = hidden_passes(s, 4),  // three rows; y
          .backward =                      // dy, three rows; the tables' gradients
          elements(s, (4 * s.tokens + s.vocabulary + s.length + 2) * s.hidden)};
}

KernelCase dropout(const KernelShape& s) {
  const KernelCase::Op op = [p = s.dropout](const Tensors& in) { return ops::dropout(in[0], drop(p, in[1])); };
  return {.name = "dropout",
          .inputs =
              [s] {
                return Tensors{random(s, {s.tokens, s.hidden}), numbers(s)};
              },
          .bert = op,
          .aten = as_plain(OpGroup::kDropout, op),
          .forward = hidden_passes(s, 2),    // x; y
          .backward = hidden_passes(s, 2)};  // dy; dx
}

KernelCase cross_entropy(const KernelShape& s) {
  const int64_t rows = std::max<int64_t>(1, s.tokens * 15 / 100);  // the share of masked tokens
  const KernelCase::Op op = [](const Tensors& in) { return ops::cross_entropy(in[0], in[1], in[0].size(1)); };
  return {.name = "cross_entropy",
          .inputs =
              [=] {
                return Tensors{random(s, {rows, s.vocabulary}), ids(s, s.vocabulary, rows)};
              },
          .bert = op,
          .aten = as_plain(OpGroup::kCrossEntropy, op),
          .forward = elements(s, rows * s.vocabulary),       // logits
          .backward = elements(s, 2 * rows * s.vocabulary),  // logits; their gradient, written over them
          .consumes_first = true};
}

// ---- attention: two products forward, five backward; the rival is the fastest of LibTorch's kernels ----

/// Packed [B * S, 3H] as [3, B, A, S, D].
Tensor heads_of(const Tensor& qkv, int64_t length, int64_t heads) {
  return qkv.view({-1, length, 3, heads, qkv.size(1) / (3 * heads)}).permute({2, 0, 3, 1, 4});
}

Tensor sequence_ends(const KernelShape& s, const std::vector<int32_t>& ends) {
  return at::tensor(ends, at::kInt).to(s.device);
}

/// Within its scope, scaled_dot_product_attention has one kind of kernels.
class AttentionKernels {
 public:
  explicit AttentionKernels(at::SDPBackend backend) { use(backend, false); }
  ~AttentionKernels() { use(at::SDPBackend::error, true); }
  AttentionKernels(const AttentionKernels&) = delete;
  AttentionKernels& operator=(const AttentionKernels&) = delete;

 private:
  static void use(at::SDPBackend backend, bool all) {
    at::Context& context = at::globalContext();
    context.setSDPUseFlash(all || backend == at::SDPBackend::flash_attention);
    context.setSDPUseMemEfficient(all || backend == at::SDPBackend::efficient_attention);
    context.setSDPUseCuDNN(all || backend == at::SDPBackend::cudnn_attention);
    context.setSDPUseMath(all || backend == at::SDPBackend::math);
  }
};

/// `op`, which calls scaled_dot_product_attention, with each kind of kernels of the device that can drop with
/// probability p.
std::vector<KernelCase::Rival> attention_rivals(const KernelCase::Op& op, double p, const KernelShape& s) {
  std::vector<std::pair<const char*, at::SDPBackend>> kinds = {{"flash", at::SDPBackend::flash_attention},
                                                               {"math", at::SDPBackend::math}};
  if (s.device.is_cuda()) {
    kinds.back() = {"efficient", at::SDPBackend::efficient_attention};
    if (cuda::cudnn_drops(p)) kinds.emplace_back("cudnn", at::SDPBackend::cudnn_attention);
  }
  std::vector<KernelCase::Rival> rivals;
  for (const auto& [name, kind] : kinds) {
    rivals.push_back({name, [op, chosen = kind](const Tensors& in) {
                        const AttentionKernels scope(chosen);
                        return op(in);
                      }});
  }
  return rivals;
}

KernelCase attention(const std::string& name, double p, const KernelShape& s) {
  std::vector<int32_t> ends;
  for (int64_t end = 0; end <= s.tokens; end += s.length) ends.push_back(static_cast<int32_t>(end));
  const double product = count(s.tokens * s.length * s.hidden);
  const KernelCase::Op aten = [=](const Tensors& in) {
    const Tensor heads = heads_of(in[0], s.length, s.heads);
    const Tensor out = at::scaled_dot_product_attention(heads[0], heads[1], heads[2], std::nullopt, p);
    return out.transpose(1, 2).reshape({-1, s.hidden});
  };
  return {.name = name,
          .inputs =
              [=] {
                return Tensors{random(s, {s.tokens, 3 * s.hidden}), sequence_ends(s, ends), numbers(s)};
              },
          .bert = [=](const Tensors& in) { return ops::attention(in[0], in[1], s.length, s.heads, drop(p, in[2])); },
          .aten = aten,
          .rivals = attention_rivals(aten, p, s),
          .forward = products(2 * product),
          .backward = products(5 * product)};
}

/// The softmax of attention on devices without a fused kernel.
KernelCase masked_softmax_dropout(const KernelShape& s) {
  const int64_t sequences = std::max<int64_t>(1, s.tokens / s.length);
  std::vector<int32_t> ends;
  for (int64_t end = 0; end <= sequences; ++end) ends.push_back(static_cast<int32_t>(end * s.length));
  const KernelCase::Op op = [p = s.dropout](const Tensors& in) {
    return ops::masked_softmax_dropout(in[0], in[1], 0.125, drop(p, in[2]));
  };
  const int64_t scores = sequences * s.heads * s.length * s.length;
  return {.name = "masked_softmax_dropout",
          .inputs =
              [=] {
                return Tensors{random(s, {sequences, s.heads, s.length, s.length}), sequence_ends(s, ends), numbers(s)};
              },
          .bert = op,
          .aten = as_plain(OpGroup::kSoftmax, op),
          .forward = elements(s, 2 * scores),    // scores; y
          .backward = elements(s, 3 * scores)};  // dy, scores; dscores
}

/// Lengths of Wikipedia's texts cut at 512 tokens, half of that on average. ATen's sequences are padded.
KernelCase attention_unequal_lengths(const KernelShape& s) {
  constexpr std::array<int64_t, 8> kLengths = {188, 448, 283, 226, 158, 512, 96, 121};
  constexpr int64_t kLongest = 512, kSum = 2032;
  std::vector<int32_t> ends = {0};
  std::vector<int64_t> lengths;
  double product = 0.0;
  for (int64_t group = 0; group < std::max<int64_t>(1, s.tokens / kSum); ++group) {
    for (const int64_t length : kLengths) {
      lengths.push_back(length);
      ends.push_back(ends.back() + static_cast<int32_t>(length));
      product += count(length * length * s.hidden);
    }
  }
  const auto sequences = static_cast<int64_t>(lengths.size());
  const KernelCase::Op aten = [=](const Tensors& in) {
    const Tensor heads = heads_of(in[2], kLongest, s.heads);
    const Tensor out = at::scaled_dot_product_attention(heads[0], heads[1], heads[2], in[3]);
    return out.transpose(1, 2).reshape({-1, s.hidden});
  };
  return {.name = "attention_unequal_lengths",
          .inputs =
              [=] {
                const Tensor real = at::arange(kLongest) < at::tensor(lengths, at::kLong).unsqueeze(1);
                return Tensors{random(s, {ends.back(), 3 * s.hidden}), sequence_ends(s, ends),
                               random(s, {sequences * kLongest, 3 * s.hidden}),
                               real.view({sequences, 1, 1, kLongest}).to(s.device)};
              },
          .bert = [=](const Tensors& in) { return ops::attention(in[0], in[1], kLongest, s.heads, ops::Dropout{}); },
          .aten = aten,
          .rivals = attention_rivals(aten, 0.0, s),
          .forward = products(2 * product),
          .backward = products(5 * product)};
}

// ---- products ----

KernelCase linear(const KernelShape& s) {
  const double product = count(s.tokens) * count(s.hidden * s.intermediate);
  const KernelCase::Op op = [](const Tensors& in) { return ops::linear(in[0], in[1], in[2]); };
  return {.name = "linear",
          .inputs =
              [s] {
                return Tensors{random(s, {s.tokens, s.hidden}), random(s, {s.intermediate, s.hidden}),
                               random(s, {s.intermediate})};
              },
          .bert = op,
          .aten = as_plain(OpGroup::kLinear, op),
          .forward = products(product),
          .backward = products(2 * product)};
}

KernelCase qkv_linear(const KernelShape& s) {
  const double product = 3.0 * count(s.tokens) * count(s.hidden * s.hidden);
  const KernelCase::Op op = [](const Tensors& in) {
    return ops::qkv_linear(in[0], {.query_weight = in[1],
                                   .key_weight = in[2],
                                   .value_weight = in[3],
                                   .query_bias = in[4],
                                   .key_bias = in[5],
                                   .value_bias = in[6]});
  };
  return {
      .name = "qkv_linear",
      .inputs =
          [s] {  // the three share one storage, as in the model
            const auto weights = random(s, {3 * s.hidden, s.hidden}).chunk(3);
            const auto biases = random(s, {3 * s.hidden}).chunk(3);
            return Tensors{
                random(s, {s.tokens, s.hidden}), weights[0], weights[1], weights[2], biases[0], biases[1], biases[2]};
          },
      .bert = op,
      .aten = as_plain(OpGroup::kLinear, op),
      .forward = products(product),
      .backward = products(2 * product)};
}

// ---- optimizer ----

/// The shapes of the parameters of two layers.
std::vector<std::vector<int64_t>> parameter_shapes(const KernelShape& s) {
  const int64_t h = s.hidden, i = s.intermediate;
  std::vector<std::vector<int64_t>> shapes;
  for (int layer = 0; layer < 2; ++layer) {
    for (int projection = 0; projection < 4; ++projection) shapes.insert(shapes.end(), {{h, h}, {h}});
    shapes.insert(shapes.end(), {{i, h}, {i}, {h, i}, {h}, {h}, {h}, {h}, {h}});
  }
  return shapes;
}

KernelCost bytes_per_parameter(const KernelShape& s, double bytes) {
  double parameters = 0.0;
  for (const auto& shape : parameter_shapes(s)) parameters += count(c10::multiply_integers(shape));
  return {.bytes = parameters * bytes};
}

bool low_precision(const KernelShape& s) { return s.dtype != at::kFloat; }

Tensors gradients(const KernelShape& s, at::ScalarType dtype) {
  Tensors result;
  for (const auto& shape : parameter_shapes(s)) result.push_back(at::randn(shape, at::device(s.device)).to(dtype));
  return result;
}

/// All parameters (fp32), all gradients (fp32), all of exp_avg, of exp_avg_sq, and in a low precision the copies, which
/// are the weights.
Tensors optimizer_inputs(const KernelShape& s) {
  const Tensors params = gradients(s, at::kFloat), grads = gradients(s, at::kFloat);
  Tensors all = params;
  all.insert(all.end(), grads.begin(), grads.end());
  for (int moment = 0; moment < 2; ++moment) {
    for (const Tensor& param : params) all.push_back(at::ones_like(param));
  }
  for (const Tensor& param : params) {
    if (low_precision(s)) all.push_back(param.to(s.dtype));
  }
  return all;
}

std::vector<ops::OptimizerTensors> unflatten(const Tensors& in, bool copies) {
  const auto n = static_cast<int64_t>(in.size()) / (copies ? 5 : 4);
  const auto part = [&](int64_t i) { return Tensors(in.begin() + i * n, in.begin() + (i + 1) * n); };
  return {{.params = part(0),
           .copies = copies ? part(4) : Tensors(static_cast<size_t>(n)),
           .grads = part(1),
           .exp_avg = part(2),
           .exp_avg_sq = part(3),
           .ema = Tensors(static_cast<size_t>(n))}};
}

/// An update with the norm of the gradients, which clipping needs. The norm reads the gradients once more (4 bytes).
/// Returns the norm.
KernelCase update(const std::string& name, UpdateRule rule, const KernelShape& s, double bytes) {
  constexpr double kNormBytes = 4;
  struct State {
    ops::OptimizerStep step;
    ops::StepTensors scalars;
  };
  const auto options = at::device(s.device);
  const auto state = std::make_shared<State>(State{.step = ops::OptimizerStep(rule),
                                                   .scalars = {.lr = at::full({}, 1e-6, options),
                                                               .inv_scale = {},
                                                               .found_inf = {},
                                                               .step = at::zeros({}, options.dtype(at::kLong)),
                                                               .grad_norm = at::zeros({}, options),
                                                               .skipped = at::zeros({}, options)}});
  const std::vector<UpdateOptions> all_options = {
      {.beta1 = 0.9, .beta2 = 0.999, .beta3 = 0.1, .eps = 1e-6, .weight_decay = 0.01, .max_grad_norm = 1.0}};
  const auto op = [=](const Tensors& in) {
    state->step.run(unflatten(in, low_precision(s)), all_options, state->scalars);
    return state->scalars.grad_norm;
  };
  const auto plain_op = [=](const Tensors& in) {
    const at::NoGradGuard no_grad;
    plain::step(rule, unflatten(in, low_precision(s)), all_options, state->scalars);
    return state->scalars.grad_norm;
  };
  const auto norm = [s, multi = std::make_shared<ops::MultiTensor>()](const Tensors& in) {
    return multi->norm(unflatten(in, low_precision(s)).front().grads);
  };
  return {.name = name,
          .inputs = [s] { return optimizer_inputs(s); },
          .bert = op,
          .aten = plain_op,
          .forward = bytes_per_parameter(s, kNormBytes + bytes),
          .backward = {},
          .norm = norm,
          .update_bytes = bytes_per_parameter(s, bytes).bytes};
}

// Bytes of a parameter (cuda_ext/kernels/multi_tensor_optim.cu): the moments read g, p, m, v and write m, v (24). Then
// p, m, v are read once more for the update, and p and its copy are written (16 + 2).
KernelCase lamb(const KernelShape& s) {
  return update("lamb", UpdateRule::kLamb, s, 24 + 16 + (low_precision(s) ? 2 : 0));
}

// g, p, m, v are read, and p, m, v and the copy written.
KernelCase adamw(const KernelShape& s) {
  return update("adamw", UpdateRule::kAdamw, s, 16 + 12 + (low_precision(s) ? 2 : 0));
}

/// An operation of MultiTensor over gradients of the dtype, beside the same by ATen. The operation moves each gradient
/// `times`.
KernelCase over_list(const std::string& name, const std::function<Tensor(ops::MultiTensor&, const Tensors&)>& operation,
                     KernelCase::Op aten, const KernelShape& s, double times) {
  const auto op = [=, multi = std::make_shared<ops::MultiTensor>()](const Tensors& in) {
    return operation(*multi, in);
  };
  return {.name = name,
          .inputs = [s] { return gradients(s, s.dtype); },
          .bert = op,
          .aten = std::move(aten),
          .forward = bytes_per_parameter(s, times * count(static_cast<int64_t>(c10::elementSize(s.dtype)))),
          .backward = {}};
}

KernelCase l2_norm(const KernelShape& s) {
  return over_list(
      "l2_norm", [](ops::MultiTensor& multi, const Tensors& in) { return multi.norm(in); }, plain::norm, s, 1);
}

KernelCase unscale(const KernelShape& s) {
  const Tensor inv_scale = at::full({}, 0.5, at::device(s.device)), found_inf = at::zeros({}, at::device(s.device));
  return over_list(
      "unscale",
      [=](ops::MultiTensor& multi, const Tensors& in) {
        multi.unscale_(in, inv_scale, found_inf);
        return found_inf;
      },
      [=](const Tensors& in) {
        plain::unscale_(in, inv_scale, found_inf);
        return found_inf;
      },
      s, 2);
}

}  // namespace

KernelRun::KernelRun(const KernelCase& test, KernelCase::Op op, const Tensors& inputs)
    : op_(std::move(op)), consumes_first_(test.consumes_first), inputs_(inputs) {
  for (Tensor& input : inputs_) {
    if (!test.backward || !input.is_floating_point()) continue;
    input = input.detach().requires_grad_(true);
    leaves_.push_back(input);
  }
  prepare();
  forward();
  if (!has_backward()) return;
  const auto options = result_.options().requires_grad(false);  // positive, so that its sums do not cancel
  upstream_ = at::arange(result_.numel(), options.dtype(at::kFloat)).sin_().abs_().to(options).view(result_.sizes());
}

void KernelRun::prepare() {
  round_ = inputs_;
  if (consumes_first_) round_.front() = inputs_.front().clone();
}

Tensors KernelRun::backward() {
  round_.clear();  // an operator may overwrite its input in backward only if nothing else holds it
  return torch::autograd::grad({result_}, leaves_, {upstream_}, /*retain_graph=*/std::nullopt, /*create_graph=*/false,
                               /*allow_unused=*/true);
}

std::vector<KernelCase> kernel_cases(const KernelShape& s) {
  return {bias_gelu("bias_gelu_tanh", ops::Gelu::kTanh, s),
          bias_gelu("bias_gelu_erf", ops::Gelu::kErf, s),
          layer_norm(s),
          bias_dropout_residual_layer_norm(s),
          embedding_layer_norm_dropout(s),
          dropout(s),
          cross_entropy(s),
          masked_softmax_dropout(s),
          attention("attention", 0.0, s),
          attention("attention_dropout", s.dropout, s),
          attention_unequal_lengths(s),
          linear(s),
          qkv_linear(s),
          l2_norm(s),
          unscale(s),
          lamb(s),
          adamw(s)};
}

}  // namespace bert
