// The paths of `bert serve`, and what they answer.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "app/http/types.h"
#include "app/serve/batcher.h"
#include "app/serve/metrics.h"
#include "app/serve/model.h"
#include "app/serve/predict_request.h"

namespace bert {

struct ServiceOptions {
  std::string name = {};                // of the model: its answers are at /models/NAME too
  std::string task = {};                // that of `bert predict`
  std::string token = {};               // Bearer token that questions need; "" for none
  std::vector<std::string> hosts = {};  // names of the server, without ports, that requests may have; none: any
  BatchLimits batch = {};
  int64_t workers = 1;
  int64_t max_texts = 1024;                      // of a request
  int64_t max_tokens = int64_t{1} << 15;         // of a request
  int64_t max_answer_bytes = int64_t{64} << 20;  // of a request, about
  std::chrono::duration<double> request{30};     // longest time from the body's end to the answer's begin
};

/// Answers questions with a model, which may come later: questions wait for it.
class Service final : public HttpHandler {
 public:
  /// `connections` stands in /metrics, and outlives the service.
  Service(ServiceOptions options, const ConnectionCounts& connections);
  ~Service() override;

  /// Makes the service ready. To be called once.
  void set_model(std::unique_ptr<Model> model);
  /// The message of the model's ModelLost; "" as long as there was none.
  [[nodiscard]] std::string model_lost() const;
  /// From now on /ready gives 503. Requests that come are still answered.
  void drain() { draining_ = true; }
  /// Refuses what waits.
  void end();

  void check(const ServerRequest& request) override;
  [[nodiscard]] bool answers_when_full(const ServerRequest& request) const override;
  ServerResponse answer(const ServerRequest& request) override;
  void finished(const std::string& path, int status, double seconds) override;

 private:
  void check_site(const ServerRequest& request) const;
  [[nodiscard]] ServerResponse predict(const ServerRequest& request, bool hugging_face);
  [[nodiscard]] ServerResponse tokens(const ServerRequest& request);
  [[nodiscard]] ServerResponse ready() const;
  [[nodiscard]] ServerResponse metrics() const;
  [[nodiscard]] ServerResponse openapi() const;
  Batcher& wait_for_model(Batcher::Clock::time_point deadline);
  [[nodiscard]] ModelTexts encoded(const PredictRequest& request) const;

  const ServiceOptions options_;
  const ConnectionCounts& connections_;
  ServerMetrics metrics_;
  std::atomic<bool> draining_{false};
  mutable std::mutex mutex_;  // of the members below, until they are set
  std::condition_variable changed_;
  bool ended_ = false;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Batcher> batcher_;
  std::string openapi_;  // the document, in time that of the model
};

}  // namespace bert
