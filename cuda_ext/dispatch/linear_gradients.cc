#include "cuda_ext/dispatch/linear_gradients.h"

#include <utility>

namespace bert::dispatch {

std::vector<Tensor> converted(std::vector<Tensor> tensors, at::ScalarType type) {
  if (!tensors.front().is_cuda() || tensors.front().scalar_type() == type) {
    for (Tensor& tensor : tensors) tensor = tensor.to(type);
    return tensors;
  }
  std::vector<Tensor> results;
  for (const Tensor& tensor : tensors) results.push_back(at::empty_like(tensor, tensor.options().dtype(type)));
  at::_foreach_copy_(results, tensors);
  return results;
}

bool computes_in_low_precision(const Tensor& x) {
  return x.scalar_type() != composite::accumulation_type(x) || at::autocast::is_autocast_enabled(x.device().type());
}

Tensor weight_gradient(const Tensor& grad, const Tensor& x, const Tensor& weight) {
  Tensor sum = gradient_sum(weight);
  const at::ScalarType type = grad.scalar_type();
  const bool low = type == at::kHalf || type == at::kBFloat16;
  if (sum.defined() && low) return at::addmm_out(sum, sum, grad.t(), x, at::kFloat), Tensor();
  if (sum.defined() && type == at::kFloat) return sum.addmm_(grad.t(), x), Tensor();
  if (grad.is_cuda() && low && weight.scalar_type() == at::kFloat) return at::mm(grad.t(), x, at::kFloat);
  return at::mm(grad.t(), x).to(weight.scalar_type());
}

Tensor input_gradient(AutogradContext* ctx, const Tensor& grad, const Tensor& weight, const Tensor& residual) {
  if (!ctx->needs_input_grad(0)) return {};
  if (!residual.defined()) return at::mm(grad, weight);
  const bool ours = residual.use_count() == 1 && residual.storage().use_count() == 1 && residual.is_contiguous() &&
                    residual.scalar_type() == grad.scalar_type() && !residual.requires_grad();
  return ours ? Tensor(residual).addmm_(grad, weight) : at::mm(grad, weight).add_(residual);
}

}  // namespace bert::dispatch
