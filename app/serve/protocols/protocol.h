// The parts that the protocols of a server share. Each protocol has a file of its own, whose functions answer its paths; the
// table of all paths is in service.cc.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "app/http/types.h"
#include "app/inference/answer_options.h"
#include "app/serve/queue/served_model.h"

namespace bert {

/// A request, and what the server has to answer it.
struct Call {
  const ServerRequest& request;
  std::string name;                                      // NAME in the request's path; "" if it has none
  std::span<const std::unique_ptr<ServedModel>> models;  // one or more
  const ServiceOptions& options;
  ServedModel::Clock::time_point deadline;
  bool draining = false;  // the server is ending

  /// The first model, which paths without a name ask.
  [[nodiscard]] ServedModel& model() const { return *models.front(); }
};

/// The model that a request names; the first one for "". Throws HttpError: 404.
ServedModel& model_named(const Call& call, const std::string& name);

/// The model that a request names; for "" the first one of `task`. Throws HttpError: 404, and `status` for a model of
/// another task.
ServedModel& model_for(const Call& call, const std::string& task, int status, const std::string& name = "");

/// The call with the models from the first one on that takes a body with these members; from the first one of all if
/// there is none.
Call for_body(const Call& call, const nlohmann::json& body);

/// A list of texts or passages that is empty: 400.
struct NothingAsked : HttpError {
  explicit NothingAsked(const std::string& reason) : HttpError(400, reason) {}
};

/// JSON without spaces; invalid UTF-8 becomes U+FFFD.
std::string json_text(const nlohmann::ordered_json& value);

ServerResponse json_response(const nlohmann::ordered_json& value);

/// `begin`, `count` items with commas between them, and `end`. append(i, out) appends item i. A large answer is sent in
/// parts, and is never in memory as a whole.
ServerResponse list_response(std::string begin, size_t count, std::function<void(size_t i, std::string& out)> append,
                             std::string end);

/// Texts or their ids: "text", ["text", ...], [1, 2], [[1, 2], ...]. `name` is that of the member in messages. Throws
/// HttpError: 422; NothingAsked.
Texts texts_or_ids(const nlohmann::json& value, const std::string& name);

}  // namespace bert
