#include "app/inference/predictor.h"

#include <torch/types.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "app/system/torch_errors.h"
#include "model/bert.h"
#include "model/state_dict.h"

namespace bert {
namespace {

constexpr std::string_view kMask = "[MASK]";
constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581, which stands for a space in SentencePiece
constexpr int64_t kMaskedRows = 256;  // whose logits are in memory at once: 31 MB for 30,522 tokens in fp32

/// The tokens of a text, and the places of those that stand for a [MASK] of the text. A tokenizer may give the same token
/// for other texts too, for example for a full-width [MASK].
struct Sequence {
  std::vector<int32_t> ids;
  std::vector<size_t> masks;
};

/// The beginning of `text` as a JSON string, so that a message has no control characters.
std::string shown(const std::string& text) {
  constexpr size_t kMaxBytes = 60;
  const bool whole = text.size() <= kMaxBytes;
  const nlohmann::json beginning = whole ? text : text.substr(0, kMaxBytes) + "...";
  return beginning.dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::ignore);
}

/// The ids [CLS] text [SEP]. A SentencePiece model does not recognise [MASK] in a text, so the text is split there.
Sequence encode(const Tokenizer& tokenizer, const std::string& text) {
  const Vocabulary& vocabulary = tokenizer.vocabulary();
  Sequence sequence{.ids = {vocabulary.cls_id()}, .masks = {}};
  std::vector<int32_t>& ids = sequence.ids;
  for (size_t begin = 0;;) {
    const size_t mask = text.find(kMask, begin);
    tokenizer.encode(std::string_view(text).substr(begin, mask - begin), ids);
    if (mask == std::string::npos) break;
    sequence.masks.push_back(ids.size());
    ids.push_back(vocabulary.mask_id());
    begin = mask + kMask.size();
  }
  ids.push_back(vocabulary.sep_id());
  return sequence;
}

/// Sequences end to end, each of segment A.
PackedBatch packed(const std::vector<Sequence>& sequences, torch::Device device) {
  std::vector<int64_t> ids, positions, masked;
  std::vector<int32_t> ends = {0};
  size_t longest = 0;
  for (const Sequence& sequence : sequences) {
    for (const size_t mask : sequence.masks) masked.push_back(static_cast<int64_t>(ids.size() + mask));
    for (size_t i = 0; i < sequence.ids.size(); ++i) {
      ids.push_back(sequence.ids[i]);
      positions.push_back(static_cast<int64_t>(i));
    }
    ends.push_back(static_cast<int32_t>(ids.size()));
    longest = std::max(longest, sequence.ids.size());
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

void check(const Pretrained& pretrained, const PredictorOptions& options) {
  TORCH_CHECK(pretrained.tokenizer != nullptr, "Predictor: ", pretrained.name, " has no tokenizer.");
  TORCH_CHECK(options.batch_size > 0, "Predictor: batch_size must be 1 or more, got ", options.batch_size, ".");
  TORCH_CHECK(options.dtype == torch::kFloat || options.dtype == torch::kBFloat16 || options.dtype == torch::kHalf,
              "Predictor: dtype must be fp32, bf16 or fp16, got ", options.dtype, ".");
}

/// In evaluation mode, where forward changes nothing.
std::shared_ptr<BertForPreTrainingImpl> model_of(const Pretrained& pretrained, const PredictorOptions& options) {
  check(pretrained, options);
  const NoInitWeights no_init;
  std::shared_ptr<BertForPreTrainingImpl> model;
  with_data_errors(pretrained.name + ": the weights are not those of a BertForPreTraining of this configuration", [&] {
    model = std::make_shared<BertForPreTrainingImpl>(pretrained.config, has_pairs(pretrained.objective));
    load_state_dict(*model, pretrained.weights);
  });
  model->to(options.device, options.dtype);
  model->eval();
  return model;
}

}  // namespace

struct Predictor::Impl {
  const PredictorOptions options;
  const std::shared_ptr<const Tokenizer> tokenizer;
  const bool sentencepiece;
  const std::shared_ptr<BertForPreTrainingImpl> model;

  Impl(const Pretrained& pretrained, const PredictorOptions& given)
      : options(given),
        tokenizer(pretrained.tokenizer),
        sentencepiece(dynamic_cast<const SentencePieceTokenizer*>(tokenizer.get()) != nullptr),
        model(model_of(pretrained, options)) {}

  /// Throws TextError.
  [[nodiscard]] std::vector<Sequence> encode_all(const std::vector<std::string>& texts, bool want_masks) const {
    const int64_t longest = model->bert->config.max_position_embeddings;
    std::vector<Sequence> all;
    for (const std::string& text : texts) {
      if (want_masks && text.find(kMask) == std::string::npos) {
        throw TextError(all.size(), "no [MASK] in the text: " + shown(text));
      }
      Sequence sequence = encode(*tokenizer, text);
      if (static_cast<int64_t>(sequence.ids.size()) > longest) {
        throw TextError(all.size(), "text of " + std::to_string(sequence.ids.size()) +
                                        " tokens: the model takes at most " + std::to_string(longest) +
                                        "; shorten it: " + shown(text));
      }
      all.push_back(std::move(sequence));
    }
    return all;
  }

  /// Calls answer(sequences, batch, hidden states) for batch_size sequences at a time.
  template <class Answer>
  void for_each_batch(const std::vector<Sequence>& sequences, const Answer& answer) const {
    const torch::NoGradGuard no_grad;
    const auto size = static_cast<size_t>(options.batch_size);
    for (size_t begin = 0; begin < sequences.size(); begin += size) {
      const auto first = sequences.begin() + static_cast<std::ptrdiff_t>(begin);
      const std::vector<Sequence> part(first,
                                       first + static_cast<std::ptrdiff_t>(std::min(size, sequences.size() - begin)));
      const PackedBatch batch = packed(part, options.device);
      answer(part, batch, model->bert->forward(batch));
    }
  }

  /// The text of a token without the mark of SentencePiece for the space before it.
  [[nodiscard]] std::string word(int64_t token) const {
    const std::string& text = tokenizer->vocabulary().token(token);
    return sentencepiece && text.starts_with(kSpaceMark) ? text.substr(kSpaceMark.size()) : text;
  }

  /// Appends the `top_k` best tokens of each masked position, best first, without their sequences.
  void fill(const PackedBatch& batch, const torch::Tensor& hidden_states, int64_t top_k,
            std::vector<std::vector<Filler>>& fillers) const {
    for (const torch::Tensor& rows : batch.masked_positions.split(kMaskedRows)) {
      // The vocabulary may be smaller than the table of the model; the other rows are padding.
      const torch::Tensor logits =
          model->cls->predictions
              ->forward(hidden_states.index_select(0, rows), model->bert->embeddings->word_embeddings->weight)
              .narrow(-1, 0, tokenizer->vocabulary().size());
      const torch::Tensor probabilities = logits.to(torch::kFloat).softmax(-1);
      const auto [best, ids] = probabilities.topk(std::min(top_k, probabilities.size(-1)), -1);
      const torch::Tensor scores = best.to(torch::kCPU), tokens = ids.to(torch::kCPU);
      const auto score = scores.accessor<float, 2>();
      const auto token = tokens.accessor<int64_t, 2>();
      for (int64_t row = 0; row < scores.size(0); ++row) {
        std::vector<Filler>& list = fillers.emplace_back();
        for (int64_t i = 0; i < scores.size(1); ++i) {
          list.push_back({score[row][i], token[row][i], word(token[row][i]), /*sequence=*/{}});
        }
      }
    }
  }
};

namespace {

/// Puts the fillers into the text: the next `fillers` are those of the masks of `text`, in their order.
MaskFilling filling_of(const std::string& text, std::vector<std::vector<Filler>>::iterator& fillers) {
  MaskFilling result{.text = text, .masks = {}};
  for (size_t place = text.find(kMask); place != std::string::npos; place = text.find(kMask, place + kMask.size())) {
    for (Filler& filler : *fillers) {
      filler.sequence = text;
      filler.sequence.replace(place, kMask.size(), filler.token_str);
    }
    result.masks.push_back(std::move(*fillers++));
  }
  return result;
}

}  // namespace

Predictor::Predictor(const std::filesystem::path& path, const PredictorOptions& options)
    : Predictor(load_pretrained(path), options) {}

Predictor::Predictor(const Pretrained& pretrained, const PredictorOptions& options)
    : impl_(std::make_unique<const Impl>(pretrained, options)) {}

Predictor::~Predictor() = default;
Predictor::Predictor(Predictor&&) noexcept = default;
Predictor& Predictor::operator=(Predictor&&) noexcept = default;

const BertConfig& Predictor::config() const { return impl_->model->bert->config; }

const Tokenizer& Predictor::tokenizer() const { return *impl_->tokenizer; }

std::vector<MaskFilling> Predictor::fill_mask(const std::vector<std::string>& texts, int64_t top_k) const {
  TORCH_CHECK(top_k > 0, "fill_mask: top_k must be 1 or more, got ", top_k, ".");
  std::vector<std::vector<Filler>> fillers;
  impl_->for_each_batch(impl_->encode_all(texts, /*want_masks=*/true),
                        [&](const std::vector<Sequence>&, const PackedBatch& batch, const BertModelOutput& output) {
                          impl_->fill(batch, output.last_hidden_state, top_k, fillers);
                        });
  std::vector<MaskFilling> fillings;
  auto next = fillers.begin();
  for (const std::string& text : texts) fillings.push_back(filling_of(text, next));
  return fillings;
}

std::vector<Features> Predictor::features(const std::vector<std::string>& texts) const {
  std::vector<Features> all;
  impl_->for_each_batch(
      impl_->encode_all(texts, /*want_masks=*/false),
      [&](const std::vector<Sequence>& sequences, const PackedBatch&, const BertModelOutput& output) {
        int64_t row = 0;
        for (size_t i = 0; i < sequences.size(); ++i) {
          const auto length = static_cast<int64_t>(sequences[i].ids.size());
          Features& features = all.emplace_back();
          for (const int32_t id : sequences[i].ids) features.tokens.push_back(tokenizer().vocabulary().token(id));
          // Copies: a text that is kept does not keep its batch.
          features.last_hidden_state =
              output.last_hidden_state.narrow(0, row, length).to(torch::kFloat, /*non_blocking=*/false, /*copy=*/true);
          if (output.pooler_output.defined()) {
            features.pooler_output =
                output.pooler_output[static_cast<int64_t>(i)].to(torch::kFloat, /*non_blocking=*/false, /*copy=*/true);
          }
          row += length;
        }
      });
  return all;
}

MaskFilling Predictor::fill_mask(const std::string& text, int64_t top_k) const {
  return std::move(fill_mask(std::vector<std::string>{text}, top_k).front());
}

Features Predictor::features(const std::string& text) const {
  return std::move(features(std::vector<std::string>{text}).front());
}

}  // namespace bert
