#include "app/serve/predictor_model.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "app/inference/answer_json.h"
#include "app/system/torch_errors.h"

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

/// A part of LibTorch's threads for each thread, and the tokens of a text.
class TokenizingModel : public Model {
 public:
  explicit TokenizingModel(int64_t workers)
      : threads_(static_cast<int>(std::max<int64_t>(1, at::get_num_threads() / workers))) {}

  void enter_thread() const override { at::set_num_threads(threads_); }

  [[nodiscard]] TextTokens tokenize(const std::string& text) const override {
    TextTokens result;
    for (const int32_t id : encode_text(tokenizer(), text).ids) {
      result.ids.push_back(id);
      result.tokens.push_back(tokenizer().vocabulary().token(id));
    }
    return result;
  }

 protected:
  [[nodiscard]] virtual const Tokenizer& tokenizer() const = 0;

 private:
  const int threads_;
};

class PredictorModel final : public TokenizingModel {
 public:
  PredictorModel(Predictor predictor, Task task, int64_t workers)
      : TokenizingModel(workers), predictor_(std::move(predictor)), task_(task) {}
  [[nodiscard]] InputForm form() const override { return InputForm::kText; }
  [[nodiscard]] int64_t default_top_k() const override { return task_ == Task::kFillMask ? 5 : 0; }

  [[nodiscard]] std::shared_ptr<const ModelText> encode(const ModelInput& input, int64_t top_k) const override {
    constexpr int64_t kBytesOfFiller = 120;  // as JSON, without the sequence
    constexpr int64_t kBytesOfNumber = 22;   // as JSON
    auto text = std::make_shared<TextOf<EncodedText>>(predictor_.encode(task_, input.text));
    text->tokens = std::ssize(text->encoded.ids);
    text->answer_bytes = task_ == Task::kFillMask
                             ? std::ssize(text->encoded.masks) * top_k * (std::ssize(input.text) + kBytesOfFiller)
                             : text->tokens * predictor_.config().hidden_size * kBytesOfNumber;
    return text;
  }

  [[nodiscard]] std::vector<std::shared_ptr<const Answer>> answer(const ModelTexts& texts,
                                                                  int64_t top_k) const override {
    const std::vector<EncodedText> encoded = encoded_of<EncodedText>(texts);
    std::vector<std::shared_ptr<const Answer>> answers;
    with_errors_of_models([&] {
      if (task_ == Task::kFillMask) {
        for (MaskFilling& filling : predictor_.fill_mask(encoded, top_k))
          answers.push_back(std::make_shared<MaskAnswer>(std::move(filling)));
        return;
      }
      for (Features& features : predictor_.features(encoded))
        answers.push_back(std::make_shared<FeaturesAnswer>(encoded[answers.size()].text, std::move(features)));
    });
    return answers;
  }

 private:
  [[nodiscard]] const Tokenizer& tokenizer() const override { return predictor_.tokenizer(); }

  const Predictor predictor_;
  const Task task_;
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

/// As the task text-classification; it calls the number of a regression LABEL_0.
nlohmann::ordered_json pipeline_json(const std::vector<LabelScore>& best) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const LabelScore& each : best)
    list.push_back({{"label", each.label.empty() ? "LABEL_0" : each.label}, {"score", each.score}});
  return list;
}

/// As the pipeline token-classification, which leaves out the label O; of words, as with aggregation_strategy "first".
nlohmann::ordered_json pipeline_json(const std::vector<WordLabel>& words) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const WordLabel& word : words) {
    if (word.label == "O") continue;
    list.push_back(
        {{"entity", word.label}, {"score", word.score}, {"word", word.word}, {"start", word.begin}, {"end", word.end}});
  }
  return list;
}

/// As the pipeline question-answering: an object, or a list for several answers.
nlohmann::ordered_json pipeline_json(const std::vector<ExtractedAnswer>& answers) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const ExtractedAnswer& each : answers)
    list.push_back({{"score", each.score}, {"start", each.begin}, {"end", each.end}, {"answer", each.answer}});
  return list.size() == 1 ? list[0] : list;
}

class FinetunedModel final : public TokenizingModel {
 public:
  FinetunedModel(TaskPredictor predictor, int64_t workers)
      : TokenizingModel(workers), predictor_(std::move(predictor)) {}
  [[nodiscard]] int64_t default_top_k() const override {
    return predictor_.kind() == TaskKind::kTokenClassification ? 0 : 1;
  }

  [[nodiscard]] int64_t hugging_face_top_k() const override {
    constexpr int64_t kAllLabels = 1000;  // the most that a question may want
    return classifies() ? kAllLabels : default_top_k();
  }
  [[nodiscard]] bool hugging_face_lists_one() const override { return classifies(); }

  [[nodiscard]] InputForm form() const override {
    if (predictor_.kind() == TaskKind::kQuestionAnswering) return InputForm::kQuestionAndContext;
    return predictor_.kind() == TaskKind::kTokenClassification ? InputForm::kText : InputForm::kTextOrPair;
  }

  [[nodiscard]] std::shared_ptr<const ModelText> encode(const ModelInput& input, int64_t top_k) const override {
    constexpr int64_t kBytesOfToken = 120;   // as JSON: a word, its label and its score
    constexpr int64_t kBytesOfAnswer = 400;  // as JSON: an answer of some 30 tokens, its score and its place
    auto text = std::make_shared<TextOf<EncodedInput>>(predictor_.encode({.text = input.text, .second = input.second}));
    text->tokens = text->encoded.tokens();
    text->answer_bytes =
        (predictor_.kind() == TaskKind::kQuestionAnswering ? top_k * kBytesOfAnswer : text->tokens * kBytesOfToken) +
        std::ssize(input.text);
    return text;
  }

  [[nodiscard]] std::vector<std::shared_ptr<const Answer>> answer(const ModelTexts& texts,
                                                                  int64_t top_k) const override {
    const std::vector<EncodedInput> asked = encoded_of<EncodedInput>(texts);
    std::vector<std::shared_ptr<const Answer>> answers;
    with_errors_of_models([&] {
      predictor_.visit_answers(asked, top_k, [&](size_t i, const auto& found) {
        answers.push_back(std::make_shared<TaskAnswer>(to_json(asked[i].input, found, top_k), pipeline_json(found)));
      });
    });
    return answers;
  }

 private:
  [[nodiscard]] const Tokenizer& tokenizer() const override { return predictor_.tokenizer(); }
  [[nodiscard]] bool classifies() const { return form() == InputForm::kTextOrPair; }

  const TaskPredictor predictor_;
};

}  // namespace

std::unique_ptr<Model> make_predictor_model(Predictor predictor, Task task, int64_t workers) {
  return std::make_unique<PredictorModel>(std::move(predictor), task, workers);
}

std::unique_ptr<Model> make_task_model(TaskPredictor predictor, int64_t workers) {
  return std::make_unique<FinetunedModel>(std::move(predictor), workers);
}

}  // namespace bert
