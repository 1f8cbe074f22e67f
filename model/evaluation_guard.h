#pragma once

#include <torch/nn/module.h>

namespace bert {

/// Puts a module into evaluation mode for a scope. The destructor restores the earlier mode.
class EvaluationGuard {
 public:
  explicit EvaluationGuard(torch::nn::Module& module) : module_(module), was_training_(module.is_training()) {
    module_.eval();
  }
  ~EvaluationGuard() { module_.train(was_training_); }
  EvaluationGuard(const EvaluationGuard&) = delete;
  EvaluationGuard& operator=(const EvaluationGuard&) = delete;

 private:
  torch::nn::Module& module_;
  bool was_training_;
};

}  // namespace bert
