// Registers an operator with the dispatcher, in a TORCH_LIBRARY_FRAGMENT(bert, m) block of its own file:
//   define<op>(m, schema)        schema, composition (CompositeExplicitAutograd) and argument check (BackendSelect);
//   differentiate<op, D>(m)      derivative (Autograd; derivative.h);
//   autocast<op, cast>(m)        conversions under autocast (AutocastCPU, AutocastCUDA);
//   autocast_ignores<op>(m)      no conversions under autocast.
// cuda_ext/cpu/<operator>.cc and cuda_ext/cuda/<operator>.cc register the kernels of their device. Every layer calls the
// dispatcher again.
//
// Note [Argument checks]
// An operator's kernel for BackendSelect checks the arguments and hands them on to the device's kernel. LibTorch asks
// for that key in every call, whatever the tensors are, between autocast and autograd above and all devices below, and
// in inference mode too. So each call is checked once, from ops.h, autograd's backward, Python or TorchScript. A layer
// above that works with the arguments before it hands them on checks them first: the derivatives of qkv_linear and
// padded_linear, which become linear, and the autocast of bias_dropout_residual_layer_norm.
#pragma once

#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include <type_traits>
#include <utility>

#include "cuda_ext/dispatch/operator.h"

namespace bert::dispatch {

/// An operator's kernel for BackendSelect.
template <const auto& op, class Composition = decltype(std::decay_t<decltype(op)>::kComposition)>
struct Checked;
template <const auto& op, class Result, class... Arguments>
struct Checked<op, Result (*const)(Arguments...)> {
  static Result call(c10::DispatchKeySet keys, Arguments... arguments) {
    constexpr c10::DispatchKeySet kBelow(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::BackendSelect);
    op.check(arguments...);
    return op.handle().redispatch(keys & kBelow, std::forward<Arguments>(arguments)...);
  }
};

template <const auto& op>
void define(torch::Library& m, const char* schema) {
  m.def(schema);
  m.impl(op.name, torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, op.kComposition));
  m.impl(op.name, torch::dispatch(c10::DispatchKey::BackendSelect, Checked<op>::call));
}

/// While it lives, calls on this thread are dispatched below autocast.
///
/// Matrix products run in the low precision, with weights converted once per autocast region. Pointwise operators take
/// the low-precision activation and fp32 parameters, and return the activation's dtype (their statistics are fp32
/// anyway). The loss reads low-precision logits and computes in fp32.
struct Autocast {
  explicit Autocast(c10::DeviceType of)
      : device(of),
        guard(at::autocast::get_autocast_dispatch_key_from_device_type(of)),
        type(at::autocast::get_autocast_dtype(of)) {}

  /// The tensor in the low precision.
  [[nodiscard]] at::Tensor low(const at::Tensor& tensor) const {
    return at::autocast::cached_cast(type, tensor, device);
  }

  c10::DeviceType device;
  c10::impl::ExcludeDispatchKeyGuard guard;
  at::ScalarType type;
};

/// The device's autocast kernel; cast(autocast, arguments...) converts and calls the operator.
template <c10::DeviceType device, auto cast>
struct AutocastKernel;
template <c10::DeviceType device, class Result, class... Arguments, Result (*cast)(const Autocast&, Arguments...)>
struct AutocastKernel<device, cast> {
  static Result call(Arguments... arguments) { return cast(Autocast(device), arguments...); }
};

template <const auto& op, auto cast>
void autocast(torch::Library& m) {
  m.impl(op.name, torch::dispatch(c10::DispatchKey::AutocastCPU, AutocastKernel<c10::kCPU, cast>::call));
  m.impl(op.name, torch::dispatch(c10::DispatchKey::AutocastCUDA, AutocastKernel<c10::kCUDA, cast>::call));
}

template <const auto& op>
void autocast_ignores(torch::Library& m) {
  m.impl(op.name, torch::dispatch(c10::DispatchKey::AutocastCPU, torch::CppFunction::makeFallthrough()));
  m.impl(op.name, torch::dispatch(c10::DispatchKey::AutocastCUDA, torch::CppFunction::makeFallthrough()));
}

}  // namespace bert::dispatch
