// Requests and answers of HTTP, as the server passes them to its handler.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace bert {

using HttpField = std::pair<std::string, std::string>;  // name and value

/// A refused request: the answer has this status, these fields, and {"error": what()} as its body, unless the handler
/// says otherwise.
struct HttpError : std::runtime_error {
  HttpError(int code, const std::string& reason, std::vector<HttpField> further = {})
      : std::runtime_error(reason), status(code), fields(std::move(further)) {}
  int status;
  std::vector<HttpField> fields;
};

struct ServerRequest {
  std::string method = {}, path = {};  // without the query
  // Values of fields, "" if absent.
  std::string host = {}, authorization = {}, content_type = {}, origin = {}, fetch_site = {};
  /// Inference-Header-Content-Length of KServe's binary tensors: the bytes of JSON before them.
  std::string json_bytes = {};
  std::string body = {};
};

struct ServerResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body = {};
  std::vector<HttpField> fields = {};
  /// If set, each call returns the next part of the body, and "" after the last. `body` is then empty. The parts are
  /// sent as they come, so that a large answer is never in memory as a whole.
  std::function<std::string()> next_part = {};
};

/// {"error": reason} with the status.
ServerResponse error_response(const HttpError& error);

struct ConnectionLimits {
  std::chrono::duration<double> read{5};      // longest silence of a client, and longest time for a head
  std::chrono::duration<double> request{30};  // longest time for a body to arrive, and for an answer to be taken
  int64_t max_body_bytes = 1 << 20;
};

struct ConnectionCounts {
  std::atomic<int64_t> open{0};
  std::atomic<int64_t> refused{0};  // because too many were open
};

/// The program behind a server. All functions are called by many threads at once.
class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  /// Called before the body is read. Throws HttpError for a request that is refused by its head alone.
  virtual void check(const ServerRequest& request) = 0;
  /// True for a request that is answered although all connections are taken, such as one for the health of the server.
  [[nodiscard]] virtual bool answers_when_full(const ServerRequest& /*request*/) const { return false; }
  /// Answers a request. An HttpError becomes its answer; any other exception becomes 500.
  virtual ServerResponse answer(const ServerRequest& request) = 0;
  /// The answer to a request that is refused, with the body that its client understands. The path is "" if the head
  /// could not be read.
  [[nodiscard]] virtual ServerResponse refusal(const ServerRequest& /*request*/, const HttpError& error) const {
    return error_response(error);
  }
  /// Called after each answer, with the time since the first byte of the request. `path` is "" if the head could not
  /// be read.
  virtual void finished(const std::string& path, int status, double seconds) = 0;
};

}  // namespace bert
