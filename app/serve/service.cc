#include "app/serve/service.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <utility>

#include "app/serve/embedded.h"
#include "app/serve/protocols/kserve.h"
#include "app/serve/protocols/openai.h"
#include "app/serve/protocols/pipelines.h"
#include "app/serve/protocols/rerank.h"
#include "app/serve/protocols/text_embeddings.h"
#include "app/system/crypto.h"

namespace bert {
namespace {

using nlohmann::ordered_json;

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

/// openapi.json with the paths for the tasks of `models`, and the inputs and the parameters that `model` takes.
std::string openapi_of(const Model& model, std::span<const std::unique_ptr<ServedModel>> models) {
  ordered_json document = ordered_json::parse(kOpenApi);
  constexpr const char* kTasks = "x-tasks";  // of an operation; missing: all
  ordered_json paths = ordered_json::object();
  for (const auto& [path, operations] : document["paths"].items()) {
    for (const auto& [method, operation] : operations.items()) {
      const auto tasks = operation.find(kTasks);
      const bool kept_path =
          tasks == operation.end() || std::any_of(models.begin(), models.end(), [&](const auto& each) {
            return std::find(tasks->begin(), tasks->end(), each->task()) != tasks->end();
          });
      if (!kept_path) continue;
      ordered_json kept = operation;
      kept.erase(kTasks);
      paths[path][method] = kept;
    }
  }
  document["paths"] = paths;
  ordered_json& schemas = document["components"]["schemas"];
  ordered_json inputs = ordered_json::array();
  const auto add = [&](const char* name) { inputs.push_back({{"$ref", std::string("#/components/schemas/") + name}}); };
  const bool pair = model.form() == InputForm::kPair;
  if (model.form() != InputForm::kQuestionAndContext && !pair) inputs.push_back({{"type", "string"}});
  if (model.form() == InputForm::kTextOrPair || pair) add("TextPair");
  if (model.form() == InputForm::kMarkedText) add("TextWithSpans");
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
  return json_text(document);
}

/// The form of the answers to requests that are refused.
using RefusalForm = ServerResponse (*)(const HttpError& error);

}  // namespace

struct Service::Route {
  std::string_view path;  // NAME stands for the name of a model
  bool post = false;      // takes POST; otherwise GET and HEAD
  bool secret = true;     // needs the token
  bool any_type = false;  // the body need not be sent as JSON
  std::function<ServerResponse(const Service& service, const Call& call)> answer;
  RefusalForm refusal = error_response;
};

/// All paths. Of two that fit a request, the first counts.
const std::vector<Service::Route>& Service::routes() {
  using Protocol = ServerResponse (*)(const Call& call);
  const auto of = [](Protocol protocol) {
    return [protocol](const Service&, const Call& call) { return protocol(call); };
  };
  const auto open = [](std::string_view path, auto answer) {
    return Route{.path = path, .secret = false, .answer = answer};
  };
  const auto get = [&](std::string_view path, Protocol protocol, RefusalForm refusal) {
    return Route{.path = path, .answer = of(protocol), .refusal = refusal};
  };
  const auto post = [&](std::string_view path, Protocol protocol, RefusalForm refusal) {
    return Route{.path = path, .post = true, .answer = of(protocol), .refusal = refusal};
  };
  static const std::vector<Route> kRoutes = {
      open("/", &Service::page),
      open("/health", &Service::health),
      open("/ready", &Service::ready),
      open("/openapi.json", &Service::openapi),
      {.path = "/metrics", .answer = &Service::metrics},
      {.path = "/models", .answer = &Service::models},
      post("/predict", predict_texts, error_response),
      post("/tokenize", tokens_of_texts, error_response),
      post("/models/NAME", named_answers, error_response),

      post("/", embed_root, embed_refusal),
      post("/embed", embed_texts, embed_refusal),
      post("/embed_all", embed_tokens, embed_refusal),
      post("/similarity", similar_sentences, embed_refusal),
      post("/rerank", rank_texts, embed_refusal),
      get("/info", served_info, embed_refusal),

      post("/v1/embeddings", openai_embeddings, openai_refusal),
      get("/v1/models", openai_models, openai_refusal),
      get("/v1/models/NAME", openai_model, openai_refusal),

      post("/v1/rerank", cohere_rerank, cohere_refusal),
      post("/v2/rerank", cohere_rerank, cohere_refusal),

      get("/v2", kserve_server, kserve_refusal),
      open("/v2/health/live", of(kserve_live)),
      open("/v2/health/ready", of(kserve_ready)),
      {.path = "/v2/models/NAME/infer",
       .post = true,
       .any_type = true,
       .answer = of(kserve_infer),
       .refusal = kserve_refusal},
      {.path = "/v2/repository/index",
       .post = true,
       .any_type = true,
       .answer = of(kserve_index),
       .refusal = kserve_refusal},
      get("/v2/models/NAME/ready", kserve_model_ready, kserve_refusal),
      get("/v2/models/NAME/config", kserve_config, kserve_refusal),
      get("/v2/models/NAME", kserve_model, kserve_refusal),
  };
  return kRoutes;
}

const Service::Route* Service::route_of(const std::string& path, std::string& name) {
  constexpr std::string_view kName = "NAME", kKserveModels = "/v2/models/";
  for (const Route& route : routes()) {
    const size_t at = route.path.find(kName);
    if (at == std::string_view::npos) {
      if (route.path == path) return &route;
      continue;
    }
    const std::string_view begin = route.path.substr(0, at), end = route.path.substr(at + kName.size());
    if (path.size() < begin.size() + end.size() || !path.starts_with(begin) || !path.ends_with(end)) continue;
    name = path.substr(begin.size(), path.size() - begin.size() - end.size());
    constexpr std::string_view kVersion = "/versions/1";  // in KServe's protocol; a model has this one alone
    if (begin == kKserveModels && name.ends_with(kVersion)) name.resize(name.size() - kVersion.size());
    return &route;
  }
  return nullptr;
}

const Service::Route* Service::route_of(const ServerRequest& request, std::string& name) {
  const Route* first = route_of(request.path, name);
  if (first == nullptr) return nullptr;
  const bool post = request.method == "POST";
  for (const Route& route : routes())
    if (route.path == first->path && route.post == post) return &route;
  return first;
}

Service::Service(ServiceOptions options, const ConnectionCounts& connections)
    : options_(std::move(options)), connections_(connections), openapi_(kOpenApi) {
  std::vector<ModelName> names = {{options_.name, options_.task}};
  names.insert(names.end(), options_.further.begin(), options_.further.end());
  for (const ModelName& each : names) {
    models_.push_back(std::make_unique<ServedModel>(each.name, each.task, options_, [this](const BatchDone& done) {
      metrics_.batch(done.texts, done.tokens, done.seconds);
    }));
  }
}

Service::~Service() { end(); }

void Service::set_model(std::unique_ptr<Model> model, size_t index) {
  if (index == 0) {
    const std::lock_guard lock(mutex_);
    openapi_ = openapi_of(*model, models_);
  }
  models_[index]->set(std::move(model));
}

std::string Service::model_lost() const {
  for (const auto& model : models_)
    if (std::string lost = model->lost(); !lost.empty()) return lost;
  return "";
}

void Service::end() {
  for (const auto& model : models_) model->end();
}

bool Service::answers_when_full(const ServerRequest& request) const {
  return request.path == "/health" || request.path == "/ready" || request.path.starts_with("/v2/health/");
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
  std::string name;
  const Route* route = route_of(request, name);
  if (route == nullptr) throw HttpError(404, "no such path; GET /openapi.json lists those of this server");
  const bool fits = route->post ? request.method == "POST" : request.method == "GET" || request.method == "HEAD";
  if (!fits) {
    std::string allowed;
    for (const Route& each : routes()) {
      if (each.path == route->path)
        allowed += (allowed.empty() ? "" : ", ") + std::string(each.post ? "POST" : "GET, HEAD");
    }
    throw HttpError(405, request.path + " takes " + allowed, {{"Allow", allowed}});
  }
  // Hashes are compared, so that the time does not tell the length of the token either.
  constexpr std::string_view kBearer = "bearer ";
  const bool bears = lower(request.authorization.substr(0, kBearer.size())) == kBearer;
  const std::string given = bears ? request.authorization.substr(kBearer.size()) : "";
  if (route->secret && !options_.token.empty() && !equal_secrets(sha256(given), sha256(options_.token)))
    throw HttpError(401, "this server wants the field Authorization: Bearer TOKEN", {{"WWW-Authenticate", "Bearer"}});
  if (const size_t place = route->path.find("NAME"); place != std::string_view::npos) {
    const bool known =
        std::any_of(models_.begin(), models_.end(), [&](const auto& model) { return model->name() == name; });
    const std::string begin(route->path.substr(0, place)), end(route->path.substr(place + 4));
    std::string paths;
    for (const auto& model : models_) paths += (paths.empty() ? "" : ", ") + begin + model->name() + end;
    if (!known) throw HttpError(404, "no such model; this server has " + paths);
  }
  if (route->post && !route->any_type && !is_json(request.content_type))
    throw HttpError(415, "the body is JSON: send it with Content-Type: application/json");
}

ServerResponse Service::answer(const ServerRequest& request) {
  std::string name;
  const Route* route = route_of(request, name);
  return route->answer(*this, {.request = request,
                               .name = name,
                               .models = models_,
                               .options = options_,
                               .deadline = ServedModel::Clock::now() +
                                           std::chrono::duration_cast<ServedModel::Clock::duration>(options_.request),
                               .draining = draining_});
}

ServerResponse Service::refusal(const ServerRequest& request, const HttpError& error) const {
  std::string name;
  const Route* route = route_of(request, name);
  return route == nullptr ? error_response(error) : route->refusal(error);
}

ServerResponse Service::health(const Call& /*call*/) const { return json_response({{"status", "ok"}}); }

ServerResponse Service::models(const Call& /*call*/) const {
  ordered_json list = ordered_json::array();
  for (const auto& model : models_) list.push_back({{"name", model->name()}, {"task", model->task()}});
  return json_response(list);
}

/// The page has its style and its script inside, and talks to this server alone.
ServerResponse Service::page(const Call& /*call*/) const {
  return {.content_type = "text/html; charset=utf-8",
          .body = std::string(kPage),
          .fields = {{"Content-Security-Policy",
                      "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; "
                      "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"}}};
}

ServerResponse Service::openapi(const Call& /*call*/) const {
  const std::lock_guard lock(mutex_);
  return {.body = openapi_};
}

ServerResponse Service::ready(const Call& call) const {
  kserve_ready(call);
  return json_response({{"status", "ready"}});
}

ServerResponse Service::metrics(const Call& /*call*/) const {
  int64_t texts = 0, tokens = 0;
  bool is_ready = !draining_;
  for (const auto& model : models_) {
    texts += model->queued_texts();
    tokens += model->queued_tokens();
    is_ready = is_ready && model->is_loaded();
  }
  const std::vector<MetricValue> values = {
      {"bert_queue_texts", "Texts that wait for a batch.", "gauge", texts},
      {"bert_queue_tokens", "Tokens that wait for a batch.", "gauge", tokens},
      {"bert_ready", "1 if /ready gives 200.", "gauge", is_ready ? 1 : 0},
      {"bert_connections", "Open connections.", "gauge", connections_.open},
      {"bert_connections_refused_total", "Connections that were refused because too many were open.", "counter",
       connections_.refused}};
  return {.content_type = "text/plain; version=0.0.4; charset=utf-8", .body = metrics_.text(values)};
}

void Service::finished(const std::string& path, int status, double seconds) {
  std::string name;
  const Route* route = route_of(path, name);
  const bool known =
      route != nullptr && (name.empty() || std::any_of(models_.begin(), models_.end(),
                                                       [&](const auto& model) { return model->name() == name; }));
  metrics_.request(known ? std::string(route->path) : "other", status, seconds);
}

}  // namespace bert
