// One queue for the texts of all requests, computed in batches.
//
// Note [Turns in a batch]
//
// A batch takes one text of each waiting request in turn, until it has max_batch_tokens. So a request of a thousand texts
// does not hold up one of a single text, and each request has the same share of a busy model. While a batch is computed,
// the texts of the next one gather: under load batches are full without any wait.
//
// Note [Clients that come back]
//
// Clients that have got their answers often ask again at once. A worker that took what waits at that moment would miss
// them: eight clients then get batches of one and of seven in turn. So a worker first waits until as many requests are
// in the queue as the last batch has answered, for a twentieth of that batch's time at most.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "app/http/types.h"
#include "app/serve/queue/model.h"

namespace bert {

struct BatchLimits {
  int64_t max_batch_tokens = 2048;              // of texts that are computed together; a longer text is computed alone
  int64_t max_queue_tokens = int64_t{1} << 17;  // of texts that wait
  double return_share = 0.05;                   // part of a batch's time: Note [Clients that come back]
};

/// The figures of a batch that has been computed.
struct BatchDone {
  int64_t texts = 0, tokens = 0;
  double seconds = 0;
};

class Batcher {
 public:
  using Clock = std::chrono::steady_clock;
  /// `model` outlives the batcher. `done` is called after each batch, by the worker's thread.
  Batcher(
      const Model& model, const BatchLimits& limits, int64_t workers,
      std::function<void(const BatchDone&)> done = [](const BatchDone&) {});
  /// end().
  ~Batcher();
  Batcher(const Batcher&) = delete;
  Batcher& operator=(const Batcher&) = delete;

  /// Waits for the answers of `texts` of Model::encode(), one each. Throws HttpError: 429 with Retry-After if the queue is full, 503 if `deadline` passes or the batcher
  /// ends. Throws what the model throws.
  std::vector<std::shared_ptr<const Answer>> ask(ModelTexts texts, Clock::time_point deadline);

  /// Refuses the requests that wait, and waits for the batches that are being computed.
  void end();

  /// The message of the model's ModelLost; "" as long as there was none.
  [[nodiscard]] std::string model_lost() const;

  /// Texts and tokens that wait.
  [[nodiscard]] int64_t queued_texts() const;
  [[nodiscard]] int64_t queued_tokens() const;

 private:
  struct Failure;
  struct Request;
  using Requests = std::list<std::shared_ptr<Request>>;
  struct Place {  // of a text in a batch
    std::shared_ptr<Request> request;
    size_t text = 0;
  };
  using Batch = std::vector<Place>;

  void work();
  Batch next_batch();
  void compute(Batch batch);
  void fail(const std::shared_ptr<Request>& request, Failure failure);
  void drop(Request& request);
  [[nodiscard]] HttpField retry_after() const;

  const Model& model_;
  const BatchLimits limits_;
  const std::function<void(const BatchDone&)> done_;
  mutable std::mutex mutex_;  // of the members below
  std::condition_variable arrived_;
  Requests queue_;  // requests with texts that are in no batch yet
  int64_t queued_texts_ = 0, queued_tokens_ = 0;
  int64_t computing_ = 0;           // batches
  double tokens_per_second_ = 0;    // a moving average
  size_t answered_requests_ = 0;    // by the last batch
  Clock::time_point return_until_;  // time until which its clients are waited for
  bool ended_ = false;
  std::string model_lost_;
  std::vector<std::thread> workers_;
};

}  // namespace bert
