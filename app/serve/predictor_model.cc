#include "app/serve/predictor_model.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "app/inference/answer_json.h"
#include "app/system/torch_errors.h"
#include "data/tasks/entity_markers.h"

namespace bert {
namespace {

/// Turns LibTorch's errors into ModelLost or std::runtime_error.
template <class Work>
auto with_errors_of_models(const Work& work) {
  try {
    return work();
  } catch (const c10::Error& error) {
    if (is_device_failure(error)) throw ModelLost(plain_message(error));
    throw std::runtime_error(plain_message(error));
  }
}

/// An EncodedText or EncodedInput.
template <class Encoded>
struct TextOf final : ModelText {
  explicit TextOf(Encoded text) : encoded(std::move(text)) {}
  Encoded encoded;
};

template <class Encoded>
std::vector<Encoded> encoded_of(const ModelTexts& texts) {
  std::vector<Encoded> all;
  for (const auto& text : texts) all.push_back(dynamic_cast<const TextOf<Encoded>&>(*text).encoded);
  return all;
}

class MaskAnswer final : public Answer {
 public:
  explicit MaskAnswer(MaskFilling filling) : filling_(std::move(filling)) {}
  [[nodiscard]] nlohmann::ordered_json as_predict() const override { return to_json(filling_); }
  [[nodiscard]] nlohmann::ordered_json as_hugging_face() const override {
    return std::move(to_json(filling_).at("fillers"));
  }

 private:
  MaskFilling filling_;
};

class FeaturesAnswer final : public Answer {
 public:
  FeaturesAnswer(std::string text, Features features) : text_(std::move(text)), features_(std::move(features)) {}
  [[nodiscard]] nlohmann::ordered_json as_predict() const override { return to_json(text_, features_); }
  [[nodiscard]] nlohmann::ordered_json as_hugging_face() const override {  // [1][S][H]
    nlohmann::ordered_json batch = nlohmann::ordered_json::array();
    batch.push_back(std::move(to_json(text_, features_).at("last_hidden_state")));
    return batch;
  }

 private:
  std::string text_;
  Features features_;
};

std::span<const float> floats_of(const torch::Tensor& tensor) {
  return {tensor.const_data_ptr<float>(), static_cast<size_t>(tensor.numel())};
}

/// The vector [D] of a text, or those of its tokens, [S, D].
class EmbeddingAnswer final : public Answer {
 public:
  EmbeddingAnswer(std::string text, const torch::Tensor& vector)
      : text_(std::move(text)), vector_(vector.to(torch::kCPU, torch::kFloat).contiguous()) {}
  [[nodiscard]] std::span<const float> numbers() const override { return floats_of(vector_); }
  [[nodiscard]] int64_t vectors() const override { return vector_.dim() == 1 ? 1 : vector_.size(0); }
  [[nodiscard]] nlohmann::ordered_json as_predict() const override { return embedding_json(text_, vector_); }
  [[nodiscard]] nlohmann::ordered_json as_hugging_face() const override {  // [D]
    return std::move(embedding_json(text_, vector_).at("embedding"));
  }

 private:
  std::string text_;
  const torch::Tensor vector_;
};

/// An equal part of LibTorch's threads for each batch, and the tokens of a text.
class TokenizingModel : public Model {
 public:
  explicit TokenizingModel(ModelFacts facts) : threads_(at::get_num_threads()), facts_(std::move(facts)) {}

  [[nodiscard]] ModelFacts facts() const override { return facts_; }

  void share_processor(int64_t batches) const override {
    at::set_num_threads(static_cast<int>(std::max<int64_t>(1, threads_ / batches)));
  }

  [[nodiscard]] std::optional<int32_t> find_token(const std::string& token) const override {
    const int32_t id = tokenizer().vocabulary().find(token);
    return id < 0 ? std::nullopt : std::optional<int32_t>(id);
  }

  [[nodiscard]] std::optional<ModelInput> example() const override {
    ModelInput input{.text = std::string(kMaskWord)};
    if (form() == InputForm::kMarkedText) input.text = marked_text("a b", {{0, 1}, {2, 3}});
    if (form() == InputForm::kPair || form() == InputForm::kQuestionAndContext) input.second = input.text;
    return input;
  }

