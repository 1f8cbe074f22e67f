#include "app/serve/queue/batcher.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <optional>
#include <stdexcept>
#include <utility>

#include "app/http/types.h"

namespace bert {

/// The reason why a request has no answers. Each thread makes an exception of its own from it.
struct Batcher::Failure {
  bool ending = false;  // else the model is broken
  std::string reason = {};
};

struct Batcher::Request {
  ModelTexts texts;
  size_t next = 0;  // the first text that is in no batch yet
  size_t answered = 0;
  std::vector<std::shared_ptr<const Answer>> answers;
  std::optional<Failure> failure;
  std::condition_variable ready;
  [[nodiscard]] bool over() const { return failure.has_value() || answered == texts.size(); }
};

namespace {

HttpError ending() { return {503, "the server is ending", {{"Retry-After", "1"}}}; }

}  // namespace

Batcher::Batcher(const Model& model, const BatchLimits& limits, int64_t workers,
                 std::function<void(const BatchDone&)> done)
    : model_(model), limits_(limits), done_(std::move(done)) {
  for (int64_t i = 0; i < workers; ++i) workers_.emplace_back([this] { work(); });
}

Batcher::~Batcher() { end(); }

std::vector<std::shared_ptr<const Answer>> Batcher::ask(ModelTexts texts, Clock::time_point deadline) {
  const auto request = std::make_shared<Request>();
  request->answers.resize(texts.size());
  int64_t tokens = 0;
  for (const auto& text : texts) tokens += text->tokens;
  request->texts = std::move(texts);

  std::unique_lock lock(mutex_);
  if (ended_) throw ending();
  if (queued_tokens_ + tokens > limits_.max_queue_tokens) {
    throw HttpError(429,
                    "the queue is full: " + std::to_string(queued_tokens_) + " tokens wait, the request has " +
                        std::to_string(tokens) + ", and at most " + std::to_string(limits_.max_queue_tokens) +
                        " may wait",
                    {retry_after()});
  }
  queued_texts_ += static_cast<int64_t>(request->texts.size());
  queued_tokens_ += tokens;
  if (!request->texts.empty()) queue_.push_back(request);
  arrived_.notify_all();
  if (!request->ready.wait_until(lock, deadline, [&] { return request->over(); })) {
    drop(*request);
    throw HttpError(503, "the server is too busy: no answer in the time for a request", {retry_after()});
  }
  if (request->failure) {
    if (request->failure->ending) throw ending();
    throw std::runtime_error(request->failure->reason);
  }
  return std::move(request->answers);
}

/// Takes the texts of the request that are in no batch yet out of the queue.
void Batcher::drop(Request& request) {
  queue_.remove_if([&](const std::shared_ptr<Request>& other) { return other.get() == &request; });
  for (; request.next < request.texts.size(); ++request.next) {
    --queued_texts_;
    queued_tokens_ -= request.texts[request.next]->tokens;
  }
}

void Batcher::fail(const std::shared_ptr<Request>& request, Failure failure) {
  drop(*request);
  if (!request->over()) request->failure = std::move(failure);
  request->ready.notify_all();
}

/// The time after which the queue may have room.
HttpField Batcher::retry_after() const {
  constexpr double kMost = 30;
  const double seconds = tokens_per_second_ > 0 ? static_cast<double>(queued_tokens_) / tokens_per_second_ : 0;
  return {"Retry-After", std::to_string(static_cast<int>(std::clamp(std::ceil(seconds), 1.0, kMost)))};
}

void Batcher::work() {
  for (;;) {
    Batch batch = next_batch();
    if (batch.empty()) return;
    compute(std::move(batch));
  }
}

/// Waits for texts and takes a batch of them: Note [Turns in a batch]. Returns none when the batcher ends.
Batcher::Batch Batcher::next_batch() {
  std::unique_lock lock(mutex_);
  do {
    arrived_.wait(lock, [this] { return ended_ || !queue_.empty(); });
    if (ended_) return {};
    arrived_.wait_until(lock, return_until_, [this] {
      return ended_ || queued_tokens_ >= limits_.max_batch_tokens || queue_.size() >= answered_requests_;
    });
  } while (queue_.empty());  // another worker has taken the texts, or their requests have ended
  if (ended_) return {};
  Batch batch;
  int64_t tokens = 0;
  for (auto next = queue_.begin(); next != queue_.end();) {
    const auto taken = next;
    Request& request = **taken;
    const int64_t more = request.texts[request.next]->tokens;
    if (!batch.empty() && tokens + more > limits_.max_batch_tokens) break;
    batch.push_back({*taken, request.next++});
    tokens += more;
    --queued_texts_;
    queued_tokens_ -= more;
    ++next;
    if (request.next == request.texts.size()) {
      queue_.erase(taken);
    } else {
      const bool last = next == queue_.end();
      queue_.splice(queue_.end(), queue_, taken);
      if (last) next = taken;
    }
  }
  if (!queue_.empty()) arrived_.notify_all();  // another worker has a batch, too
  return batch;
}

/// Answers the texts of a batch.
void Batcher::compute(Batch batch) {
  const auto begin = Clock::now();
  std::vector<std::shared_ptr<const Answer>> answers;
  ModelTexts texts;
  for (const Place& place : batch) texts.push_back(place.request->texts[place.text]);
  {
    const std::lock_guard lock(mutex_);
    model_.share_processor(++computing_);
  }
  try {
    answers = model_.answer(texts);
  } catch (const std::exception& error) {
    const std::lock_guard lock(mutex_);
    --computing_;
    if (dynamic_cast<const ModelLost*>(&error) != nullptr) model_lost_ = error.what();
    for (const Place& place : batch) fail(place.request, {.reason = error.what()});
    return;
  }
  const std::chrono::duration<double> time = Clock::now() - begin;
  BatchDone figures{.texts = static_cast<int64_t>(batch.size()), .tokens = 0, .seconds = time.count()};
  for (const auto& text : texts) figures.tokens += text->tokens;
  done_(figures);

  constexpr double kWeight = 0.2;  // of the newest batch
  const std::lock_guard lock(mutex_);
  --computing_;
  const double rate = figures.seconds > 0 ? static_cast<double>(figures.tokens) / figures.seconds : 0;
  if (rate > 0) tokens_per_second_ += (tokens_per_second_ > 0 ? kWeight : 1) * (rate - tokens_per_second_);
  answered_requests_ = 0;
  return_until_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(time * limits_.return_share);
  for (size_t i = 0; i < batch.size(); ++i) {
    Request& request = *batch[i].request;
    request.answers[batch[i].text] = std::move(answers[i]);
    if (++request.answered < request.texts.size()) continue;
    ++answered_requests_;
    request.ready.notify_all();
  }
}

void Batcher::end() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    while (!queue_.empty()) {
      const std::shared_ptr<Request> request = queue_.front();
      fail(request, {.ending = true});
    }
  }
  arrived_.notify_all();
  for (std::thread& worker : workers_) worker.join();
  workers_.clear();
}

std::string Batcher::model_lost() const {
  const std::lock_guard lock(mutex_);
  return model_lost_;
}

int64_t Batcher::queued_texts() const {
  const std::lock_guard lock(mutex_);
  return queued_texts_;
}

int64_t Batcher::queued_tokens() const {
  const std::lock_guard lock(mutex_);
  return queued_tokens_;
}

}  // namespace bert
