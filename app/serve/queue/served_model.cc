#include "app/serve/queue/served_model.h"

#include <future>
#include <optional>
#include <utility>

#include "app/inference/encoded_text.h"
#include "data/tasks/text_windows.h"

namespace bert {

ServedModel::ServedModel(std::string name, std::string task, const ServiceOptions& options,
                         std::function<void(const BatchDone&)> done)
    : name_(std::move(name)), task_(std::move(task)), options_(options), done_(std::move(done)) {}

bool ServedModel::is_loaded() const {
  const std::lock_guard lock(mutex_);
  return batcher_ != nullptr;
}

namespace {

/// Answers the model's example on a thread that ends, as the workers have their own.
void warm_up(const Model& model) {
  const std::optional<ModelInput> input = model.example();
  if (!input) return;
  std::async(std::launch::async, [&] {
    model.share_processor(1);
    static_cast<void>(model.answer({model.encode(*input, model.defaults())}));
  }).get();
}

}  // namespace

void ServedModel::set(std::unique_ptr<Model> model) {
  warm_up(*model);
  const std::lock_guard lock(mutex_);
  model_ = std::move(model);
  batcher_ = std::make_unique<Batcher>(*model_, options_.batch, options_.workers, done_);
  changed_.notify_all();
}

const Model& ServedModel::model(Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, deadline, [this] { return ended_ || batcher_ != nullptr; });
  if (batcher_ == nullptr) throw HttpError(503, "the model is being loaded", {{"Retry-After", "1"}});
  return *model_;
}

void ServedModel::expect_count(const std::string& name, size_t texts) const {
  if (static_cast<int64_t>(texts) <= options_.max_texts) return;
  throw HttpError(413, name + ": " + std::to_string(texts) + " texts; at most " + std::to_string(options_.max_texts) +
                           " are taken in a request");
}

/// The texts with their tokens.
ModelTexts ServedModel::encoded(const Texts& texts, const AnswerOptions& wishes) const {
  const auto refuse = [](const std::string& what, int64_t most) {
    throw HttpError(413, what + " more than " + std::to_string(most) + ", the most for a request; send fewer texts");
  };
  expect_count(texts.name, texts.inputs.size());
  ModelTexts all;
  int64_t tokens = 0, answer_bytes = 0;
  AnswerOptions limited = wishes;
  for (size_t i = 0; i < texts.inputs.size(); ++i) {
    try {
      limited.most_window_tokens = options_.max_tokens - tokens;
      all.push_back(model_->encode(texts.inputs[i], limited));
    } catch (const TooManyTokens&) {
      refuse("the tokens of the texts are", options_.max_tokens);
    } catch (const TextError& error) {
      const std::string place = texts.list ? texts.name + "[" + std::to_string(i) + "]" : texts.name;
      throw TextRefused(422, place + ": " + error.reason);
    }
    tokens += all.back()->tokens;
    answer_bytes += all.back()->answer_bytes;
    if (tokens > options_.max_tokens) refuse("the tokens of the texts are", options_.max_tokens);
    if (answer_bytes > options_.max_answer_bytes) refuse("the bytes of the answer are", options_.max_answer_bytes);
  }
  return all;
}

Answers ServedModel::ask(const Texts& texts, const AnswerOptions& wishes, Clock::time_point deadline) {
  model(deadline);
  ModelTexts all = encoded(texts, wishes);
  Answers answers;
  for (const auto& text : all) answers.tokens += text->tokens;
  answers.all = batcher_->ask(std::move(all), deadline);
  return answers;
}

void ServedModel::end() {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  if (batcher_ != nullptr) batcher_->end();
  changed_.notify_all();
}

std::string ServedModel::lost() const {
  const std::lock_guard lock(mutex_);
  return batcher_ == nullptr ? "" : batcher_->model_lost();
}

int64_t ServedModel::queued_texts() const {
  const std::lock_guard lock(mutex_);
  return batcher_ == nullptr ? 0 : batcher_->queued_texts();
}

int64_t ServedModel::queued_tokens() const {
  const std::lock_guard lock(mutex_);
  return batcher_ == nullptr ? 0 : batcher_->queued_tokens();
}

}  // namespace bert
