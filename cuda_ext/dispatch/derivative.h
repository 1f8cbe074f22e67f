// Parts of the operators' derivatives. Each forward runs below autograd and keeps what its backward operator needs. The
// backward is an operator of its own, without a derivative.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/custom_function.h>

#include <initializer_list>
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

// Note [Gradients in place]
// Autograd converts each parameter's gradient to fp32 and adds it to .grad, in two passes over memory and two launches.
// On CUDA, derivatives do it themselves: a product adds its sums, in fp32, to the weight's .grad, without rounding to
// the lower precision in between; the other gradients of an operator are added in one launch. Autograd gets an
// undefined gradient then. The parameter's node of autograd runs all the same, after all uses of the parameter, and so
// do the hooks of the node (optim/data_parallel.cc).
// This is for a plain backward() alone: not for torch::autograd::grad(), nor a graph that is kept, nor a layer that is
// computed again in backward; and for parameters with a contiguous .grad in fp32, without hooks of the tensor.

/// The .grad to which a derivative adds the parameter's gradient, or undefined: then autograd does it.
at::Tensor gradient_sum(const at::Tensor& parameter);

struct ParameterGradient {
  const at::Tensor& parameter;
  at::Tensor& gradient;  // undefined: none
};
/// Adds gradients to their gradient_sum(), and resets them. Those without one stay.
void add_to_sums(std::initializer_list<ParameterGradient> gradients);

/// What `compute` returns, without gradients of its own.
template <class Compute>
variable_list first_derivatives(const Compute& compute) {
  const auto gradients = [&] {
    const at::NoGradGuard no_grad;
    return compute();
  };
  return at::GradMode::is_enabled() ? without_derivative(gradients()) : gradients();
}

constexpr size_t kMostInputs = 16;  // of an operator; LibTorch drops undefined gradients beyond the inputs

/// An operator whose first output alone has a gradient. Derivative::gradients gets that gradient, contiguous, with the
/// saved variables. If it is undefined, so are the gradients of all inputs.
template <class Derivative>
struct Differentiable : Function<Derivative> {
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    if (!grads[0].defined()) return variable_list(kMostInputs);
    return first_derivatives(
        [&] { return Derivative::gradients(ctx, grads[0].contiguous(), ctx->get_saved_variables()); });
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