 protected:
  [[nodiscard]] virtual const Tokenizer& tokenizer() const = 0;
  void append_tokens(const std::vector<int32_t>& ids, TextTokens& tokens) const {
    for (const int32_t id : ids) {
      tokens.ids.push_back(id);
      tokens.tokens.push_back(tokenizer().vocabulary().token(id));
    }
  }
  /// The tokens that `read` adds, or all tokens of the text if it is too long and is refused.
  template <class Read>
  [[nodiscard]] TextTokens tokens_read(const std::string& text, const Read& read) const {
    try {
      TextTokens tokens;
      read(tokens);
      return tokens;
    } catch (const TextError&) {
      return all_tokens(text);
    }
  }
  /// All tokens of a text, of any length.
  [[nodiscard]] TextTokens all_tokens(const std::string& text) const {
    TextTokens tokens;
    append_tokens(encode_text(tokenizer(), text).ids, tokens);
    return tokens;
  }

 private:
  const int64_t threads_;
  const ModelFacts facts_;
};

class PredictorModel final : public TokenizingModel {
 public:
  PredictorModel(std::shared_ptr<const Predictor> predictor, Task task, ModelFacts facts)
      : TokenizingModel(std::move(facts)),
        predictor_(std::move(predictor)),
        task_(task),
        size_(vector_size(predictor_->sentence_encoder(), predictor_->config().hidden_size)) {}
  [[nodiscard]] InputForm form() const override { return InputForm::kText; }
  [[nodiscard]] std::vector<std::string> parameters() const override {
    if (task_ == Task::kEmbedding) return {"normalize", "dimensions", "prompt_name", "truncate"};
    return task_ == Task::kFillMask ? std::vector<std::string>{"top_k", "targets", "truncate"}
                                    : std::vector<std::string>{"truncate"};
  }

  [[nodiscard]] TextTokens tokenize(const ModelInput& input) const override {
    return tokens_read(input.text, [&](TextTokens& tokens) {
      const Task encoding = task_ == Task::kFillMask ? Task::kFeatures : task_;  // without a [MASK], too
      const EncodedText encoded = predictor_->encode(encoding, input.text);
      append_tokens(encoded.ids, tokens);
      tokens.truncated = encoded.cut;
    });
  }

  [[nodiscard]] std::shared_ptr<const ModelText> encode(const ModelInput& input,
                                                        const AnswerOptions& options) const override {
    constexpr int64_t kBytesOfFiller = 120;  // as JSON, without the sequence
    constexpr int64_t kBytesOfNumber = 22;   // as JSON
    auto text =
        std::make_shared<TextOf<EncodedText>>(input.ids.empty() ? predictor_->encode(task_, input.text, options)
                                                                : predictor_->encode(task_, input.ids, options));
    text->tokens = std::ssize(text->encoded.ids);
    if (task_ == Task::kEmbedding) {
      text->answer_bytes = size_ * kBytesOfNumber * (options.of_tokens ? text->tokens : 1);
      if (options.dimensions > size_)
        throw TextError(0, "dimensions: the model's vectors have " + std::to_string(size_));
      return text;
    }
    text->answer_bytes = task_ == Task::kFillMask
                             ? std::ssize(text->encoded.masks) * options.top_k.value_or(kDefaultFillers) *
                                   (std::ssize(input.text) + kBytesOfFiller)
                             : text->tokens * predictor_->config().hidden_size * kBytesOfNumber;
    return text;
  }

  [[nodiscard]] std::vector<std::shared_ptr<const Answer>> answer(const ModelTexts& texts) const override {
    const std::vector<EncodedText> encoded = encoded_of<EncodedText>(texts);
    std::vector<std::shared_ptr<const Answer>> answers;
    with_errors_of_models([&] {
      if (task_ == Task::kFillMask) {
        for (MaskFilling& filling : predictor_->fill_mask(encoded))
          answers.push_back(std::make_shared<MaskAnswer>(std::move(filling)));
        return;
      }
      if (task_ == Task::kEmbedding) {
        answers = embeddings(encoded);
        return;
      }
      for (Features& features : predictor_->features(encoded))
        answers.push_back(std::make_shared<FeaturesAnswer>(encoded[answers.size()].text, std::move(features)));
    });
    return answers;
  }

