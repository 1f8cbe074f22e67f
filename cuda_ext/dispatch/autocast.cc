// Autocast: matrix products run in the low precision, with weights converted once per autocast region; pointwise
// operators take the low-precision activation and fp32 parameters, and return the activation's dtype (their statistics
// are fp32 anyway); the loss reads low-precision logits and computes in fp32.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include "cuda_ext/dispatch/checks.h"
#include "cuda_ext/dispatch/dispatch.h"

namespace bert {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

/// One set of wrappers for each device; what they call is dispatched without autocast.
template <c10::DeviceType device>
struct Autocast {
  c10::impl::ExcludeDispatchKeyGuard guard{at::autocast::get_autocast_dispatch_key_from_device_type(device)};
  at::ScalarType type = at::autocast::get_autocast_dtype(device);

  [[nodiscard]] Tensor low(const Tensor& tensor) const { return at::autocast::cached_cast(type, tensor, device); }

  static Tensor linear(const Tensor& x, const Tensor& weight, const OptionalTensor& bias) {
    const Autocast cast;
    return dispatch::linear(cast.low(x), cast.low(weight), bias ? OptionalTensor(cast.low(*bias)) : std::nullopt);
  }

  // The joined weight is converted in one piece by the operator itself.
  static Tensor qkv_linear(const Tensor& x, const Tensor& query_weight, const Tensor& key_weight,
                           const Tensor& value_weight, const Tensor& query_bias, const Tensor& key_bias,
                           const Tensor& value_bias) {
    const Autocast cast;
    return dispatch::qkv_linear(cast.low(x), query_weight, key_weight, value_weight, query_bias, key_bias, value_bias);
  }

  // The same: it converts the weight while it adds the padding.
  static Tensor padded_linear(const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t columns) {
    const Autocast cast;
    return dispatch::padded_linear(cast.low(x), weight, bias, columns);
  }

  static std::tuple<Tensor, Tensor, Tensor, Tensor> bias_dropout_residual_layer_norm(
      const Tensor& x, const Tensor& bias, const Tensor& residual, const Tensor& gamma, const Tensor& beta, double eps,
      double p, int64_t seed, int64_t site, const OptionalTensor& keys) {
    const Autocast cast;
    checks::bias_dropout_residual_layer_norm(x, bias, residual, gamma, beta, eps, p, seed, site, keys);
    return dispatch::bias_dropout_residual_layer_norm(x, bias, residual.to(x.scalar_type()), gamma, beta, eps, p, seed,
                                                      site, keys);
  }

  static std::tuple<Tensor, Tensor, Tensor, Tensor> embedding_layer_norm_dropout(
      const Tensor& input_ids, const Tensor& position_ids, const Tensor& token_type_ids, const Tensor& word,
      const Tensor& position, const Tensor& type, const Tensor& gamma, const Tensor& beta, double eps, double p,
      int64_t seed, int64_t site, const OptionalTensor& keys) {
    const Autocast cast;
    auto [y, mean, rstd, kept] = dispatch::embedding_layer_norm_dropout(
        input_ids, position_ids, token_type_ids, word, position, type, gamma, beta, eps, p, seed, site, keys);
    return {cast.low(y), mean, rstd, kept};
  }

  static std::tuple<Tensor, Tensor, Tensor> attention(const Tensor& qkv, const Tensor& cu_seqlens, int64_t max_seqlen,
                                                      int64_t num_heads, double p, int64_t seed, int64_t site,
                                                      const OptionalTensor& keys) {
    const Autocast cast;
    return dispatch::attention(cast.low(qkv), cu_seqlens, max_seqlen, num_heads, p, seed, site, keys);
  }

  static void register_all(torch::Library& m) {
    m.impl("linear", linear);
    m.impl("qkv_linear", qkv_linear);
    m.impl("padded_linear", padded_linear);
    m.impl("bias_dropout_residual_layer_norm", bias_dropout_residual_layer_norm);
    m.impl("embedding_layer_norm_dropout", embedding_layer_norm_dropout);
    m.impl("attention", attention);
    // Every other operator takes what it is given: it falls through.
    for (const char* op : {"bias_gelu", "layer_norm", "masked_softmax_dropout", "dropout", "cross_entropy"})
      m.impl(op, torch::CppFunction::makeFallthrough());
  }
};

}  // namespace
}  // namespace bert

TORCH_LIBRARY_IMPL(bert, AutocastCPU, m) { bert::Autocast<c10::kCPU>::register_all(m); }
TORCH_LIBRARY_IMPL(bert, AutocastCUDA, m) { bert::Autocast<c10::kCUDA>::register_all(m); }
