#include "app/inference/predictor.h"

#include <torch/types.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "app/inference/feature_windows.h"
#include "app/inference/sentence_pooling.h"
#include "app/inference/text_groups.h"
#include "app/system/torch_errors.h"
#include "model/bert.h"
#include "model/inference.h"
#include "model/state_dict.h"

namespace bert {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581, which stands for a space in SentencePiece
constexpr int64_t kMaskedRows = 256;  // whose logits are in memory at once: 31 MB for 30,522 tokens in fp32

void check(const Pretrained& pretrained, const PredictorOptions& options) {
  TORCH_CHECK(pretrained.tokenizer != nullptr, "Predictor: ", pretrained.name, " has no tokenizer.");
  TORCH_CHECK(options.batch_size > 0, "Predictor: batch_size must be 1 or more, got ", options.batch_size, ".");
  TORCH_CHECK(options.batch_tokens > 0, "Predictor: batch_tokens must be 1 or more, got ", options.batch_tokens, ".");
  TORCH_CHECK(!options.int8 || (options.dtype == torch::kFloat && options.device.is_cpu()),
              "Predictor: int8 needs dtype fp32 and the CPU, got ", options.dtype, " on ", options.device, ".");
  TORCH_CHECK(options.dtype == torch::kFloat || options.dtype == torch::kBFloat16 || options.dtype == torch::kHalf,
              "Predictor: dtype must be fp32, bf16 or fp16, got ", options.dtype, ".");
}

/// The weights of `pretrained`, with zeros for the heads of an encoder alone: no answer uses these.
StateDict complete_weights(const Pretrained& pretrained, const BertForPreTrainingImpl& model) {
  if (pretrained.model.masked_token_head) return pretrained.weights;
  StateDict weights;
  for (const auto& item : pretrained.weights) {  // the head of a task stays out
    if (pretrained.model.task.empty() || item.key().starts_with("bert.")) weights.insert(item.key(), item.value());
  }
  for (const auto& parameter : model.named_parameters()) {
    if (parameter.key().starts_with("cls.") && !weights.contains(parameter.key()))
      weights.insert(parameter.key(), torch::zeros_like(parameter.value()));
  }
  return weights;
}

/// In evaluation mode, where forward changes nothing. The encoder may share the memory of `pretrained`: BertInference copies
/// it, layer by layer, so that a second copy of the weights never exists.
std::shared_ptr<BertForPreTrainingImpl> model_of(const Pretrained& pretrained, const PredictorOptions& options) {
  check(pretrained, options);
  const NoInitWeights no_init;
  std::shared_ptr<BertForPreTrainingImpl> model;
  with_data_errors(pretrained.name + ": the weights are not those of a BertForPreTraining of this configuration", [&] {
    model = std::make_shared<BertForPreTrainingImpl>(pretrained.model.config, has_pairs(pretrained.model.objective));
    load_state_dict(*model, complete_weights(pretrained, *model), /*strict=*/true, LoadMode::kShare);
    for (torch::Tensor& parameter : model->cls->parameters()) parameter.set_data(parameter.detach().clone());
  });
  if (!options.is_fp32_on_cpu()) model->to(options.device, options.dtype);
  model->eval();
  return model;
}

}  // namespace

struct Predictor::Impl {
  const PredictorOptions options;
  const std::shared_ptr<const Tokenizer> tokenizer;
  const bool sentencepiece;
  const bool fills_masks;  // the checkpoint has a masked-token head
  const int64_t longest;   // tokens of a text at most
  const bool cut_at_begin;
  const std::string name;
  const std::shared_ptr<BertPreTrainingHeadsImpl> heads;
  const BertInference encoder;
  const SentenceHead head;

