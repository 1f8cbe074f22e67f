#include "app/finetune/entity_marker_rows.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/normal.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "app/interop/bert_parameters.h"
#include "app/system/errors.h"
#include "data/tasks/entity_markers.h"

namespace bert {

void expect_entity_markers(const std::vector<std::string>& vocabulary, const std::string& file) {
  for (const char* marker : kEntityMarkers) {
    if (std::ranges::find(vocabulary, marker) == vocabulary.end())
      throw ConfigError(fmt::format("data.entity_markers: {} lacks {}; add the markers to it", file, marker));
  }
}

int64_t add_entity_markers(Pretrained& start, int64_t seed) {
  ModelDescription& model = start.model;
  const auto size_before = std::ssize(model.vocabulary), found_before = std::ssize(model.added_tokens);
  for (const char* marker : kEntityMarkers) {
    const auto place = std::ranges::find(model.vocabulary, marker);
    const auto id = static_cast<int32_t>(place - model.vocabulary.begin());
    if (place == model.vocabulary.end()) model.vocabulary.emplace_back(marker);
    if (std::ranges::find(model.added_tokens, id, &AddedToken::id) == model.added_tokens.end())
      model.added_tokens.push_back({.id = id, .special = true});
  }
  if (std::ssize(model.added_tokens) == found_before) return 0;
  const auto* tokenizer = dynamic_cast<const WordPieceTokenizer*>(start.tokenizer.get());
  if (tokenizer == nullptr)
    throw ConfigError("data.entity_markers: " + start.name + " has a SentencePiece model, to which no token is added");
  start.tokenizer = std::make_shared<WordPieceTokenizer>(Vocabulary(model.vocabulary, start.name, model.added_tokens),
                                                         tokenizer->config());
  const int64_t size = std::ssize(model.vocabulary), added = size - size_before;
  if (added == 0) return 0;
  const at::Tensor* rows = start.weights.find(kWordEmbeddings);
  const at::Tensor old = rows->narrow(0, 0, size_before);
  const at::Tensor fresh =
      at::normal(0, model.config.initializer_range, {added, old.size(1)},
                 at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(seed)), at::TensorOptions(at::kFloat))
          .to(old.scalar_type());
  const int64_t spare = std::max<int64_t>(rows->size(0) - size, 0);  // rows without tokens stay behind
  StateDict weights;
  for (const auto& item : start.weights) {
    weights.insert(item.key(), item.key() == kWordEmbeddings
                                   ? at::cat({old, fresh, rows->narrow(0, rows->size(0) - spare, spare)})
                                   : item.value());
  }
  start.weights = std::move(weights);
  model.config.vocab_size = std::max(model.config.vocab_size, size);
  return added;
}

}  // namespace bert