 private:
  [[nodiscard]] const Tokenizer& tokenizer() const override { return predictor_->tokenizer(); }

  /// The vectors of texts, or of their tokens where these are wanted.
  [[nodiscard]] std::vector<std::shared_ptr<const Answer>> embeddings(const std::vector<EncodedText>& texts) const {
    std::vector<std::shared_ptr<const Answer>> answers(texts.size());
    for (const bool of_tokens : {false, true}) {
      std::vector<size_t> places;
      std::vector<EncodedText> wanted;
      for (size_t i = 0; i < texts.size(); ++i) {
        if (texts[i].options.of_tokens != of_tokens) continue;
        places.push_back(i);
        wanted.push_back(texts[i]);
      }
      const std::vector<torch::Tensor> vectors =
          of_tokens ? predictor_->embed(wanted, {.pooling = Pooling::kNone}) : predictor_->sentence_embeddings(wanted);
      for (size_t i = 0; i < places.size(); ++i)
        answers[places[i]] = std::make_shared<EmbeddingAnswer>(wanted[i].text, vectors[i]);
    }
    return answers;
  }

  const std::shared_ptr<const Predictor> predictor_;
  const Task task_;
  const int64_t size_;  // of a text's vector
};

/// An answer in both forms.
class TaskAnswer final : public Answer {
 public:
  TaskAnswer(nlohmann::ordered_json predict, nlohmann::ordered_json hugging_face)
      : predict_(std::move(predict)), hugging_face_(std::move(hugging_face)) {}
  [[nodiscard]] nlohmann::ordered_json as_predict() const override { return predict_; }
  [[nodiscard]] nlohmann::ordered_json as_hugging_face() const override { return hugging_face_; }

 private:
  nlohmann::ordered_json predict_, hugging_face_;
};

/// The relevance of a passage to a query.
class ScoreAnswer final : public Answer {
 public:
  ScoreAnswer(TaskInput pair, double score) : pair_(std::move(pair)), score_(static_cast<float>(score)) {}
  [[nodiscard]] nlohmann::ordered_json as_predict() const override {
    return {{"text", pair_.text}, {"text_pair", pair_.second}, {"score", score_}};
  }
  [[nodiscard]] nlohmann::ordered_json as_hugging_face() const override {
    return nlohmann::ordered_json::array({{{"label", "LABEL_0"}, {"score", score_}}});
  }
  [[nodiscard]] std::span<const float> numbers() const override { return {&score_, 1}; }

 private:
  const TaskInput pair_;
  const float score_;
};

class FinetunedModel final : public TokenizingModel {
 public:
  FinetunedModel(std::shared_ptr<const TaskPredictor> predictor, bool reranks, ModelFacts facts)
      : TokenizingModel(std::move(facts)), predictor_(std::move(predictor)), reranks_(reranks) {}
  [[nodiscard]] std::vector<std::string> parameters() const override {
    switch (form()) {
      case InputForm::kPair:
        return {"function_to_apply", "truncate"};
      case InputForm::kQuestionAndContext:
        return {"top_k",          "max_answer_len",   "handle_impossible_answer",
                "max_seq_len",    "max_question_len", "doc_stride",
                "align_to_words", "truncate"};
      case InputForm::kTextOrPair:
      case InputForm::kMarkedText:
        return {"top_k", "function_to_apply", "truncate"};
      case InputForm::kText:
        break;
    }
    return {"aggregation_strategy", "ignore_labels", "stride", "truncate"};
  }

  [[nodiscard]] AnswerOptions hugging_face_defaults() const override {
    constexpr int64_t kAllLabels = 1000;  // the most that a question may want
    AnswerOptions options;
    if (classifies()) options.top_k = kAllLabels;
    options.aggregation = Aggregation::kSimple;  // of that API
    return options;
  }
  [[nodiscard]] bool hugging_face_lists_one() const override { return classifies(); }

  [[nodiscard]] InputForm form() const override {
    if (reranks_) return InputForm::kPair;
    if (predictor_->kind() == TaskKind::kQuestionAnswering) return InputForm::kQuestionAndContext;
    if (predictor_->marks_entities()) return InputForm::kMarkedText;
    return predictor_->kind() == TaskKind::kTokenClassification ? InputForm::kText : InputForm::kTextOrPair;
  }

