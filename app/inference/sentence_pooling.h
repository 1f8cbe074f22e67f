// The vector of a text from the hidden states of its tokens, as sentence-transformers computes it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <vector>

#include "app/config/sentence_encoder.h"
#include "cuda_ext/state_dict.h"

namespace bert {

/// The modules behind the encoder. All computation is in fp32.
class SentenceHead {
 public:
  /// `weights` has the tensors of the dense layers (kSentencePrefix).
  SentenceHead(SentenceEncoder encoder, const StateDict& weights, c10::Device device);

  [[nodiscard]] const SentenceEncoder& encoder() const { return encoder_; }

  /// The pooled vector [P] of `states` [S, H], fp32. The first `skipped` tokens are not read, unless there are no others.
  [[nodiscard]] at::Tensor pool(const at::Tensor& states, int64_t skipped) const;

  /// One pooled vector [P] from those of the windows of a text, [W, P]: the largest numbers of kMax, else the mean, in
  /// which a window counts as its number of `tokens`.
  [[nodiscard]] at::Tensor join(const at::Tensor& windows, const std::vector<int64_t>& tokens) const;

  /// The vectors [N, D] of pooled vectors [N, P]: dense layers, then the length 1 if the model normalises.
  [[nodiscard]] at::Tensor finish(at::Tensor pooled) const;

 private:
  struct Dense {
    at::Tensor weight, bias;  // [out, in]; [out], or undefined
  };
  const SentenceEncoder encoder_;
  std::vector<Dense> dense_;
};

/// The outputs [N, out] of a dense layer with its activation, from x [N, in]; `bias` may be undefined.
at::Tensor dense_layer(const SentenceDense& layer, const at::Tensor& x, const at::Tensor& weight,
                       const at::Tensor& bias);

/// The rows of `vectors` [N, D] or [D] with the length 1; a row of zeros stays.
at::Tensor normalized(const at::Tensor& vectors);

}  // namespace bert
