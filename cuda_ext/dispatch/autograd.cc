// Derivatives of the operators: each forward is called below autograd, keeps what its backward operator needs, and that
// is an operator of its own, without a derivative.
#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/functions/basic_ops.h>
#include <torch/library.h>

#include <type_traits>

#include "cuda_ext/dispatch/checks.h"
#include "cuda_ext/dispatch/dispatch.h"

namespace bert {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;
using OptionalTensor = std::optional<Tensor>;

/// What a backward needs to draw the same mask again. The keys, and the mask where it is kept, travel among the saved
/// tensors.
struct DropoutState {
  double p;
  int64_t seed, site;

  void save(AutogradContext* ctx) const {
    ctx->saved_data["p"] = p;
    ctx->saved_data["seed"] = seed;
    ctx->saved_data["site"] = site;
  }
  static DropoutState load(AutogradContext* ctx) {
    return {ctx->saved_data["p"].toDouble(), ctx->saved_data["seed"].toInt(), ctx->saved_data["site"].toInt()};
  }
};

OptionalTensor optional(const Tensor& tensor) { return tensor.defined() ? OptionalTensor(tensor) : std::nullopt; }

/// In a forward: what it calls is below autograd; and no zeros are made in backward for outputs without a gradient, the
/// statistics and masks that only backward reads.
struct Forward {
  explicit Forward(AutogradContext* ctx) { ctx->set_materialize_grads(false); }
  at::AutoDispatchBelowADInplaceOrView guard;
};

/// Gradients under create_graph: an error where they are differentiated again, which would give zeros without a word.
variable_list without_derivative(variable_list gradients) {
  for (Tensor& gradient : gradients) {
    if (gradient.defined()) gradient = gradient.detach().requires_grad_();
  }
  torch::autograd::DelayedError error("bert::ops: the operators have first derivatives only, not those of gradients",
                                      static_cast<int64_t>(gradients.size()));
  return error.apply(std::move(gradients));
}

/// An operator of which the first output alone has a gradient. Op::gradients gets it, contiguous, with the saved
/// variables; where it is undefined, those of the inputs are too.
template <class Op>
struct Differentiable : Function<Op> {
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    constexpr size_t kMostInputs = 16;  // LibTorch cuts off what is undefined behind the operator's own
    if (!grads[0].defined()) return variable_list(kMostInputs);
    const auto gradients = [&] {
      const at::NoGradGuard no_grad;
      return Op::gradients(ctx, grads[0].contiguous(), ctx->get_saved_variables());
    };
    return at::GradMode::is_enabled() ? without_derivative(gradients()) : gradients();
  }
};

struct Linear : Differentiable<Linear> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& weight, const OptionalTensor& bias) {
    const Forward scope(ctx);
    ctx->save_for_backward({x, weight});
    ctx->saved_data["bias"] = bias.has_value() && bias->requires_grad();
    return dispatch::linear(x, weight, bias);
  }
  static variable_list gradients(AutogradContext* ctx, const Tensor& grad, const variable_list& saved) {
    auto [dx, dweight, dbias] = dispatch::linear_backward(
        grad, saved[0], saved[1],
        std::array<bool, 3>{ctx->needs_input_grad(0), ctx->needs_input_grad(1), ctx->saved_data["bias"].toBool()});
    return {dx, dweight, dbias};
  }
};

struct QkvLinear : Differentiable<QkvLinear> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& query_weight, const Tensor& key_weight,
                        const Tensor& value_weight, const Tensor& query_bias, const Tensor& key_bias,
                        const Tensor& value_bias) {
    const Forward scope(ctx);
    const Tensor weight = composite::join(query_weight, key_weight, value_weight).to(x.scalar_type());
    ctx->save_for_backward({x, weight});
    ctx->saved_data["dtype"] = query_weight.scalar_type();
    return dispatch::linear(x, weight, composite::join(query_bias, key_bias, value_bias).to(x.scalar_type()));
  }
  static variable_list gradients(AutogradContext* ctx, const Tensor& grad, const variable_list& saved) {
    const auto type = ctx->saved_data["dtype"].toScalarType();
    auto [dx, dweight, dbias] =
        dispatch::linear_backward(grad, saved[0], saved[1], std::array<bool, 3>{ctx->needs_input_grad(0), true, true});
    const auto weights = dweight.to(type).chunk(3), biases = dbias.to(type).chunk(3);
    return {dx, weights[0], weights[1], weights[2], biases[0], biases[1], biases[2]};
  }
};

