#include "app/serve/service.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "app/inference/encoded_text.h"
#include "app/serve/embedded.h"
#include "app/system/crypto.h"

namespace bert {
namespace {

using nlohmann::ordered_json;
using Clock = Batcher::Clock;

constexpr std::string_view kModels = "/models";

/// A path, and the methods that it takes.
struct Path {
  std::string_view path;
  bool post = false;   // takes POST; otherwise GET and HEAD
  bool secret = true;  // needs the token
};
constexpr std::array<Path, 8> kPaths = {{{"/", false, false},
                                         {"/health", false, false},
                                         {"/ready", false, false},
                                         {"/openapi.json", false, false},
                                         {"/metrics"},
                                         {kModels},
                                         {"/predict", true},
                                         {"/tokenize", true}}};
constexpr Path kModelPath = {"/models/NAME", true};

std::string text_of(const ordered_json& value) {
  return value.dump(-1, ' ', /*ensure_ascii=*/false, ordered_json::error_handler_t::replace);
}

ServerResponse json_response(const ordered_json& value) { return {.body = text_of(value)}; }

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

/// "localhost" of "LOCALHOST:8080", "::1" of "[::1]:8080".
std::string host_without_port(const std::string& host) {
  if (host.starts_with('[')) return lower(host.substr(1, host.find(']') - 1));
  return lower(host.substr(0, host.find(':')));
}

bool is_json(std::string_view content_type) {
  std::string kind(content_type.substr(0, content_type.find(';')));
  kind.erase(std::find_if(kind.begin(), kind.end(), [](unsigned char c) { return std::isspace(c) != 0; }), kind.end());
  return lower(kind) == "application/json";
}

/// openapi.json with the inputs and the parameters that `model` takes.
std::string openapi_of(const Model& model) {
  ordered_json document = ordered_json::parse(kOpenApi);
  ordered_json& schemas = document["components"]["schemas"];
  ordered_json inputs = ordered_json::array();
  const auto add = [&](const char* name) { inputs.push_back({{"$ref", std::string("#/components/schemas/") + name}}); };
  if (model.form() != InputForm::kQuestionAndContext) inputs.push_back({{"type", "string"}});
  if (model.form() == InputForm::kTextOrPair) add("TextPair");
  if (model.form() == InputForm::kQuestionAndContext) add("QuestionAndContext");
  schemas["Input"]["oneOf"] = inputs;
  const std::vector<std::string> known = model.parameters();
  ordered_json parameters = ordered_json::object();
  ordered_json& beside_inputs = schemas["HuggingFaceQuestion"]["properties"];
  for (const auto& [name, schema] : schemas["Parameters"]["properties"].items()) {
    if (std::find(known.begin(), known.end(), name) == known.end()) continue;
    parameters[name] = schema;
    beside_inputs[name] = schema;
  }
  schemas["Parameters"]["properties"] = parameters;
  return text_of(document);
}

/// The answers as a list of JSON, one part each.
std::function<std::string()> list_in_parts(std::vector<std::shared_ptr<const Answer>> answers, bool hugging_face) {
  return [answers = std::move(answers), hugging_face, next = size_t{0}]() mutable -> std::string {
    if (next > answers.size()) return "";
    if (next == answers.size()) {
      ++next;
      return "]";
    }
    const std::shared_ptr<const Answer> answer = std::move(answers[next]);
    const std::string mark = next++ == 0 ? "[" : ",";
    return mark + text_of(hugging_face ? answer->as_hugging_face() : answer->as_predict());
  };
}

}  // namespace

Service::Service(ServiceOptions options, const ConnectionCounts& connections)
    : options_(std::move(options)), connections_(connections), openapi_(kOpenApi) {}

Service::~Service() { end(); }

void Service::set_model(std::unique_ptr<Model> model) {
  const std::lock_guard lock(mutex_);
  model_ = std::move(model);
  openapi_ = openapi_of(*model_);
  batcher_ = std::make_unique<Batcher>(*model_, options_.batch, options_.workers, [this](const BatchDone& done) {
    metrics_.batch(done.texts, done.tokens, done.seconds);
  });
  changed_.notify_all();
}

std::string Service::model_lost() const {
  const std::lock_guard lock(mutex_);
  return batcher_ == nullptr ? "" : batcher_->model_lost();
}

void Service::end() {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  if (batcher_ != nullptr) batcher_->end();
  changed_.notify_all();
}

Batcher& Service::wait_for_model(Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, deadline, [this] { return ended_ || batcher_ != nullptr; });
  if (batcher_ == nullptr) throw HttpError(503, "the model is being loaded", {{"Retry-After", "1"}});
  return *batcher_;
}