  [[nodiscard]] TextTokens tokenize(const ModelInput& input) const override {
    if (form() == InputForm::kQuestionAndContext) return all_tokens(input.text);  // read in windows
    return tokens_read(input.text, [&](TextTokens& tokens) {
      const EncodedInput encoded = predictor_->encode({.text = input.text, .second = input.second, .pair = reranks_});
      for (const TaskSequence& sequence : encoded.features.sequences) append_tokens(sequence.input_ids, tokens);
      tokens.truncated = encoded.cut;
    });
  }

  [[nodiscard]] std::shared_ptr<const ModelText> encode(const ModelInput& input,
                                                        const AnswerOptions& options) const override {
    constexpr int64_t kBytesOfToken = 150;   // as JSON: a word, its label, its score and its place
    constexpr int64_t kBytesOfAnswer = 400;  // as JSON: an answer of some 30 tokens, its scores and its place
    auto text = std::make_shared<TextOf<EncodedInput>>(
        predictor_->encode({.text = input.text, .second = input.second, .pair = reranks_}, options));
    text->tokens = text->encoded.tokens();
    const int64_t answers = predictor_->kind() == TaskKind::kQuestionAnswering
                                ? options.top_k.value_or(1) * kBytesOfAnswer
                                : text->tokens * kBytesOfToken;
    text->answer_bytes = answers + std::ssize(input.text);
    return text;
  }

  [[nodiscard]] std::vector<std::shared_ptr<const Answer>> answer(const ModelTexts& texts) const override {
    const std::vector<EncodedInput> asked = encoded_of<EncodedInput>(texts);
    std::vector<std::shared_ptr<const Answer>> answers;
    with_errors_of_models([&] {
      if (reranks_) {
        for (const double score : predictor_->scores(asked))
          answers.push_back(std::make_shared<ScoreAnswer>(asked[answers.size()].input, score));
        return;
      }
      predictor_->visit_answers(asked, [&](size_t i, const auto& found) {
        answers.push_back(std::make_shared<TaskAnswer>(to_json(asked[i], found), pipeline_json(asked[i], found)));
      });
    });
    return answers;
  }

 private:
  [[nodiscard]] const Tokenizer& tokenizer() const override { return predictor_->tokenizer(); }
  [[nodiscard]] bool classifies() const {
    return form() != InputForm::kText && form() != InputForm::kQuestionAndContext;
  }

  const std::shared_ptr<const TaskPredictor> predictor_;
  const bool reranks_;
};

}  // namespace

ModelFacts facts_of(const ModelDescription& model, Task task, const PredictorOptions& options) {
  ModelFacts facts;
  facts.dtype = options.int8                        ? "int8"
                : options.dtype == torch::kFloat    ? "float32"
                : options.dtype == torch::kBFloat16 ? "bfloat16"
                                                    : "float16";
  facts.max_tokens = is_finetuned(task) ? text_settings(model).max_seq_length : most_tokens(model);
  facts.labels = model.labels;
  const LongTexts usual = is_finetuned(task)         ? text_settings(model).long_texts
                          : task == Task::kEmbedding ? LongTexts::kTruncate
                                                     : LongTexts::kRefuse;
  facts.truncates = options.long_texts.value_or(usual) != LongTexts::kRefuse;
  if (task != Task::kEmbedding) return facts;
  const SentenceEncoder encoder = model.sentence.value_or(SentenceEncoder());
  facts.dimensions = vector_size(encoder, model.config.hidden_size);
  for (const SentencePooling pooling : encoder.pooling)
    facts.pooling += (facts.pooling.empty() ? "" : "+") + std::string(name_of_value(pooling));
  return facts;
}

std::unique_ptr<Model> make_predictor_model(std::shared_ptr<const Predictor> predictor, Task task, ModelFacts facts) {
  return std::make_unique<PredictorModel>(std::move(predictor), task, std::move(facts));
}

std::unique_ptr<Model> make_task_model(std::shared_ptr<const TaskPredictor> predictor, Task task, ModelFacts facts) {
  return std::make_unique<FinetunedModel>(std::move(predictor), task == Task::kRerank, std::move(facts));
}

}  // namespace bert
