// Features of texts with more tokens than the model reads, from those of their windows.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "app/inference/encoded_text.h"
#include "app/inference/predictor.h"

namespace bert {

/// Windows of `longest` tokens, special ones included, with `stride` tokens from start to start: text_windows().
struct WindowSizes {
  int64_t longest = 0, stride = 0;
};

/// Predictor::features() of texts of any length. A token's hidden state is that of the window with the most context around
/// it: is_max_context(). [CLS] is that of the first window, [SEP] of the last; pooler_output is the mean of all windows.
std::vector<Features> features_of_windows(const Predictor& predictor, std::span<const EncodedText> texts,
                                          const WindowSizes& sizes);

/// Predictor::embed() likewise: the pooling reads the joined hidden states, Pooling::kPooler the mean of the windows'.
std::vector<at::Tensor> embed_windows(const Predictor& predictor, std::span<const EncodedText> texts,
                                      const WindowSizes& sizes, const EmbeddingOptions& options);

}  // namespace bert