  /// Frees the model's weights, of which `encoder` and `heads` have what they need.
  Impl(const Pretrained& pretrained, const PredictorOptions& given,
       const std::shared_ptr<BertForPreTrainingImpl>& model)
      : options(given),
        tokenizer(pretrained.tokenizer),
        sentencepiece(dynamic_cast<const SentencePieceTokenizer*>(tokenizer.get()) != nullptr),
        fills_masks(pretrained.model.masked_token_head),
        longest(most_tokens(pretrained.model)),
        cut_at_begin(pretrained.model.cut_at_begin),
        name(pretrained.name),
        heads(model->cls.ptr()),
        encoder(*model->bert, given.int8 ? ops::Products::kInt8 : ops::Products::kOfDtype),
        head(pretrained.model.sentence.value_or(SentenceEncoder()), pretrained.sentence_weights, given.device) {}

  /// Throws TextError for the first text that `task` has no answer for.
  [[nodiscard]] std::vector<EncodedText> encode_all(Task task, const std::vector<std::string>& texts,
                                                    const AnswerOptions& wishes = {}) const {
    std::vector<EncodedText> all;
    for (const std::string& text : texts) all.push_back(encode(task, text, wishes, all.size()));
    return all;
  }

  [[nodiscard]] EncodedText encode(Task task, std::string text, const AnswerOptions& wishes, size_t index) const {
    if (task == Task::kFillMask && text.find(kMaskWord) == std::string::npos)
      throw TextError(index, "no [MASK] in the text", text);
    return fitted(task,
                  task == Task::kEmbedding ? encode_with_prompt(std::move(text), wishes, index)
                                           : encode_text(*tokenizer, std::move(text)),
                  wishes, index);
  }

  /// The text with `wishes`, cut or refused if it is too long.
  [[nodiscard]] EncodedText fitted(Task task, EncodedText encoded, const AnswerOptions& wishes, size_t index) const {
    encoded.options = wishes;
    if (std::ssize(encoded.ids) <= longest) return encoded;
    const std::string tokens =
        "text of " + std::to_string(encoded.ids.size()) + " tokens: the model takes at most " + std::to_string(longest);
    const LongTexts usual = task == Task::kEmbedding ? LongTexts::kTruncate : LongTexts::kRefuse;
    const LongTexts treatment = wishes.long_texts.value_or(options.long_texts.value_or(usual));
    if (treatment == LongTexts::kRefuse) throw TextError(index, tokens + "; shorten it", encoded.text);
    if (treatment == LongTexts::kWindows && task != Task::kFillMask && !wishes.of_tokens) return encoded;
    if (!cut_text(encoded, longest, wishes.cut_at_begin.value_or(cut_at_begin)))
      throw TextError(index, tokens + ", which leave out a [MASK]", encoded.text);
    return encoded;
  }

  /// The prompt and the text as one. Throws TextError for a name of a prompt that the model has not.
  [[nodiscard]] EncodedText encode_with_prompt(std::string text, const AnswerOptions& wishes, size_t index) const {
    const SentenceEncoder& sentence = head.encoder();
    const std::string wanted = wishes.prompt_name.value_or(sentence.default_prompt);
    const auto found = sentence.prompts.find(wanted);
    if (!wishes.prompt && !wanted.empty() && found == sentence.prompts.end()) {
      std::string known;
      for (const auto& [each, prompt] : sentence.prompts) known += (known.empty() ? "" : ", ") + each;
      throw TextError(index, "the model has no prompt " + wanted + "; it has " + (known.empty() ? "none" : known));
    }
    const std::string prompt = wishes.prompt ? *wishes.prompt : wanted.empty() ? "" : found->second;
    EncodedText encoded = encode_text(*tokenizer, prompt + text);
    encoded.text = std::move(text);
    if (!prompt.empty() && !sentence.include_prompt)
      encoded.prompt_tokens = std::ssize(encode_text(*tokenizer, prompt).ids) - 1;  // without its [SEP]
    return encoded;
  }

  [[nodiscard]] bool any_long(std::span<const EncodedText> texts) const {
    return std::ranges::any_of(texts, [&](const EncodedText& text) { return std::ssize(text.ids) > longest; });
  }
  [[nodiscard]] WindowSizes windows() const { return {longest, options.stride.value_or(TaskDataConfig().doc_stride)}; }

