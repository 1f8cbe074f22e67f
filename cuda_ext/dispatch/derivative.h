// Parts of the operators' derivatives. Each forward runs below autograd and keeps what its backward operator needs. The
// backward is an operator of its own, without a derivative.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/custom_function.h>

#include <tuple>
#include <type_traits>
#include <utility>

#include "cuda_ext/dispatch/registration.h"

namespace bert::dispatch {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

/// The numbers with which a backward draws the same mask again. The keys, and the mask if it is kept, are among the
/// saved tensors.
struct DropoutState {
  double p;
  int64_t seed, site;

  void save(AutogradContext* ctx) const;
  static DropoutState load(AutogradContext* ctx);
};

/// Scope of a forward. Calls in it are below autograd. Backward gets no zeros for outputs without a gradient: the
/// statistics and masks that only backward reads.
struct Forward {
  explicit Forward(AutogradContext* ctx) { ctx->set_materialize_grads(false); }
  at::AutoDispatchBelowADInplaceOrView guard;
};

/// Gradients under create_graph. They throw where they are differentiated again; without this, second derivatives would
/// silently be zeros.
variable_list without_derivative(variable_list gradients);

/// An operator whose first output alone has a gradient. Derivative::gradients gets that gradient, contiguous, with the
/// saved variables. If it is undefined, so are the gradients of all inputs.
template <class Derivative>
struct Differentiable : Function<Derivative> {
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    constexpr size_t kMostInputs = 16;  // LibTorch drops undefined entries beyond the operator's inputs
    if (!grads[0].defined()) return variable_list(kMostInputs);
    const auto gradients = [&] {
      const at::NoGradGuard no_grad;
      return Derivative::gradients(ctx, grads[0].contiguous(), ctx->get_saved_variables());
    };
    return at::GradMode::is_enabled() ? without_derivative(gradients()) : gradients();
  }
};

/// The operator's kernel for Autograd. Derivative::apply fails on an undefined tensor before it calls forward, so the
/// check names the tensor first.
template <const auto& op, class Derivative, class Composition = decltype(std::decay_t<decltype(op)>::kComposition)>
struct AutogradKernel;
template <const auto& op, class Derivative, class Result, class... Arguments>
struct AutogradKernel<op, Derivative, Result (*const)(Arguments...)> {
  static Result call(Arguments... arguments) {
    const auto undefined = []<class Argument>(const Argument& argument) {
      if constexpr (std::is_same_v<Argument, at::Tensor>) return !argument.defined();
      return false;
    };
    if ((undefined(arguments) || ...)) op.check(arguments...);
    if constexpr (std::is_same_v<Result, at::Tensor>) {
      return Derivative::apply(arguments...);
    } else {
      const variable_list list = Derivative::apply(arguments...);
      return [&]<size_t... i>(std::index_sequence<i...>) { return Result{list[i]...}; }
      (std::make_index_sequence<std::tuple_size_v<Result>>());
    }
  }
};

template <const auto& op, class Derivative>
void differentiate(torch::Library& m) {
  m.impl(op.name, torch::dispatch(c10::DispatchKey::Autograd, AutogradKernel<op, Derivative>::call));
}

}  // namespace bert::dispatch
