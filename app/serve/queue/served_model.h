// A model of a server, and the queue of its texts.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "app/http/types.h"
#include "app/serve/queue/batcher.h"
#include "app/serve/queue/model.h"

namespace bert {

/// A name in paths, and a task of `bert predict`.
struct ModelName {
  std::string name, task;
};

struct ServiceOptions {
  std::string name = {};                // of the model: its answers are at /models/NAME too
  std::string task = {};                // that of `bert predict`
  std::vector<ModelName> further = {};  // other models of the server
  std::string token = {};               // Bearer token that questions need; "" for none
  std::vector<std::string> hosts = {};  // names of the server, without ports, that requests may have; none: any
  BatchLimits batch = {};
  int64_t workers = 1;                           // batches that are computed at once
  int64_t max_connections = 1024;                // of the server: /info has it
  int64_t max_texts = 2048;                      // of a request: that of OpenAI
  int64_t max_tokens = int64_t{1} << 16;         // of a request: 32 for each of these texts
  int64_t max_answer_bytes = int64_t{64} << 20;  // of a request, about
  std::chrono::duration<double> request{30};     // longest time from the body's end to the answer's begin
};

/// A text of a request that has no answer: 422.
struct TextRefused : HttpError {
  using HttpError::HttpError;
};

/// The texts of a request, and how to speak of them.
struct Texts {
  std::vector<ModelInput> inputs;
  std::string name = "inputs";  // of their list in the request: messages have "inputs[3]: ..."
  bool list = true;             // else messages have "inputs: ..."
};

/// The answers to the texts of a request, one each, and the tokens that were computed.
struct Answers {
  std::vector<std::shared_ptr<const Answer>> all;
  int64_t tokens = 0;
};

/// The model may come later: questions wait for it. Any number of threads may call the functions.
class ServedModel {
 public:
  using Clock = Batcher::Clock;

  /// `options` outlives the model. `done` is called after each batch.
  ServedModel(std::string name, std::string task, const ServiceOptions& options,
              std::function<void(const BatchDone&)> done);

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const std::string& task() const { return task_; }
  [[nodiscard]] bool is_loaded() const;
  /// Computes one text, so that no request pays for what a model does once. To be called once. Throws ModelLost.
  void set(std::unique_ptr<Model> model);
  /// Waits for the model. Throws HttpError: 503 if `deadline` passes before.
  const Model& model(Clock::time_point deadline);
  /// Throws HttpError: 413 for more texts than a request may have.
  void expect_count(const std::string& name, size_t texts) const;
  /// Waits for the model and the answers. Throws HttpError: 413 for more texts, tokens or bytes of the answer than the
  /// options allow; TextRefused; 429 and 503 of Batcher::ask(). Throws what the model throws.
  Answers ask(const Texts& texts, const AnswerOptions& wishes, Clock::time_point deadline);
  /// Refuses what waits.
  void end();

  /// The message of the model's ModelLost; "" as long as there was none.
  [[nodiscard]] std::string lost() const;
  [[nodiscard]] int64_t queued_texts() const;
  [[nodiscard]] int64_t queued_tokens() const;

 private:
  [[nodiscard]] ModelTexts encoded(const Texts& texts, const AnswerOptions& wishes) const;

  const std::string name_, task_;
  const ServiceOptions& options_;
  const std::function<void(const BatchDone&)> done_;
  mutable std::mutex mutex_;  // of the members below, until they are set
  std::condition_variable changed_;
  bool ended_ = false;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Batcher> batcher_;
};

}  // namespace bert
