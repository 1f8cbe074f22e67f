// The operators and the ATen expressions that they replace, as timed cases.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace bert {

/// Sizes, dtype and device of the cases. T tokens in sequences of `length`, H hidden, A heads, I intermediate, V
/// vocabulary.
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

/// The least cost of a pass: bytes through memory, every tensor read or written once; or floating-point operations if
/// arithmetic decides. The other number is 0.
struct KernelCost {
  double bytes = 0.0, flops = 0.0;
};

struct KernelCase {
  using Tensors = std::vector<at::Tensor>;
  using Op = std::function<at::Tensor(const Tensors&)>;

  std::string name;
  std::function<Tensors()> inputs;  // backward gives the gradients of the floating-point ones
  Op bert, aten;                    // one result from the inputs
  struct Rival {
    std::string name;
    Op op;
  };
  std::vector<Rival> rivals = {};  // aten by each of ATen's kernels; one that does not take the shape throws
  KernelCost forward;
  std::optional<KernelCost> backward;  // none: an update in place, one pass
  Op norm = {};                        // an optimizer's norm of gradients, the first part of its forward
  double update_bytes = 0.0;           // an optimizer's forward.bytes without those of the norm
  bool consumes_first = false;         // backward may overwrite the first input, so each round has its own
};

/// One implementation of a case, pass by pass.
class KernelRun {
 public:
  /// `op` is test.bert or test.aten; both can share the inputs.
  KernelRun(const KernelCase& test, KernelCase::Op op, const KernelCase::Tensors& inputs);
  [[nodiscard]] bool has_backward() const { return !leaves_.empty(); }

  /// The untimed part of a round: its own copy of an input that backward overwrites.
  void prepare();
  void forward() { result_ = op_(round_); }
  [[nodiscard]] const at::Tensor& result() const { return result_; }
  /// The backward of the last forward, which may run once, for upstream gradients from 0 to 1. Returns the gradients of
  /// the floating-point inputs.
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
