#include "app/serve/predictor_model.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "app/inference/answer_json.h"

namespace bert {
namespace {

constexpr std::string_view kMask = "[MASK]";

/// Turns the predictor's TextError into BadText.
template <class Work>
auto with_bad_texts(const Work& work) {
  try {
    return work();
  } catch (const TextError& error) {
    throw BadText(error.index, error.what());
  }
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

class PredictorModel : public Model {
 public:
  PredictorModel(Predictor predictor, int64_t workers)
      : predictor_(std::move(predictor)),
        threads_(static_cast<int>(std::max<int64_t>(1, at::get_num_threads() / workers))) {}

  void enter_thread() const override { at::set_num_threads(threads_); }

  [[nodiscard]] TextTokens tokenize(const std::string& text) const override {
    const Vocabulary& vocabulary = predictor_.tokenizer().vocabulary();
    TextTokens result;
    for (const int32_t id : ids_of(text)) {
      result.ids.push_back(id);
      result.tokens.push_back(vocabulary.token(id));
    }
    return result;
  }

 protected:
  /// [CLS] text [SEP], as the predictor has it.
  [[nodiscard]] std::vector<int32_t> ids_of(const std::string& text) const {
    const Tokenizer& tokenizer = predictor_.tokenizer();
    std::vector<int32_t> ids = {tokenizer.vocabulary().cls_id()};
    for (size_t begin = 0;;) {
      const size_t mask = text.find(kMask, begin);
      tokenizer.encode(std::string_view(text).substr(begin, mask - begin), ids);
      if (mask == std::string::npos) break;
      ids.push_back(tokenizer.vocabulary().mask_id());
      begin = mask + kMask.size();
    }
    ids.push_back(tokenizer.vocabulary().sep_id());
    return ids;
  }

  /// Throws BadText for a text that is too long.
  [[nodiscard]] int64_t tokens_of(const std::string& text) const {
    const auto tokens = static_cast<int64_t>(ids_of(text).size());
    const int64_t most = predictor_.config().max_position_embeddings;
    if (tokens <= most) return tokens;
    throw BadText(0, "text of " + std::to_string(tokens) + " tokens: the model takes at most " + std::to_string(most) +
                         "; shorten it");
  }

  const Predictor predictor_;

 private:
  const int threads_;
};

class MaskModel final : public PredictorModel {
 public:
  using PredictorModel::PredictorModel;
  [[nodiscard]] bool has_top_k() const override { return true; }

  [[nodiscard]] TextCost cost(const std::string& text, int64_t top_k) const override {
    constexpr int64_t kBytesOfFiller = 120;  // as JSON, without the sequence
    int64_t masks = 0;
    for (size_t at = text.find(kMask); at != std::string::npos; at = text.find(kMask, at + kMask.size())) ++masks;
    if (masks == 0) throw BadText(0, "no [MASK] in the text");
    return {.tokens = tokens_of(text),
            .answer_bytes = masks * top_k * (static_cast<int64_t>(text.size()) + kBytesOfFiller)};
  }

  [[nodiscard]] std::vector<std::shared_ptr<const Answer>> answer(const std::vector<std::string>& texts,
                                                                  int64_t top_k) const override {
    std::vector<std::shared_ptr<const Answer>> answers;
    for (MaskFilling& filling : with_bad_texts([&] { return predictor_.fill_mask(texts, top_k); }))
      answers.push_back(std::make_shared<MaskAnswer>(std::move(filling)));
    return answers;
  }
};

class FeaturesModel final : public PredictorModel {
 public:
  using PredictorModel::PredictorModel;
  [[nodiscard]] bool has_top_k() const override { return false; }

  [[nodiscard]] TextCost cost(const std::string& text, int64_t /*top_k*/) const override {
    constexpr int64_t kBytesOfNumber = 22;  // as JSON
    const int64_t tokens = tokens_of(text);
    return {.tokens = tokens, .answer_bytes = tokens * predictor_.config().hidden_size * kBytesOfNumber};
  }

  [[nodiscard]] std::vector<std::shared_ptr<const Answer>> answer(const std::vector<std::string>& texts,
                                                                  int64_t /*top_k*/) const override {
    std::vector<Features> features = with_bad_texts([&] { return predictor_.features(texts); });
    std::vector<std::shared_ptr<const Answer>> answers;
    for (size_t i = 0; i < texts.size(); ++i)
      answers.push_back(std::make_shared<FeaturesAnswer>(texts[i], std::move(features[i])));
    return answers;
  }
};

}  // namespace

std::unique_ptr<Model> make_predictor_model(Predictor predictor, const std::string& task, int64_t workers) {
  if (task == "features") return std::make_unique<FeaturesModel>(std::move(predictor), workers);
  return std::make_unique<MaskModel>(std::move(predictor), workers);
}

}  // namespace bert