  /// Appends `text`, or the parts of a text that is too long, each between [CLS] and [SEP] and of nearly one length.
  void append_windows(const EncodedText& text, std::vector<EncodedText>& windows) const {
    const int64_t tokens = std::ssize(text.ids) - 2, most = longest - 2;
    if (tokens <= most) return windows.push_back(text);
    const int64_t parts = (tokens + most - 1) / most;
    for (int64_t part = 0; part < parts; ++part) {
      const auto begin = text.ids.begin() + 1 + part * tokens / parts;
      const auto end = text.ids.begin() + 1 + (part + 1) * tokens / parts;
      EncodedText& window = windows.emplace_back();
      window.ids.push_back(text.ids.front());
      window.ids.insert(window.ids.end(), begin, end);
      window.ids.push_back(text.ids.back());
      if (part == 0) window.prompt_tokens = text.prompt_tokens;
    }
  }

  /// Calls answer(group, batch, output, hidden states) for each group of texts. The hidden states of all layers are
  /// computed if `all_layers` is true.
  template <class Answer>
  void for_each_group(std::span<const EncodedText> texts, bool all_layers, const Answer& answer) const {
    const torch::NoGradGuard no_grad;
    for (const TextGroup& group : groups_of(texts, options.batch_size, options.batch_tokens)) {
      const PackedBatch batch = packed(texts, group, options.device);
      std::vector<torch::Tensor> hidden_states;
      const BertModelOutput output = encoder.forward(batch, all_layers ? &hidden_states : nullptr);
      answer(group, batch, output, hidden_states);
    }
  }

  /// The text of a token without the mark of SentencePiece for the space before it.
  [[nodiscard]] std::string word(int64_t token) const {
    const std::string& text = tokenizer->vocabulary().token(token);
    return sentencepiece && text.starts_with(kSpaceMark) ? text.substr(kSpaceMark.size()) : text;
  }

  static int64_t fillers_of(const AnswerOptions& wish) { return wish.top_k.value_or(kDefaultFillers); }

  /// The wanted tokens of one masked position, best first. `probabilities`: [V].
  [[nodiscard]] std::vector<Filler> targets_of(const torch::Tensor& probabilities, const AnswerOptions& wish) const {
    const torch::Tensor places =
        torch::tensor(std::vector<int64_t>(wish.targets.begin(), wish.targets.end())).to(probabilities.device());
    const auto [best, ids] =
        probabilities.index_select(0, places).topk(std::min<int64_t>(fillers_of(wish), std::ssize(wish.targets)));
    const torch::Tensor scores = best.to(torch::kCPU), tokens = places.index_select(0, ids).to(torch::kCPU);
    const auto score = scores.accessor<float, 1>();
    const auto token = tokens.accessor<int64_t, 1>();
    std::vector<Filler> list;
    for (int64_t i = 0; i < scores.size(0); ++i) list.push_back({score[i], token[i], word(token[i]), /*sequence=*/{}});
    return list;
  }

  /// The best tokens of each masked position, best first, without their sequences. `wishes`: of each position.
  [[nodiscard]] std::vector<std::vector<Filler>> fill(const PackedBatch& batch, const torch::Tensor& hidden_states,
                                                      const std::vector<const AnswerOptions*>& wishes) const {
    std::vector<std::vector<Filler>> fillers;
    for (const torch::Tensor& rows : batch.masked_positions.split(kMaskedRows)) {
      // The vocabulary may be smaller than the table of the model; the other rows are padding.
      const torch::Tensor logits =
          heads->predictions->forward(hidden_states.index_select(0, rows), encoder.word_embeddings())
              .narrow(-1, 0, tokenizer->vocabulary().size());
      const torch::Tensor probabilities = logits.to(torch::kFloat).softmax(-1);
      const std::span<const AnswerOptions* const> of_rows =
          std::span(wishes).subspan(fillers.size(), static_cast<size_t>(probabilities.size(0)));
      int64_t most = 1;  // of all rows, so that one search and two copies from the device serve them
      for (const AnswerOptions* wish : of_rows) most = std::max(most, fillers_of(*wish));
      const auto [best, ids] = probabilities.topk(std::min(most, probabilities.size(-1)), -1);
      const torch::Tensor scores = best.to(torch::kCPU), tokens = ids.to(torch::kCPU);
      const auto score = scores.accessor<float, 2>();
      const auto token = tokens.accessor<int64_t, 2>();
      for (int64_t row = 0; row < scores.size(0); ++row) {
        const AnswerOptions& wish = *of_rows[static_cast<size_t>(row)];
        std::vector<Filler>& list = fillers.emplace_back();
        if (!wish.targets.empty()) {
          list = targets_of(probabilities[row], wish);
          continue;
        }
        for (int64_t i = 0; i < std::min(fillers_of(wish), scores.size(1)); ++i)
          list.push_back({score[row][i], token[row][i], word(token[row][i]), /*sequence=*/{}});
      }
    }
    return fillers;
  }

