// Texts that are computed together.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <span>
#include <vector>

#include "app/inference/encoded_text.h"
#include "model/bert.h"

namespace bert {

/// Indices of texts that are computed together.
using TextGroup = std::vector<size_t>;

/// Groups texts of like lengths, the longest first: at most `batch_size` texts and `batch_tokens` tokens, or one text.
std::vector<TextGroup> groups_of(std::span<const EncodedText> texts, int64_t batch_size, int64_t batch_tokens);

/// The texts of a group end to end, each of segment A.
PackedBatch packed(std::span<const EncodedText> texts, const TextGroup& group, c10::Device device);

}  // namespace bert