bool Service::answers_when_full(const ServerRequest& request) const {
  return request.path == "/health" || request.path == "/ready";
}

/// Refuses what a page of another site makes a browser send: a name that its site lets lead to this server (DNS
/// rebinding), and a POST from it.
void Service::check_site(const ServerRequest& request) const {
  if (!request.host.empty() && !options_.hosts.empty()) {
    const std::string name = host_without_port(request.host);
    const bool known = name.ends_with(".localhost") ||
                       std::find(options_.hosts.begin(), options_.hosts.end(), name) != options_.hosts.end();
    if (!known) throw HttpError(421, "the field Host names " + name + ", and this server is localhost");
  }
  if (request.method != "POST") return;
  const size_t scheme = request.origin.find("://");
  const bool other_origin =
      !request.origin.empty() &&
      (scheme == std::string::npos || lower(request.origin.substr(scheme + 3)) != lower(request.host));
  const bool other_site =
      !request.fetch_site.empty() && request.fetch_site != "same-origin" && request.fetch_site != "none";
  if (other_origin || other_site) throw HttpError(403, "a page of another site may not ask this server");
}

void Service::check(const ServerRequest& request) {
  check_site(request);
  const bool of_models = request.path.starts_with(std::string(kModels) + "/");
  const auto* known = std::find_if(kPaths.begin(), kPaths.end(), [&](const Path& p) { return p.path == request.path; });
  const Path path = of_models ? kModelPath : known == kPaths.end() ? Path{} : *known;
  if (path.path.empty()) throw HttpError(404, "no such path; GET /openapi.json lists those of this server");
  const bool fits = path.post ? request.method == "POST" : request.method == "GET" || request.method == "HEAD";
  if (!fits) {
    const std::string allowed = path.post ? "POST" : "GET, HEAD";
    throw HttpError(405, request.path + " takes " + allowed, {{"Allow", allowed}});
  }
  // Hashes are compared, so that the time does not tell the length of the token either.
  constexpr std::string_view kBearer = "bearer ";
  const bool bears = lower(request.authorization.substr(0, kBearer.size())) == kBearer;
  const std::string given = bears ? request.authorization.substr(kBearer.size()) : "";
  if (path.secret && !options_.token.empty() && !equal_secrets(sha256(given), sha256(options_.token)))
    throw HttpError(401, "this server wants the field Authorization: Bearer TOKEN", {{"WWW-Authenticate", "Bearer"}});
  if (of_models && request.path.substr(kModels.size() + 1) != options_.name)
    throw HttpError(404, "no such model; this server has /models/" + options_.name);
  if (path.post && !is_json(request.content_type))
    throw HttpError(415, "the body is JSON: send it with Content-Type: application/json");
}

