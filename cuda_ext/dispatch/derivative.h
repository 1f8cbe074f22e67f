// What the operators' derivatives share. Each forward is called below autograd and keeps what its backward operator
// needs. That is an operator of its own, without a derivative.
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

/// What a backward needs to draw the same mask again. The keys, and the mask where it is kept, travel among the saved
/// tensors.
struct DropoutState {
  double p;
  int64_t seed, site;

  void save(AutogradContext* ctx) const;
  static DropoutState load(AutogradContext* ctx);
};

/// In a forward: what it calls is below autograd; and no zeros are made in backward for outputs without a gradient, the
/// statistics and masks that only backward reads.
struct Forward {
  explicit Forward(AutogradContext* ctx) { ctx->set_materialize_grads(false); }
  at::AutoDispatchBelowADInplaceOrView guard;
};

/// Gradients under create_graph: an error where they are differentiated again, which would give zeros without a word.
variable_list without_derivative(variable_list gradients);

/// An operator of which the first output alone has a gradient. Derivative::gradients gets it, contiguous, with the saved
/// variables; where it is undefined, those of the inputs are too.
template <class Derivative>
struct Differentiable : Function<Derivative> {
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    constexpr size_t kMostInputs = 16;  // LibTorch cuts off what is undefined behind the operator's own
    if (!grads[0].defined()) return variable_list(kMostInputs);
    const auto gradients = [&] {
      const at::NoGradGuard no_grad;
      return Derivative::gradients(ctx, grads[0].contiguous(), ctx->get_saved_variables());
    };
    return at::GradMode::is_enabled() ? without_derivative(gradients()) : gradients();
  }
};

/// The operator's kernel for Autograd: Derivative::apply, which fails on an undefined tensor before it calls forward; so
/// the operator's check says which it is.
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