struct PaddedLinear : Differentiable<PaddedLinear> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& weight, const Tensor& bias,
                        int64_t columns) {
    const Forward scope(ctx);
    const Tensor padded = composite::padded_rows(weight, columns, x.scalar_type());
    ctx->save_for_backward({x, padded});
    ctx->saved_data["dtype"] = weight.scalar_type();
    ctx->saved_data["rows"] = weight.size(0);
    return dispatch::linear(x, padded, composite::padded_rows(bias, columns, x.scalar_type()));
  }
  static variable_list gradients(AutogradContext* ctx, const Tensor& grad, const variable_list& saved) {
    const auto type = ctx->saved_data["dtype"].toScalarType();
    const int64_t rows = ctx->saved_data["rows"].toInt();
    auto [dx, dweight, dbias] =
        dispatch::linear_backward(grad, saved[0], saved[1], std::array<bool, 3>{ctx->needs_input_grad(0), true, true});
    return {dx, dweight.narrow(0, 0, rows).to(type), dbias.narrow(0, 0, rows).to(type), Tensor()};
  }
};

struct BiasGelu : Differentiable<BiasGelu> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& bias, bool tanh) {
    const Forward scope(ctx);
    ctx->save_for_backward({x, bias});
    ctx->saved_data["tanh"] = tanh;
    return dispatch::bias_gelu(x, bias, tanh);
  }
  static variable_list gradients(AutogradContext* ctx, const Tensor& grad, const variable_list& saved) {
    auto [dx, dbias] = dispatch::bias_gelu_backward(grad, saved[0], saved[1], ctx->saved_data["tanh"].toBool());
    return {dx, dbias, Tensor()};
  }
};

struct LayerNorm : Differentiable<LayerNorm> {
  static variable_list forward(AutogradContext* ctx, const Tensor& x, const Tensor& gamma, const Tensor& beta,
                               double eps) {
    const Forward scope(ctx);
    auto [y, mean, rstd] = dispatch::layer_norm(x, gamma, beta, eps);
    ctx->save_for_backward({x, mean, rstd, gamma});
    ctx->mark_non_differentiable({mean, rstd});
    return {y, mean, rstd};
  }
  static variable_list gradients(AutogradContext* /*ctx*/, const Tensor& grad, const variable_list& saved) {
    auto [dx, dgamma, dbeta] = dispatch::layer_norm_backward(grad, saved[0], saved[1], saved[2], saved[3]);
    return {dx, dgamma, dbeta, Tensor()};
  }
};

