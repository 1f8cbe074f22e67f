#include "app/verbs/model/pretraining_scores.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <map>

#include "app/system/torch_errors.h"
#include "cuda_ext/packed_batch.h"
#include "data/io/error.h"
#include "model/bert.h"
#include "model/state_dict.h"

namespace bert {
namespace {

constexpr int64_t kBatchTokens = 4096, kBatchSequences = 32;
constexpr int64_t kLogitRows = 256;  // whose logits are in memory at once, in fp64: 62 MB for 30,522 tokens

/// A sequence with the tokens to predict.
struct MaskedSequence {
  std::vector<int32_t> ids;
  int64_t segment_b_start = 0;
  std::vector<MaskedToken> masked;
};

PackedBatch batch_of(const std::vector<MaskedSequence>& sequences) {
  std::vector<int64_t> ids, types, positions, masked, expected;
  std::vector<int32_t> ends = {0};
  PackedBatch batch;
  for (const MaskedSequence& sequence : sequences) {
    for (const MaskedToken& token : sequence.masked) {
      masked.push_back(std::ssize(ids) + token.position);
      expected.push_back(token.id);
    }
    for (int64_t i = 0; i < std::ssize(sequence.ids); ++i) {
      ids.push_back(sequence.ids[static_cast<size_t>(i)]);
      types.push_back(i >= sequence.segment_b_start ? 1 : 0);
      positions.push_back(i);
    }
    ends.push_back(static_cast<int32_t>(ids.size()));
    batch.max_seqlen = std::max(batch.max_seqlen, std::ssize(sequence.ids));
  }
  batch.input_ids = torch::tensor(ids, torch::kLong);
  batch.token_type_ids = torch::tensor(types, torch::kLong);
  batch.position_ids = torch::tensor(positions, torch::kLong);
  batch.dropout_keys = torch::zeros_like(batch.input_ids);
  batch.cu_seqlens = torch::tensor(ends, torch::kInt);
  batch.masked_positions = torch::tensor(masked, torch::kLong);
  batch.masked_ids = torch::tensor(expected, torch::kLong);
  return batch;
}

struct Prediction {
  double loss = 0;
  bool correct = false;
};

/// Of each row of `logits` [N, C] the loss and the rightness of the class in `expected` [N].
void append_predictions(const torch::Tensor& logits, const torch::Tensor& expected, std::vector<Prediction>& all) {
  for (int64_t row = 0; row < logits.size(0); row += kLogitRows) {
    const int64_t rows = std::min(kLogitRows, logits.size(0) - row);
    const torch::Tensor some = logits.narrow(0, row, rows), labels = expected.narrow(0, row, rows);
    const torch::Tensor losses =
        -some.to(torch::kDouble).log_softmax(-1).gather(1, labels.unsqueeze(1)).squeeze(1).to(torch::kCPU);
    const torch::Tensor correct = some.argmax(-1).eq(labels).to(torch::kCPU);
    for (int64_t i = 0; i < rows; ++i)
      all.push_back({losses.const_data_ptr<double>()[i], correct.const_data_ptr<bool>()[i]});
  }
}

class PretrainingScorer {
 public:
  PretrainingScorer(const Pretrained& pretrained, c10::Device device)
      : device_(device), vocab_size_(pretrained.tokenizer->vocabulary().size()) {
    const NoInitWeights no_init;
    with_data_errors(pretrained.name + ": the weights are not those of a BertForPreTraining of this configuration",
                     [&] {
                       model_ = BertForPreTraining(pretrained.model.config, has_pairs(pretrained.model.objective));
                       load_state_dict(*model_, pretrained.weights);
                     });
    model_->to(device, torch::kFloat);
    model_->eval();
  }

