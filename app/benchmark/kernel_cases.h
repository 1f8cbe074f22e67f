// The operators beside the ATen expressions that they replace, as cases to be timed: by `bert benchmark kernels` and by
// tests/bench/bench.cc.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace bert {

/// What the cases are timed on. T tokens in sequences of `length`, H hidden, A heads, I intermediate, V vocabulary.
struct KernelShape {
  int64_t tokens = 4096;
  int64_t hidden = 768;
  int64_t heads = 12;
  int64_t intermediate = 3072;
  int64_t vocabulary = 30522;
  int64_t length = 128;
  double dropout = 0.1;
  at::ScalarType dtype = at::kFloat;
  at::Device device = at::kCPU;
};

/// What a pass cannot do without: bytes through memory, every tensor read or written once; or floating-point operations
/// where arithmetic decides. The other is 0.
struct KernelCost {
  double bytes = 0.0, flops = 0.0;
};

struct KernelCase {
  using Tensors = std::vector<at::Tensor>;
  using Op = std::function<at::Tensor(const Tensors&)>;

  std::string name;
  std::function<Tensors()> inputs;  // floating-point ones are what the backward is with respect to
  Op bert, aten;                    // one result from the inputs
  struct Rival {
    std::string name;
    Op op;
  };
  std::vector<Rival> rivals = {};  // the same as aten, by each of ATen's kernels; one that does not serve throws
  KernelCost forward;
  std::optional<KernelCost> backward;  // none: an update in place, one pass
  Op norm = {};                        // an optimizer's: that of its gradients, with which its forward begins
  double update_bytes = 0.0;           // and its forward.bytes without those of the norm
  bool consumes_first = false;         // backward may overwrite the first input: each round has its own
};

/// One implementation of a case, pass by pass.
class KernelRun {
 public:
  /// `op` is test.bert or test.aten; both can share the inputs.
  KernelRun(const KernelCase& test, KernelCase::Op op, const KernelCase::Tensors& inputs);
  [[nodiscard]] bool has_backward() const { return !leaves_.empty(); }

  /// What is not timed: a round's own copy of an input that backward overwrites.
  void prepare();
  void forward() { result_ = op_(round_); }
  [[nodiscard]] const at::Tensor& result() const { return result_; }
  /// Of the forward before it, once, for upstream gradients from 0 to 1. Returns those of the floating-point inputs.
  KernelCase::Tensors backward();

 private:
  KernelCase::Op op_;
  bool consumes_first_;
  KernelCase::Tensors inputs_, leaves_, round_;
  at::Tensor upstream_, result_;
};

/// Every operator once; attention also with dropout and with unequal lengths, against padded sequences.
std::vector<KernelCase> kernel_cases(const KernelShape& shape);

}  // namespace bert