  [[nodiscard]] std::vector<std::string> tokens_of(const EncodedText& text) const {
    std::vector<std::string> tokens;
    for (const int32_t id : text.ids) tokens.push_back(tokenizer->vocabulary().token(id));
    return tokens;
  }
};

namespace {

torch::Tensor fp32_copy(const torch::Tensor& x) { return x.to(torch::kFloat, /*non_blocking=*/false, /*copy=*/true); }

/// The numbers of the hidden states, counted from 0. Throws c10::Error.
std::vector<int64_t> checked_layers(const EmbeddingOptions& options, const BertConfig& config) {
  const int64_t last = config.num_hidden_layers;
  TORCH_CHECK(!options.layers.empty(), "embed: layers must have one number at least.");
  TORCH_CHECK(options.pooling != Pooling::kPooler || options.layers == std::vector<int64_t>{-1},
              "embed: the pooler reads the last layer; leave layers at {-1}.");
  std::vector<int64_t> layers;
  for (const int64_t layer : options.layers) {
    TORCH_CHECK(layer >= -last - 1 && layer <= last, "embed: layer must be from ", -last - 1, " to ", last,
                ", the hidden states of ", last, " layers and the embeddings; got ", layer, ".");
    layers.push_back(layer < 0 ? layer + last + 1 : layer);
  }
  return layers;
}

/// `states` [S, H] of one text as `pooling` says: [H] or [S, H].
torch::Tensor pooled(const torch::Tensor& states, Pooling pooling) {
  if (pooling == Pooling::kCls) return states[0].clone();
  return pooling == Pooling::kMean ? states.mean(0) : states;
}

/// Puts the fillers into the text: the next `fillers` are those of the masks of `text`, in their order.
MaskFilling filling_of(const std::string& text, std::vector<std::vector<Filler>>::iterator& fillers) {
  MaskFilling result{.text = text, .masks = {}};
  for (size_t place = text.find(kMaskWord); place != std::string::npos;
       place = text.find(kMaskWord, place + kMaskWord.size())) {
    for (Filler& filler : *fillers) {
      filler.sequence = text;
      filler.sequence.replace(place, kMaskWord.size(), filler.token_str);
    }
    result.masks.push_back(std::move(*fillers++));
  }
  return result;
}

}  // namespace

Predictor::Predictor(const std::filesystem::path& path, const PredictorOptions& options)
    : Predictor(load_pretrained(path), options) {}

Predictor::Predictor(const Pretrained& pretrained, const PredictorOptions& options)
    : impl_(std::make_unique<const Impl>(pretrained, options, model_of(pretrained, options))) {
  expect_whole(pretrained.weights);
}

Predictor::~Predictor() = default;
Predictor::Predictor(Predictor&&) noexcept = default;
Predictor& Predictor::operator=(Predictor&&) noexcept = default;

const BertConfig& Predictor::config() const { return impl_->encoder.config(); }

const Tokenizer& Predictor::tokenizer() const { return *impl_->tokenizer; }

