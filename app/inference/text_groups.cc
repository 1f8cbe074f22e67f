#include "app/inference/text_groups.h"

#include <torch/types.h>

#include <algorithm>
#include <numeric>

namespace bert {

PackedBatch packed(std::span<const EncodedText> texts, const TextGroup& group, torch::Device device) {
  std::vector<int64_t> ids, positions, masked;
  std::vector<int32_t> ends = {0};
  size_t longest = 0;
  for (const size_t index : group) {
    const EncodedText& text = texts[index];
    for (const size_t mask : text.masks) masked.push_back(static_cast<int64_t>(ids.size() + mask));
    for (size_t i = 0; i < text.ids.size(); ++i) {
      ids.push_back(text.ids[i]);
      positions.push_back(static_cast<int64_t>(i));
    }
    ends.push_back(static_cast<int32_t>(ids.size()));
    longest = std::max(longest, text.ids.size());
  }
  PackedBatch batch;
  batch.input_ids = torch::tensor(ids);
  batch.token_type_ids = torch::zeros_like(batch.input_ids);
  batch.position_ids = torch::tensor(positions);
  batch.cu_seqlens = torch::tensor(ends, torch::kInt);
  batch.max_seqlen = static_cast<int64_t>(longest);
  batch.masked_positions = torch::tensor(masked, torch::kLong);
  return batch.to(device);
}

std::vector<TextGroup> groups_of(std::span<const EncodedText> texts, int64_t batch_size, int64_t batch_tokens) {
  TextGroup order(texts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return texts[a].ids.size() > texts[b].ids.size(); });
  std::vector<TextGroup> groups;
  int64_t tokens = 0;
  for (const size_t index : order) {
    const auto length = static_cast<int64_t>(texts[index].ids.size());
    if (groups.empty() || tokens + length > batch_tokens || static_cast<int64_t>(groups.back().size()) == batch_size) {
      groups.emplace_back();
      tokens = 0;
    }
    groups.back().push_back(index);
    tokens += length;
  }
  return groups;
}

}  // namespace bert
