// The values of new weights.
#pragma once

#include <ATen/core/Generator.h>

#include <optional>

#include "model/bert.h"

namespace bert {

/// Fills weights as config.init says (init_weights() has the distributions). Draws on the CPU in fp32, so that device
/// and dtype do not change the values.
class Initializer {
 public:
  /// Draws from `generator`, by default from LibTorch's default generator of the CPU (torch::manual_seed).
  explicit Initializer(const BertConfig& config, std::optional<at::Generator> generator = std::nullopt);

  void fill(LinearImpl& module);
  void fill(EmbeddingImpl& module);

 private:
  void normal(torch::Tensor& parameter);
  void uniform(torch::Tensor& parameter, double bound);

  double std_;
  bool nvidia_;
  std::optional<at::Generator> generator_;
};

/// The last act of a constructor: fills the new module, unless a NoInitWeights exists in this thread.
template <class Module>
void fill_new(Module& module, const BertConfig& config) {
  if (NoInitWeights::none()) Initializer(config).fill(module);
}

}  // namespace bert