ServerResponse Service::answer(const ServerRequest& request) {
  if (request.path == "/health") return json_response({{"status", "ok"}});
  if (request.path == "/ready") return ready();
  if (request.path == "/metrics") return metrics();
  if (request.path == kModels)
    return json_response(ordered_json::array({{{"name", options_.name}, {"task", options_.task}}}));
  if (request.path == "/openapi.json") return openapi();
  if (request.path == "/") {
    // The page has its style and its script inside, and talks to this server alone.
    return {
        .content_type = "text/html; charset=utf-8",
        .body = std::string(kPage),
        .fields = {{"Content-Security-Policy",
                    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; "
                    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"}}};
  }
  return request.path == "/tokenize" ? tokens(request) : predict(request, request.path != "/predict");
}

ServerResponse Service::openapi() const {
  const std::lock_guard lock(mutex_);
  return {.body = openapi_};
}

ServerResponse Service::ready() const {
  const std::lock_guard lock(mutex_);
  if (draining_) throw HttpError(503, "the server is ending");
  if (batcher_ == nullptr) throw HttpError(503, "the model is being loaded");
  return json_response({{"status", "ready"}});
}

ServerResponse Service::metrics() const {
  const std::lock_guard lock(mutex_);
  const auto texts = batcher_ == nullptr ? 0 : batcher_->queued_texts();
  const auto tokens = batcher_ == nullptr ? 0 : batcher_->queued_tokens();
  const bool is_ready = batcher_ != nullptr && !draining_;
  const std::vector<MetricValue> values = {
      {"bert_queue_texts", "Texts that wait for a batch.", "gauge", texts},
      {"bert_queue_tokens", "Tokens that wait for a batch.", "gauge", tokens},
      {"bert_ready", "1 if /ready gives 200.", "gauge", is_ready ? 1 : 0},
      {"bert_connections", "Open connections.", "gauge", connections_.open},
      {"bert_connections_refused_total", "Connections that were refused because too many were open.", "counter",
       connections_.refused}};
  return {.content_type = "text/plain; version=0.0.4; charset=utf-8", .body = metrics_.text(values)};
}

ServerResponse Service::tokens(const ServerRequest& request) {
  wait_for_model(Clock::now() + std::chrono::duration_cast<Clock::duration>(options_.request));
  const PredictRequest parsed = parse_predict_request(request.body, {.max_texts = options_.max_texts});
  ordered_json list = ordered_json::array();
  for (const ModelInput& input : parsed.inputs) {
    const TextTokens tokens = model_->tokenize(input);
    list.push_back(
        {{"text", input.text}, {"tokens", tokens.tokens}, {"ids", tokens.ids}, {"truncated", tokens.truncated}});
  }
  return json_response(parsed.list ? list : list[0]);
}

/// The texts with their tokens. Throws HttpError if one has no answer, or if they are too many.
ModelTexts Service::encoded(const PredictRequest& request) const {
  ModelTexts texts;
  int64_t tokens = 0, answer_bytes = 0;
  const auto refuse = [](const std::string& what, int64_t most) {
    throw HttpError(413, what + " more than " + std::to_string(most) + ", the most for a request; send fewer texts");
  };
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    try {
      texts.push_back(model_->encode(request.inputs[i], request.options));
    } catch (const TextError& error) {
      throw HttpError(422, (request.list ? "inputs[" + std::to_string(i) + "]: " : "inputs: ") + error.reason);
    }
    tokens += texts.back()->tokens;
    answer_bytes += texts.back()->answer_bytes;
    if (tokens > options_.max_tokens) refuse("the tokens of the texts are", options_.max_tokens);
    if (answer_bytes > options_.max_answer_bytes) refuse("the bytes of the answer are", options_.max_answer_bytes);
  }
  return texts;
}

ServerResponse Service::predict(const ServerRequest& request, bool hugging_face) {
  const Clock::time_point deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(options_.request);
  Batcher& batcher = wait_for_model(deadline);
  const PredictRequest parsed = parse_predict_request(
      request.body, {.max_texts = options_.max_texts,
                     .form = model_->form(),
                     .parameters = model_->parameters(),
                     .defaults = hugging_face ? model_->hugging_face_defaults() : model_->defaults(),
                     .find_token = [this](const std::string& token) { return model_->find_token(token); },
                     .hugging_face = hugging_face});
  std::vector<std::shared_ptr<const Answer>> answers = batcher.ask(encoded(parsed), deadline);
  if (!parsed.list) {
    ordered_json answer = hugging_face ? answers[0]->as_hugging_face() : answers[0]->as_predict();
    return json_response(hugging_face && model_->hugging_face_lists_one() ? ordered_json::array({std::move(answer)})
                                                                          : std::move(answer));
  }
  return {.next_part = list_in_parts(std::move(answers), hugging_face)};
}

void Service::finished(const std::string& path, int status, double seconds) {
  const bool known = std::any_of(kPaths.begin(), kPaths.end(), [&](const Path& p) { return p.path == path; });
  const bool model = path == std::string(kModels) + "/" + options_.name;
  metrics_.request(known ? path : model ? std::string(kModelPath.path) : "other", status, seconds);
}

}  // namespace bert
