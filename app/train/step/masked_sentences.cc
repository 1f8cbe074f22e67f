#include "app/train/step/masked_sentences.h"

#include <torch/types.h>

#include <algorithm>
#include <utility>

#include "data/loader/single_pass_loader.h"
#include "model/evaluation_guard.h"

namespace bert {

MaskedSentences::MaskedSentences(const std::shared_ptr<const PretrainingShards>& shards, const Tokenizer& tokenizer,
                                 int64_t examples, std::optional<DynamicMasking> masking)
    : tokenizer_(tokenizer) {
  constexpr int64_t kMostExamples = 1000, kBatch = 20;
  SinglePassLoader loader(
      shards,
      {.batch_size = kBatch, .max_sequences = std::min(kMostExamples, examples), .masking = std::move(masking)});
  while (std::ssize(sentences_) < kSentences) {
    const std::optional<PackedBatch> batch = loader.next();
    if (!batch) break;
    add_sentences(*batch);
  }
}

/// Adds the sentences of the examples of `batch`, until there are enough.
void MaskedSentences::add_sentences(const PackedBatch& batch) {
  const auto* ids = batch.input_ids.const_data_ptr<int64_t>();
  const auto* ends = batch.cu_seqlens.const_data_ptr<int32_t>();
  const auto* positions = batch.masked_positions.const_data_ptr<int64_t>();
  const auto* originals = batch.masked_ids.const_data_ptr<int64_t>();
  int64_t next = 0;  // masked token
  for (int64_t row = 0; row < batch.num_sequences(); ++row) {
    std::vector<int32_t> restored;
    std::vector<size_t> masked;
    for (int64_t i = ends[row]; i < ends[row + 1]; ++i) restored.push_back(static_cast<int32_t>(ids[i]));
    for (; next < batch.num_masked() && positions[next] < ends[row + 1]; ++next) {
      masked.push_back(static_cast<size_t>(positions[next] - ends[row]));
      restored[masked.back()] = static_cast<int32_t>(originals[next]);
    }
    if (static_cast<int64_t>(sentences_.size()) == kSentences) return;
    if (auto sentence = sentence_of(restored, masked)) sentences_.push_back(std::move(*sentence));
  }
}

/// The sentence of an example with the unmasked `ids`.
std::optional<MaskedSentences::Sentence> MaskedSentences::sentence_of(const std::vector<int32_t>& ids,
                                                                      const std::vector<size_t>& masked) const {
  const Vocabulary& vocabulary = tokenizer_.vocabulary();
  const auto special = [&](size_t i) { return vocabulary.is_special(ids[i]); };
  const auto continues = [&](size_t i) { return !special(i) && tokenizer_.is_continuation(ids[i]); };
  const auto whole_word = [&](size_t i) {
    return !special(i) && !continues(i) && (i + 1 == ids.size() || !continues(i + 1));
  };
  const auto found = std::ranges::find_if(masked, whole_word);
  if (found == masked.end()) return std::nullopt;
  const size_t place = *found, reach = kMostTokens / 2;
  size_t begin = place, end = place + 1;  // special tokens bound the segment
  while (begin > 0 && place - begin < reach && !special(begin - 1)) --begin;
  while (end < ids.size() && end - place < reach && !special(end)) ++end;
  while (continues(begin)) ++begin;
  while (end < ids.size() && continues(end)) --end;
  Sentence sentence;
  const auto at = [&](size_t i) { return ids.begin() + static_cast<std::ptrdiff_t>(i); };
  const std::string before = tokenizer_.decode({at(begin), at(place)}),
                    after = tokenizer_.decode({at(place + 1), at(end)});
  sentence.text = before + (before.empty() ? "" : " ") + "[MASK]" + (after.empty() ? "" : " ") + after;
  sentence.expected = ids[place];
  sentence.ids = {vocabulary.cls_id()};
  sentence.ids.insert(sentence.ids.end(), at(begin), at(end));
  sentence.ids.push_back(vocabulary.sep_id());
  sentence.mask = place - begin + 1;
  sentence.ids[sentence.mask] = vocabulary.mask_id();
  return sentence;
}

/// All sentences, on the CPU.
PackedBatch MaskedSentences::batch() const {
  std::vector<int64_t> ids, positions, masks, expected;
  std::vector<int32_t> ends = {0};
  PackedBatch batch;
  for (const Sentence& sentence : sentences_) {
    masks.push_back(static_cast<int64_t>(ids.size() + sentence.mask));
    expected.push_back(sentence.expected);
    for (size_t i = 0; i < sentence.ids.size(); ++i) {
      ids.push_back(sentence.ids[i]);
      positions.push_back(static_cast<int64_t>(i));
    }
    ends.push_back(static_cast<int32_t>(ids.size()));
    batch.max_seqlen = std::max(batch.max_seqlen, static_cast<int64_t>(sentence.ids.size()));
  }
  batch.input_ids = torch::tensor(ids, torch::kInt64);
  batch.token_type_ids = torch::zeros_like(batch.input_ids);
  batch.position_ids = torch::tensor(positions, torch::kInt64);
  batch.dropout_keys = torch::zeros_like(batch.input_ids);
  batch.cu_seqlens = torch::tensor(ends, torch::kInt32);
  batch.masked_positions = torch::tensor(masks, torch::kInt64);
  batch.masked_ids = torch::tensor(expected, torch::kInt64);
  return batch;
}

nlohmann::ordered_json MaskedSentences::answers(TrainingStep& step, int64_t applied) const {
  if (sentences_.empty()) return nullptr;
  const torch::NoGradGuard no_grad;
  const EvaluationGuard evaluation(*step.model);
  const Vocabulary& vocabulary = tokenizer_.vocabulary();
  // The vocabulary may be smaller than the table of the model; the other rows are padding.
  const torch::Tensor logits =
      step.forward(batch().to(step.device())).mlm_logits.narrow(1, 0, vocabulary.size()).to(torch::kFloat);
  const auto [best, best_ids] = logits.softmax(-1).topk(std::min(kFillers, vocabulary.size()), -1);
  const torch::Tensor scores = best.to(torch::kCPU), tokens = best_ids.to(torch::kCPU);
  const auto score = scores.accessor<float, 2>();
  const auto token = tokens.accessor<int64_t, 2>();
  nlohmann::ordered_json line = {{"step", applied}, {"answers", nlohmann::ordered_json::array()}};
  for (size_t i = 0; i < sentences_.size(); ++i) {
    const auto row = static_cast<int64_t>(i);
    nlohmann::ordered_json answer = {{"text", sentences_[i].text},
                                     {"expected", vocabulary.token(sentences_[i].expected)},
                                     {"fillers", nlohmann::ordered_json::array()}};
    for (int64_t filler = 0; filler < scores.size(1); ++filler) {
      answer["fillers"].push_back({{"token_str", vocabulary.token(token[row][filler])}, {"score", score[row][filler]}});
    }
    line["answers"].push_back(std::move(answer));
  }
  return line;
}

}  // namespace bert
