// The pooling of a long text's windows, which data and model share.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace bert {

/// From the logits of a text's windows to those of the text: kAttention is a mean with weights that the model has learned.
enum class WindowPooling : uint8_t { kMean, kMax, kFirst, kAttention };
inline std::span<const char* const> names_of(WindowPooling /*type*/) {
  static constexpr std::array<const char*, 4> kNames = {"mean", "max", "first", "attention"};
  return kNames;
}

/// The name of the learned vector of kAttention among the weights.
inline constexpr const char* kWindowAttention = "window_attention";

}  // namespace bert
