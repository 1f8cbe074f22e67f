// Other weights in a model that trains, for an evaluation.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

#include "app/train/step/optimizer_step.h"
#include "model/state_dict.h"

namespace bert {

/// While it lives, the model of a step has the weights that rank 0 passes. Every rank must make one; the other ranks pass
/// an empty list. The destructor gives the model its own weights back, to the bit.
class BorrowedWeights {
 public:
  /// `step` must outlive this object. Throws c10::Error on rank 0 if the weights are those of another model.
  BorrowedWeights(OptimizerStep& step, const StateDict& weights);
  ~BorrowedWeights();
  BorrowedWeights(const BorrowedWeights&) = delete;
  BorrowedWeights& operator=(const BorrowedWeights&) = delete;

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> own_;  // each tensor of the model with its values before
};

}  // namespace bert
