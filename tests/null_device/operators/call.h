// One call of an operator of ATen on CUDA tensors, which the CPU's kernel computes.
#pragma once

#include <ATen/core/Generator.h>

#include <optional>
#include <string>
#include <vector>

#include "tests/null_device/operators/operators.h"

namespace null_device {

/// Operators of CUDA at which the host waits for the device, mostly because a result's size depends on data.
bool waits(const std::string& name, const Stack& arguments);

class Call {
 public:
  Call(const c10::OperatorHandle& op, Stack arguments);

  /// Queues the work on the current stream of the device, and returns what the operator returns.
  Stack run();

 private:
  /// Tensors with the sizes, strides and types that the call will give its results and its out tensors. Their memory
  /// means nothing.
  struct Shapes {
    Stack results, arguments;
  };
  /// A tensor for a result of a CPU kernel, and the host's view of its memory.
  struct Result {
    size_t place;  // in the list of all results
    at::Tensor view;
  };

  [[nodiscard]] bool is_written(size_t argument) const;
  /// True if all results are arguments, whose sizes stay as they are.
  [[nodiscard]] bool is_in_place() const;
  void check_devices() const;
  void check_lists() const;
  /// Changes arguments that kernels for CUDA take and those for the CPU do not.
  void adapt_arguments();
  void draw();
  void note_arguments();

  [[nodiscard]] std::optional<Shapes> shapes() const;
  [[nodiscard]] std::optional<Shapes> shapes_by_meta() const;
  /// By a run on other values: what the device's memory holds during a capture means nothing.
  [[nodiscard]] Shapes shapes_by_trial() const;

  [[nodiscard]] Stack host_arguments() const;
  void resize_out(const Stack& like);
  /// The results on the device, like those of the CPU or of meta tensors. Notes them as written.
  Stack results_like(const Stack& like);
  at::Tensor new_result(const at::Tensor& like, size_t place);
  [[nodiscard]] c10::IValue argument_of_alias(size_t result) const;

  void run_with_shapes();
  Stack run_at_once();

  c10::OperatorHandle op_;
  const c10::FunctionSchema& schema_;
  std::string name_;
  Stack arguments_;
  c10::Device device_;
  CUstream_st* stream_;
  bool capturing_;
  std::optional<at::PhiloxCudaState> drawn_;
  std::vector<Access> accesses_;
  std::vector<Result> results_;
};

}  // namespace null_device
