// An operator as the other files call it: the name of its schema, its composition, and the check of its arguments.
// dispatch/<operator>.h declares one object of type Operator for each schema.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <optional>
#include <tuple>
#include <utility>

namespace bert {

namespace composite {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

/// The dtype of sums and statistics: fp64 for fp64, else fp32.
inline at::ScalarType accumulation_type(const Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

}  // namespace composite

namespace dispatch {

using at::Tensor;
using composite::OptionalTensor;

/// A function type with the parameters of `composition` that returns nothing.
template <class Function>
struct CheckOfPointer;
template <class Result, class... Arguments>
struct CheckOfPointer<Result (*)(Arguments...)> {
  using Type = void(Arguments...);
};
template <auto composition>
using CheckOf = typename CheckOfPointer<decltype(composition)>::Type;

/// A call goes to the dispatcher. The signature is that of `composition`, which runs on devices and dtypes without a
/// kernel.
template <auto composition, auto check>
struct Operator;
template <class Result, class... Arguments, Result (*composition)(Arguments...), void (*check_arguments)(Arguments...)>
struct Operator<composition, check_arguments> {
  const char* name;  // "bert::dropout"

  static constexpr auto kComposition = composition;

  /// Throws c10::Error that names the operator, the argument, the expected value and the actual one. See Note [Argument
  /// checks] in registration.h.
  static void check(Arguments... arguments) { check_arguments(arguments...); }

  /// The schema's typed handle, looked up once.
  [[nodiscard]] const c10::TypedOperatorHandle<Result(Arguments...)>& handle() const {
    static const auto handle =
        c10::Dispatcher::singleton().findSchemaOrThrow(name, "").template typed<Result(Arguments...)>();
    return handle;
  }

  Result operator()(Arguments... arguments) const { return handle().call(std::forward<Arguments>(arguments)...); }
};

/// The tensor as a schema's `Tensor?`: none if it is undefined.
inline OptionalTensor optional(const Tensor& tensor) {
  return tensor.defined() ? OptionalTensor(tensor) : std::nullopt;
}

}  // namespace dispatch
}  // namespace bert
