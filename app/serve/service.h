// The paths of `bert serve`, and what they answer.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "app/http/types.h"
#include "app/serve/metrics.h"
#include "app/serve/protocols/protocol.h"
#include "app/serve/queue/model.h"
#include "app/serve/queue/served_model.h"

namespace bert {

/// Answers questions with a model, which may come later: questions wait for it.
class Service final : public HttpHandler {
 public:
  /// `connections` stands in /metrics, and outlives the service.
  Service(ServiceOptions options, const ConnectionCounts& connections);
  ~Service() override;

  /// Gives the model of place `index`: that of ServiceOptions::name, then `further`. To be called once for each; the
  /// service is ready after the last.
  void set_model(std::unique_ptr<Model> model, size_t index = 0);
  /// The message of the model's ModelLost; "" as long as there was none.
  [[nodiscard]] std::string model_lost() const;
  /// From now on /ready gives 503. Requests that come are still answered.
  void drain() { draining_ = true; }
  /// Refuses what waits.
  void end();

  void check(const ServerRequest& request) override;
  [[nodiscard]] bool answers_when_full(const ServerRequest& request) const override;
  ServerResponse answer(const ServerRequest& request) override;
  [[nodiscard]] ServerResponse refusal(const ServerRequest& request, const HttpError& error) const override;
  void finished(const std::string& path, int status, double seconds) override;

 private:
  struct Route;
  static const std::vector<Route>& routes();
  /// The first route of a path; nullptr if there is none. Sets `name` to NAME of the path.
  static const Route* route_of(const std::string& path, std::string& name);
  /// The same with the method of the request.
  static const Route* route_of(const ServerRequest& request, std::string& name);

  void check_site(const ServerRequest& request) const;
  [[nodiscard]] ServerResponse page(const Call& call) const;
  [[nodiscard]] ServerResponse health(const Call& call) const;
  [[nodiscard]] ServerResponse ready(const Call& call) const;
  [[nodiscard]] ServerResponse metrics(const Call& call) const;
  [[nodiscard]] ServerResponse models(const Call& call) const;
  [[nodiscard]] ServerResponse openapi(const Call& call) const;

  const ServiceOptions options_;
  const ConnectionCounts& connections_;
  ServerMetrics metrics_;
  std::atomic<bool> draining_{false};
  std::vector<std::unique_ptr<ServedModel>> models_;
  mutable std::mutex mutex_;  // of openapi_
  std::string openapi_;       // the document, in time that of the model
};

}  // namespace bert