  /// The predictions of the masked tokens of all sequences in order; those of pairs, with `pairs`, into it.
  std::vector<Prediction> masked_tokens(const std::vector<MaskedSequence>& sequences,
                                        const std::vector<int64_t>& labels, std::vector<Prediction>* pairs) {
    const torch::NoGradGuard no_grad;
    const PackedBatch batch = batch_of(sequences).to(device_);
    const PretrainingOutput output = model_->forward(batch);
    std::vector<Prediction> all;
    append_predictions(output.mlm_logits.narrow(1, 0, vocab_size_), batch.masked_ids, all);
    if (pairs != nullptr)
      append_predictions(output.nsp_logits, torch::tensor(labels, torch::kLong).to(device_), *pairs);
    return all;
  }

 private:
  c10::Device device_;
  int64_t vocab_size_;
  BertForPreTraining model_{nullptr};
};

/// Calls take(word, begin, end) for the tokens [begin, end) of each word.
template <class Take>
void for_each_word(const EvaluatedExample& example, const Take& take) {
  for (size_t begin = 0, end = 0; begin < example.ids.size(); begin = end) {
    for (end = begin + 1; end < example.ids.size() && example.word[end] == example.word[begin];) ++end;
    const auto first = example.ids.begin();
    if (example.word[begin] >= 0)
      take(std::vector<int32_t>(first + static_cast<std::ptrdiff_t>(begin), first + static_cast<std::ptrdiff_t>(end)),
           begin, end);
  }
}

/// The band of each token by the frequency of its word. A special token has none: a number beyond the bands.
std::vector<std::vector<size_t>> bands_of(const EvaluatedExamples& examples) {
  std::map<std::vector<int32_t>, int64_t> counts;
  for (const EvaluatedExample& example : examples.examples)
    for_each_word(example, [&](const std::vector<int32_t>& word, size_t, size_t) { ++counts[word]; });
  std::vector<std::vector<size_t>> bands;
  for (const EvaluatedExample& example : examples.examples) {
    std::vector<size_t>& own = bands.emplace_back(example.ids.size(), kFrequencyBands.size());
    for_each_word(example, [&](const std::vector<int32_t>& word, size_t begin, size_t end) {
      const auto above = std::ranges::upper_bound(kFrequencyBands, counts.at(word));
      std::fill(own.begin() + static_cast<std::ptrdiff_t>(begin), own.begin() + static_cast<std::ptrdiff_t>(end),
                static_cast<size_t>(above - kFrequencyBands.begin()) - 1);
    });
  }
  return bands;
}

void check_model(const Pretrained& pretrained, const EvaluatedExamples& examples) {
  if (pretrained.tokenizer == nullptr) throw DataError(pretrained.name + ": has no tokenizer; put its vocab.txt there");
  if (!pretrained.model.masked_token_head)
    throw DataError(pretrained.name + ": has no head for masked tokens; expected a pre-trained model");
  const int64_t positions = pretrained.model.config.max_position_embeddings;
  for (const EvaluatedExample& example : examples.examples) {
    if (std::ssize(example.ids) > positions)
      throw DataError(fmt::format("{}: has {} positions, and an example has {} tokens; make shorter examples",
                                  pretrained.name, positions, example.ids.size()));
  }
}

/// The first example after `begin` that no longer fits into a batch with those from `begin` on.
size_t end_of_batch(const std::vector<EvaluatedExample>& examples, size_t begin) {
  int64_t tokens = 0;
  size_t end = begin;
  while (end < examples.size() && end - begin < kBatchSequences) {
    tokens += std::ssize(examples[end].ids);
    if (end > begin && tokens > kBatchTokens) break;
    ++end;
  }
  return end;
}

/// Examples of a batch, and the labels of their pairs.
struct ScoredBatch {
  std::vector<MaskedSequence> sequences;
  std::vector<int64_t> labels;
};

ScoredBatch batch_between(const std::vector<EvaluatedExample>& examples, size_t begin, size_t end) {
  ScoredBatch batch;
  for (size_t i = begin; i < end; ++i) {
    batch.sequences.push_back({examples[i].masked_ids, examples[i].segment_b_start, examples[i].masked});
    batch.labels.push_back(examples[i].is_random_next ? 1 : 0);
  }
  return batch;
}

/// Adds the prediction of each word token of `example`, masked alone.
void add_pseudo(PretrainingScorer& scorer, const EvaluatedExample& example, int32_t mask_id,
                PretrainingScores& scores) {
  std::vector<MaskedSequence> sequences;
  const auto batch = std::clamp<int64_t>(kBatchTokens / std::ssize(example.ids), 1, kBatchSequences);
  const auto flush = [&] {
    if (sequences.empty()) return;
    for (const Prediction& one : scorer.masked_tokens(sequences, {}, nullptr)) scores.pseudo.add(one.loss, one.correct);
    sequences.clear();
  };
  for (size_t i = 0; i < example.ids.size(); ++i) {
    if (example.word[i] < 0) continue;
    MaskedSequence& sequence = sequences.emplace_back(example.ids, example.segment_b_start);
    sequence.masked = {{static_cast<int32_t>(i), example.ids[i]}};
    sequence.ids[i] = mask_id;
    if (std::ssize(sequences) == batch) flush();
  }
  flush();
  scores.pseudo_words += example.words;
}

}  // namespace

PretrainingScores score_pretraining(const Pretrained& pretrained, const EvaluatedExamples& examples, size_t sources,
                                    int64_t pseudo_examples, c10::Device device,
                                    const std::function<void(double share)>& progress) {
  check_model(pretrained, examples);
  const std::vector<EvaluatedExample>& all = examples.examples;
  const Vocabulary& vocabulary = pretrained.tokenizer->vocabulary();
  const bool pairs = has_pairs(pretrained.model.objective) && examples.objective == pretrained.model.objective;
  PretrainingScorer scorer(pretrained, device);
  const std::vector<std::vector<size_t>> bands = bands_of(examples);
  PretrainingScores scores;
  scores.by_source.resize(sources);
  const size_t pseudo = std::min(all.size(), static_cast<size_t>(pseudo_examples));
  int64_t longest = 1;
  for (const EvaluatedExample& example : all) longest = std::max(longest, std::ssize(example.ids));
  const auto work = static_cast<double>(all.size() + pseudo * static_cast<size_t>(longest));
  std::vector<Prediction> of_pairs;
  for (size_t begin = 0, end = 0; begin < all.size(); begin = end) {
    end = end_of_batch(all, begin);
    const ScoredBatch batch = batch_between(all, begin, end);
    const std::vector<Prediction> of_tokens =
        scorer.masked_tokens(batch.sequences, batch.labels, pairs ? &of_pairs : nullptr);
    auto next = of_tokens.begin();
    for (size_t i = begin; i < end; ++i) {
      scores.unknown_tokens += std::ranges::count(all[i].ids, vocabulary.unk_id());
      for (const MaskedToken& token : all[i].masked) {
        scores.masked.add(next->loss, next->correct);
        scores.by_source[all[i].source].add(next->loss, next->correct);
        const size_t band = bands[i][static_cast<size_t>(token.position)];
        if (band < scores.by_frequency.size()) scores.by_frequency[band].add(next->loss, next->correct);
        ++next;
      }
    }
    progress(static_cast<double>(end) / work);
  }
  for (size_t begin = 0, end = 0; begin < examples.pairs.size(); begin = end) {
    end = end_of_batch(examples.pairs, begin);
    const ScoredBatch batch = batch_between(examples.pairs, begin, end);
    scorer.masked_tokens(batch.sequences, batch.labels, &of_pairs);
  }
  for (const Prediction& one : of_pairs) scores.pairs.add(one.loss, one.correct);
  for (size_t i = 0; i < pseudo; ++i) {
    add_pseudo(scorer, all[i * all.size() / pseudo], vocabulary.mask_id(), scores);
    progress(static_cast<double>(all.size() + (i + 1) * static_cast<size_t>(longest)) / work);
  }
  return scores;
}

}  // namespace bert