struct BiasDropoutResidualLayerNorm : Differentiable<BiasDropoutResidualLayerNorm> {
  static variable_list forward(AutogradContext* ctx, const Tensor& x, const Tensor& bias, const Tensor& residual,
                               const Tensor& gamma, const Tensor& beta, double eps, double p, int64_t seed,
                               int64_t site, const OptionalTensor& keys) {
    const Forward scope(ctx);
    auto [y, mean, rstd, kept] =
        dispatch::bias_dropout_residual_layer_norm(x, bias, residual, gamma, beta, eps, p, seed, site, keys);
    ctx->save_for_backward({x, bias, residual, mean, rstd, gamma, keys.value_or(Tensor()), kept});
    ctx->mark_non_differentiable({mean, rstd, kept});
    DropoutState{p, seed, site}.save(ctx);
    return {y, mean, rstd, kept};
  }
  static variable_list gradients(AutogradContext* ctx, const Tensor& grad, const variable_list& saved) {
    const auto drop = DropoutState::load(ctx);
    auto [dx, dbias, dresidual, dgamma, dbeta] = dispatch::bias_dropout_residual_layer_norm_backward(
        grad, saved[0], saved[1], saved[2], saved[3], saved[4], saved[5], drop.p, drop.seed, drop.site,
        optional(saved[6]), saved[7]);
    return {dx, dbias, dresidual, dgamma, dbeta, Tensor(), Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

struct EmbeddingLayerNormDropout : Differentiable<EmbeddingLayerNormDropout> {
  static variable_list forward(AutogradContext* ctx, const Tensor& input_ids, const Tensor& position_ids,
                               const Tensor& token_type_ids, const Tensor& word, const Tensor& position,
                               const Tensor& type, const Tensor& gamma, const Tensor& beta, double eps, double p,
                               int64_t seed, int64_t site, const OptionalTensor& keys) {
    const Forward scope(ctx);
    auto [y, mean, rstd, kept] = dispatch::embedding_layer_norm_dropout(
        input_ids, position_ids, token_type_ids, word, position, type, gamma, beta, eps, p, seed, site, keys);
    ctx->save_for_backward({input_ids, position_ids, token_type_ids, word, position, type, mean, rstd, gamma,
                            keys.value_or(Tensor()), kept});
    ctx->mark_non_differentiable({mean, rstd, kept});
    DropoutState{p, seed, site}.save(ctx);
    return {y, mean, rstd, kept};
  }
  static variable_list gradients(AutogradContext* ctx, const Tensor& grad, const variable_list& saved) {
    const auto drop = DropoutState::load(ctx);
    auto [dword, dposition, dtype, dgamma, dbeta] = dispatch::embedding_layer_norm_dropout_backward(
        grad, saved[0], saved[1], saved[2], saved[3], saved[4], saved[5], saved[6], saved[7], saved[8], drop.p,
        drop.seed, drop.site, optional(saved[9]), saved[10]);
    return {Tensor(), Tensor(), Tensor(), dword,    dposition, dtype,   dgamma,
            dbeta,    Tensor(), Tensor(), Tensor(), Tensor(),  Tensor()};
  }
};

struct Attention : Differentiable<Attention> {
  static variable_list forward(AutogradContext* ctx, const Tensor& qkv, const Tensor& cu_seqlens, int64_t max_seqlen,
                               int64_t num_heads, double p, int64_t seed, int64_t site, const OptionalTensor& keys) {
    const Forward scope(ctx);
    auto [out, logsumexp, rng_state] = dispatch::attention(qkv, cu_seqlens, max_seqlen, num_heads, p, seed, site, keys);
    ctx->save_for_backward({qkv, out, logsumexp, rng_state, cu_seqlens, keys.value_or(Tensor())});
    ctx->mark_non_differentiable({logsumexp, rng_state});
    ctx->saved_data["max_seqlen"] = max_seqlen;
    ctx->saved_data["num_heads"] = num_heads;
    DropoutState{p, seed, site}.save(ctx);
    return {out, logsumexp, rng_state};
  }
  static variable_list gradients(AutogradContext* ctx, const Tensor& grad, const variable_list& saved) {
    const auto drop = DropoutState::load(ctx);
    const Tensor dqkv = dispatch::attention_backward(
        grad, saved[0], saved[1], saved[2], saved[3], saved[4], ctx->saved_data["max_seqlen"].toInt(),
        ctx->saved_data["num_heads"].toInt(), drop.p, drop.seed, drop.site, optional(saved[5]));
    return {dqkv, Tensor(), Tensor(), Tensor(), Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

struct MaskedSoftmaxDropout : Differentiable<MaskedSoftmaxDropout> {
  static variable_list forward(AutogradContext* ctx, const Tensor& scores, const Tensor& cu_seqlens, double scale,
                               double p, int64_t seed, int64_t site, const OptionalTensor& keys) {
    const Forward scope(ctx);
    auto [y, logsumexp] = dispatch::masked_softmax_dropout(scores, cu_seqlens, scale, p, seed, site, keys);
    ctx->save_for_backward({scores, logsumexp, cu_seqlens, keys.value_or(Tensor())});
    ctx->mark_non_differentiable({logsumexp});
    ctx->saved_data["scale"] = scale;
    DropoutState{p, seed, site}.save(ctx);
    return {y, logsumexp};
  }
  static variable_list gradients(AutogradContext* ctx, const Tensor& grad, const variable_list& saved) {
    const auto drop = DropoutState::load(ctx);
    const Tensor dscores = dispatch::masked_softmax_dropout_backward(grad, saved[0], saved[1], saved[2],
                                                                     ctx->saved_data["scale"].toDouble(), drop.p,
                                                                     drop.seed, drop.site, optional(saved[3]));
    return {dscores, Tensor(), Tensor(), Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

struct DropoutFunction : Differentiable<DropoutFunction> {
  static variable_list forward(AutogradContext* ctx, const Tensor& x, double p, int64_t seed, int64_t site,
                               const OptionalTensor& keys) {
    const Forward scope(ctx);
    auto [y, kept] = dispatch::dropout(x, p, seed, site, keys);
    ctx->save_for_backward({keys.value_or(Tensor()), kept});
    ctx->mark_non_differentiable({kept});
    DropoutState{p, seed, site}.save(ctx);
    return {y, kept};
  }
  static variable_list gradients(AutogradContext* ctx, const Tensor& grad, const variable_list& saved) {
    const auto drop = DropoutState::load(ctx);
    const Tensor dx = dispatch::dropout_backward(grad, drop.p, drop.seed, drop.site, optional(saved[0]), saved[1]);
    return {dx, Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

struct CrossEntropy : Differentiable<CrossEntropy> {
  static variable_list forward(AutogradContext* ctx, const Tensor& logits, const Tensor& labels, int64_t num_classes) {
    const Forward scope(ctx);
    auto [loss, logsumexp] = dispatch::cross_entropy(logits, labels, num_classes);
    ctx->save_for_backward({logits, labels, logsumexp});
    ctx->saved_data["num_classes"] = num_classes;
    ctx->mark_non_differentiable({logsumexp});
    return {loss, logsumexp};
  }
  static variable_list gradients(AutogradContext* ctx, const Tensor& grad, const variable_list& saved) {
    // Note [Gradient in place of the logits]
    // Nobody else can see the logits when the saved variable and its twin here are the only holders of the tensor, and
    // the tensor of its storage. Then the gradient overwrites them, and the version moves, so that a second backward is
    // an error.
    const bool ours = saved[0].use_count() <= 2 && saved[0].storage().use_count() == 1;
    Tensor dlogits = ours ? saved[0].detach() : saved[0].clone();
    if (ours) saved[0].unsafeGetTensorImpl()->bump_version();
    dispatch::cross_entropy_backward_(dlogits, grad, saved[1], saved[2], ctx->saved_data["num_classes"].toInt());
    return {dlogits, Tensor(), Tensor()};
  }
};

/// Op::apply, which fails on an undefined tensor before it calls forward: the operator's check says which it is.
template <class Op, auto check, class... Arguments>
auto apply(const Arguments&... arguments) {
  const auto undefined = []<class Argument>(const Argument& argument) {
    if constexpr (std::is_same_v<Argument, Tensor>) return !argument.defined();
    return false;
  };
  if ((undefined(arguments) || ...)) check(arguments...);
  return Op::apply(arguments...);
}

std::tuple<Tensor, Tensor, Tensor, Tensor> quadruple(const variable_list& list) {
  return {list[0], list[1], list[2], list[3]};
}
std::tuple<Tensor, Tensor, Tensor> triple(const variable_list& list) { return {list[0], list[1], list[2]}; }
std::tuple<Tensor, Tensor> pair(const variable_list& list) { return {list[0], list[1]}; }

Tensor linear(const Tensor& x, const Tensor& weight, const OptionalTensor& bias) {
  return apply<Linear, checks::linear>(x, weight, bias);
}
Tensor qkv_linear(const Tensor& x, const Tensor& query_weight, const Tensor& key_weight, const Tensor& value_weight,
                  const Tensor& query_bias, const Tensor& key_bias, const Tensor& value_bias) {
  checks::qkv_linear(x, query_weight, key_weight, value_weight, query_bias, key_bias, value_bias);
  return QkvLinear::apply(x, query_weight, key_weight, value_weight, query_bias, key_bias, value_bias);
}
Tensor padded_linear(const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t columns) {
  checks::padded_linear(x, weight, bias, columns);
  return PaddedLinear::apply(x, weight, bias, columns);
}
Tensor bias_gelu(const Tensor& x, const Tensor& bias, bool tanh) {
  return apply<BiasGelu, checks::bias_gelu>(x, bias, tanh);
}
std::tuple<Tensor, Tensor, Tensor> layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps) {
  return triple(apply<LayerNorm, checks::layer_norm>(x, gamma, beta, eps));
}
std::tuple<Tensor, Tensor, Tensor, Tensor> bias_dropout_residual_layer_norm(const Tensor& x, const Tensor& bias,
                                                                            const Tensor& residual, const Tensor& gamma,
                                                                            const Tensor& beta, double eps, double p,
                                                                            int64_t seed, int64_t site,
                                                                            const OptionalTensor& keys) {
  return quadruple(apply<BiasDropoutResidualLayerNorm, checks::bias_dropout_residual_layer_norm>(
      x, bias, residual, gamma, beta, eps, p, seed, site, keys));
}
std::tuple<Tensor, Tensor, Tensor, Tensor> embedding_layer_norm_dropout(
    const Tensor& input_ids, const Tensor& position_ids, const Tensor& token_type_ids, const Tensor& word,
    const Tensor& position, const Tensor& type, const Tensor& gamma, const Tensor& beta, double eps, double p,
    int64_t seed, int64_t site, const OptionalTensor& keys) {
  return quadruple(apply<EmbeddingLayerNormDropout, checks::embedding_layer_norm_dropout>(
      input_ids, position_ids, token_type_ids, word, position, type, gamma, beta, eps, p, seed, site, keys));
}
std::tuple<Tensor, Tensor, Tensor> attention(const Tensor& qkv, const Tensor& cu_seqlens, int64_t max_seqlen,
                                             int64_t num_heads, double p, int64_t seed, int64_t site,
                                             const OptionalTensor& keys) {
  return triple(apply<Attention, checks::attention>(qkv, cu_seqlens, max_seqlen, num_heads, p, seed, site, keys));
}
std::tuple<Tensor, Tensor> masked_softmax_dropout(const Tensor& scores, const Tensor& cu_seqlens, double scale,
                                                  double p, int64_t seed, int64_t site, const OptionalTensor& keys) {
  return pair(
      apply<MaskedSoftmaxDropout, checks::masked_softmax_dropout>(scores, cu_seqlens, scale, p, seed, site, keys));
}
std::tuple<Tensor, Tensor> dropout(const Tensor& x, double p, int64_t seed, int64_t site, const OptionalTensor& keys) {
  return pair(apply<DropoutFunction, checks::dropout>(x, p, seed, site, keys));
}
std::tuple<Tensor, Tensor> cross_entropy(const Tensor& logits, const Tensor& labels, int64_t num_classes) {
  return pair(apply<CrossEntropy, checks::cross_entropy>(logits, labels, num_classes));
}

}  // namespace
}  // namespace bert

TORCH_LIBRARY_IMPL(bert, Autograd, m) {
  m.impl("linear", bert::linear);
  m.impl("qkv_linear", bert::qkv_linear);
  m.impl("padded_linear", bert::padded_linear);
  m.impl("bias_gelu", bert::bias_gelu);
  m.impl("layer_norm", bert::layer_norm);
  m.impl("bias_dropout_residual_layer_norm", bert::bias_dropout_residual_layer_norm);
  m.impl("embedding_layer_norm_dropout", bert::embedding_layer_norm_dropout);
  m.impl("attention", bert::attention);
  m.impl("masked_softmax_dropout", bert::masked_softmax_dropout);
  m.impl("dropout", bert::dropout);
  m.impl("cross_entropy", bert::cross_entropy);
}