EncodedText Predictor::encode(Task task, std::string text, const AnswerOptions& options) const {
  return impl_->encode(task, std::move(text), options, /*index=*/0);
}

EncodedText Predictor::encode(Task task, std::vector<int32_t> ids, const AnswerOptions& options) const {
  return impl_->fitted(task, encode_ids(tokenizer().vocabulary(), std::move(ids)), options, /*index=*/0);
}

std::vector<MaskFilling> Predictor::fill_mask(std::span<const EncodedText> texts) const {
  for (const EncodedText& text : texts)
    TORCH_CHECK(text.options.top_k.value_or(1) > 0, "fill_mask: top_k must be 1 or more, got ", *text.options.top_k,
                ".");
  if (!impl_->fills_masks) {
    throw DataError(impl_->name +
                    ": is an encoder without cls.predictions, the head that fills masks; it has features only");
  }
  std::vector<MaskFilling> fillings(texts.size());
  impl_->for_each_group(
      texts, /*all_layers=*/false,
      [&](const TextGroup& group, const PackedBatch& batch, const BertModelOutput& output, const auto&) {
        std::vector<const AnswerOptions*> wishes;
        for (const size_t index : group) wishes.insert(wishes.end(), texts[index].masks.size(), &texts[index].options);
        std::vector<std::vector<Filler>> fillers = impl_->fill(batch, output.last_hidden_state, wishes);
        auto next = fillers.begin();
        for (const size_t index : group) fillings[index] = filling_of(texts[index].text, next);
      });
  return fillings;
}

std::vector<Features> Predictor::features(std::span<const EncodedText> texts) const {
  if (impl_->any_long(texts)) return features_of_windows(*this, texts, impl_->windows());
  std::vector<Features> all(texts.size());
  impl_->for_each_group(texts, /*all_layers=*/false,
                        [&](const TextGroup& group, const PackedBatch&, const BertModelOutput& output, const auto&) {
                          int64_t row = 0;
                          for (size_t i = 0; i < group.size(); ++i) {
                            const EncodedText& text = texts[group[i]];
                            const int64_t length = std::ssize(text.ids);
                            Features& features = all[group[i]];
                            features.tokens = impl_->tokens_of(text);
                            // Copies: a text that is kept does not keep its batch.
                            features.last_hidden_state = fp32_copy(output.last_hidden_state.narrow(0, row, length));
                            if (output.pooler_output.defined()) {
                              features.pooler_output = fp32_copy(output.pooler_output[static_cast<int64_t>(i)]);
                            }
                            row += length;
                          }
                        });
  return all;
}

std::vector<torch::Tensor> Predictor::embed(std::span<const EncodedText> texts, const EmbeddingOptions& options) const {
  if (impl_->any_long(texts)) return embed_windows(*this, texts, impl_->windows(), options);
  const std::vector<int64_t> layers = checked_layers(options, config());
  const bool pooler = options.pooling == Pooling::kPooler,
             last = layers == std::vector<int64_t>{config().num_hidden_layers};
  std::vector<torch::Tensor> all(texts.size());
  impl_->for_each_group(
      texts, /*all_layers=*/!last,
      [&](const TextGroup& group, const PackedBatch& batch, const BertModelOutput& output,
          const std::vector<torch::Tensor>& hidden_states) {
        TORCH_CHECK(!pooler || output.pooler_output.defined(),
                    "embed: the model was trained without sentence pairs and has no pooler; use another pooling.");
        const torch::Tensor ends = batch.cu_seqlens.to(torch::kCPU);
        const auto end = ends.accessor<int32_t, 1>();
        for (size_t i = 0; i < group.size(); ++i) {
          const auto place = static_cast<int64_t>(i);
          if (pooler) {
            all[group[i]] = fp32_copy(output.pooler_output[place]).to(torch::kCPU);
            continue;
          }
          std::vector<torch::Tensor> of_layers;
          for (const int64_t layer : layers) {
            const torch::Tensor& states = last ? output.last_hidden_state : hidden_states[static_cast<size_t>(layer)];
            of_layers.push_back(
                pooled(fp32_copy(states.narrow(0, end[place], end[place + 1] - end[place])), options.pooling)
                    .to(torch::kCPU));
          }
          all[group[i]] = of_layers.size() == 1 ? of_layers.front() : torch::stack(of_layers);
        }
      });
  return all;
}

