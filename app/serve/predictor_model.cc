#include "app/serve/predictor_model.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "app/inference/answer_json.h"
#include "app/system/torch_errors.h"
#include "data/io/error.h"

namespace bert {
namespace {

constexpr std::string_view kMask = "[MASK]";

/// Turns the predictor's TextError into BadText, and LibTorch's errors into ModelLost or std::runtime_error.
template <class Work>
auto with_errors_of_models(const Work& work) {
  try {
    return work();
  } catch (const TextError& error) {
    throw BadText(error.index, error.what());
  } catch (const c10::Error& error) {
    if (is_device_failure(error)) throw ModelLost(plain_message(error));
    throw std::runtime_error(plain_message(error));
  }
}

std::vector<std::string> texts_of(const std::vector<ModelInput>& inputs) {
  std::vector<std::string> texts;
  for (const ModelInput& input : inputs) texts.push_back(input.text);
  return texts;
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
    const Vocabulary& vocabulary = tokenizer().vocabulary();
    TextTokens result;
    for (const int32_t id : ids_of(text)) {
      result.ids.push_back(id);
      result.tokens.push_back(vocabulary.token(id));
    }
    return result;
  }

 protected:
  [[nodiscard]] virtual const Tokenizer& tokenizer() const = 0;

  /// [CLS] text [SEP], as the predictor has it.
  [[nodiscard]] std::vector<int32_t> ids_of(const std::string& text) const {
    const Vocabulary& vocabulary = tokenizer().vocabulary();
    std::vector<int32_t> ids = {vocabulary.cls_id()};
    for (size_t begin = 0;;) {
      const size_t mask = text.find(kMask, begin);
      tokenizer().encode(std::string_view(text).substr(begin, mask - begin), ids);
      if (mask == std::string::npos) break;
      ids.push_back(vocabulary.mask_id());
      begin = mask + kMask.size();
    }
    ids.push_back(vocabulary.sep_id());
    return ids;
  }

 private:
  const int threads_;
};

class PredictorModel : public TokenizingModel {
 public:
  PredictorModel(Predictor predictor, int64_t workers) : TokenizingModel(workers), predictor_(std::move(predictor)) {}
  [[nodiscard]] InputForm form() const override { return InputForm::kText; }

 protected:
  [[nodiscard]] const Tokenizer& tokenizer() const override { return predictor_.tokenizer(); }

  /// Throws BadText for a text that is too long.
  [[nodiscard]] int64_t tokens_of(const std::string& text) const {
    const auto tokens = static_cast<int64_t>(ids_of(text).size());
    const int64_t most = predictor_.config().max_position_embeddings;
    if (tokens <= most) return tokens;
    throw BadText(0, "text of " + std::to_string(tokens) + " tokens: the model takes at most " + std::to_string(most) +
                         "; shorten it");
  }

  const Predictor predictor_;
};

class MaskModel final : public PredictorModel {
 public:
  using PredictorModel::PredictorModel;
  [[nodiscard]] int64_t default_top_k() const override { return 5; }

  [[nodiscard]] TextCost cost(const ModelInput& input, int64_t top_k) const override {
    constexpr int64_t kBytesOfFiller = 120;  // as JSON, without the sequence
    const std::string& text = input.text;
    int64_t masks = 0;
    for (size_t at = text.find(kMask); at != std::string::npos; at = text.find(kMask, at + kMask.size())) ++masks;
    if (masks == 0) throw BadText(0, "no [MASK] in the text");
    return {.tokens = tokens_of(text),
            .answer_bytes = masks * top_k * (static_cast<int64_t>(text.size()) + kBytesOfFiller)};
  }

  [[nodiscard]] std::vector<std::shared_ptr<const Answer>> answer(const std::vector<ModelInput>& inputs,
                                                                  int64_t top_k) const override {
    const std::vector<std::string> texts = texts_of(inputs);
    std::vector<std::shared_ptr<const Answer>> answers;
    for (MaskFilling& filling : with_errors_of_models([&] { return predictor_.fill_mask(texts, top_k); }))
      answers.push_back(std::make_shared<MaskAnswer>(std::move(filling)));
    return answers;
  }
};

class FeaturesModel final : public PredictorModel {
 public:
  using PredictorModel::PredictorModel;
  [[nodiscard]] int64_t default_top_k() const override { return 0; }

  [[nodiscard]] TextCost cost(const ModelInput& input, int64_t /*top_k*/) const override {
    constexpr int64_t kBytesOfNumber = 22;  // as JSON
    const int64_t tokens = tokens_of(input.text);
    return {.tokens = tokens, .answer_bytes = tokens * predictor_.config().hidden_size * kBytesOfNumber};
  }

  [[nodiscard]] std::vector<std::shared_ptr<const Answer>> answer(const std::vector<ModelInput>& inputs,
                                                                  int64_t /*top_k*/) const override {
    const std::vector<std::string> texts = texts_of(inputs);
    std::vector<Features> features = with_errors_of_models([&] { return predictor_.features(texts); });
    std::vector<std::shared_ptr<const Answer>> answers;
    for (size_t i = 0; i < texts.size(); ++i)
      answers.push_back(std::make_shared<FeaturesAnswer>(texts[i], std::move(features[i])));
    return answers;
  }
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

  [[nodiscard]] TextCost cost(const ModelInput& input, int64_t top_k) const override {
    constexpr int64_t kBytesOfToken = 120;   // as JSON: a word, its label and its score
    constexpr int64_t kBytesOfAnswer = 400;  // as JSON: an answer of some 30 tokens, its score and its place
    try {
      const int64_t tokens = predictor_.tokens_of({.text = input.text, .second = input.second});
      return {.tokens = tokens,
              .answer_bytes = (predictor_.kind() == TaskKind::kQuestionAnswering ? top_k * kBytesOfAnswer
                                                                                 : tokens * kBytesOfToken) +
                              static_cast<int64_t>(input.text.size())};
    } catch (const DataError& error) {
      throw BadText(0, error.what());
    }
  }

  [[nodiscard]] std::vector<std::shared_ptr<const Answer>> answer(const std::vector<ModelInput>& inputs,
                                                                  int64_t top_k) const override {
    std::vector<TaskInput> asked;
    for (const ModelInput& input : inputs) asked.push_back({.text = input.text, .second = input.second});
    std::vector<std::shared_ptr<const Answer>> answers;
    with_errors_of_models([&] {
      predictor_.visit_answers(asked, top_k, [&](size_t i, const auto& found) {
        answers.push_back(std::make_shared<TaskAnswer>(to_json(asked[i], found, top_k), pipeline_json(found)));
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

std::unique_ptr<Model> make_predictor_model(Predictor predictor, const std::string& task, int64_t workers) {
  if (task == "features") return std::make_unique<FeaturesModel>(std::move(predictor), workers);
  return std::make_unique<MaskModel>(std::move(predictor), workers);
}

std::unique_ptr<Model> make_task_model(TaskPredictor predictor, int64_t workers) {
  return std::make_unique<FinetunedModel>(std::move(predictor), workers);
}

}  // namespace bert