std::vector<torch::Tensor> Predictor::sentence_embeddings(std::span<const EncodedText> texts) const {
  if (texts.empty()) return {};
  std::vector<EncodedText> windows;
  std::vector<size_t> ends;  // of the windows of each text
  for (const EncodedText& text : texts) {
    impl_->append_windows(text, windows);
    ends.push_back(windows.size());
  }
  std::vector<torch::Tensor> pooled(windows.size());
  impl_->for_each_group(windows, /*all_layers=*/false,
                        [&](const TextGroup& group, const PackedBatch&, const BertModelOutput& output, const auto&) {
                          const torch::Tensor states = output.last_hidden_state.to(torch::kFloat);
                          int64_t row = 0;
                          for (const size_t index : group) {
                            const int64_t length = std::ssize(windows[index].ids);
                            pooled[index] =
                                impl_->head.pool(states.narrow(0, row, length), windows[index].prompt_tokens).clone();
                            row += length;
                          }
                        });
  std::vector<torch::Tensor> rows;
  for (size_t begin = 0; const size_t end : ends) {
    std::vector<int64_t> tokens;
    for (size_t i = begin; i < end; ++i) tokens.push_back(std::ssize(windows[i].ids));
    const std::vector<torch::Tensor> own(pooled.begin() + static_cast<std::ptrdiff_t>(begin),
                                         pooled.begin() + static_cast<std::ptrdiff_t>(end));
    rows.push_back(own.size() == 1 ? own.front() : impl_->head.join(torch::stack(own), tokens));
    begin = end;
  }
  std::vector<torch::Tensor> vectors = impl_->head.finish(torch::stack(rows)).to(torch::kCPU).unbind();
  for (size_t i = 0; i < texts.size(); ++i) {
    const AnswerOptions& options = texts[i].options;
    TORCH_CHECK(options.dimensions >= 0 && options.dimensions <= vectors[i].size(0),
                "sentence_embeddings: dimensions must be 1 to ", vectors[i].size(0), ", got ", options.dimensions, ".");
    if (options.dimensions > 0) vectors[i] = vectors[i].narrow(0, 0, options.dimensions);
    if (options.normalize.value_or(false)) vectors[i] = normalized(vectors[i]);
  }
  return vectors;
}

torch::Tensor Predictor::encode(const std::vector<std::string>& texts, const AnswerOptions& options) const {
  TORCH_CHECK(!texts.empty(), "encode: want one text or more.");
  return torch::stack(sentence_embeddings(impl_->encode_all(Task::kEmbedding, texts, options)));
}

const SentenceEncoder& Predictor::sentence_encoder() const { return impl_->head.encoder(); }

std::vector<std::string> Predictor::tokens(const EncodedText& text) const { return impl_->tokens_of(text); }

std::vector<MaskFilling> Predictor::fill_mask(const std::vector<std::string>& texts, int64_t top_k) const {
  return fill_mask(impl_->encode_all(Task::kFillMask, texts, {.top_k = top_k}));
}

MaskFilling Predictor::fill_mask(const std::string& text, int64_t top_k) const {
  return std::move(fill_mask(std::vector<std::string>{text}, top_k).front());
}

std::vector<Features> Predictor::features(const std::vector<std::string>& texts) const {
  return features(impl_->encode_all(Task::kFeatures, texts));
}

Features Predictor::features(const std::string& text) const {
  return std::move(features(std::vector<std::string>{text}).front());
}

std::vector<torch::Tensor> Predictor::embed(const std::vector<std::string>& texts,
                                            const EmbeddingOptions& options) const {
  return embed(impl_->encode_all(Task::kFeatures, texts), options);
}

}  // namespace bert
