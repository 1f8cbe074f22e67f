// Paths, bodies and figures, with a model of a few lines behind them.
#include "app/serve/service.h"

#include <future>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "app/serve/embedded.h"
#include "tests/serve/fake_model.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::Contains;
using bert::testing::FakeModel;
using nlohmann::json;

namespace {

struct TestService {
  explicit TestService(ServiceOptions options = {}, bool loaded = true)
      : service(
            [&] {
              options.name = "small";
              options.task = "fill-mask";
              return options;
            }(),
            counts) {
    if (loaded) load();
  }
  void load() {
    auto made = std::make_unique<FakeModel>();
    model = made.get();
    service.set_model(std::move(made));
  }
  /// Status, and the body or the reason.
  std::pair<int, std::string> ask(const ServerRequest& request) {
    try {
      service.check(request);
      ServerResponse response = service.answer(request);
      if (response.next_part != nullptr) {
        for (std::string part = response.next_part(); !part.empty(); part = response.next_part()) response.body += part;
      }
      return {response.status, response.body};
    } catch (const HttpError& error) {
      return {error.status, error.what()};
    }
  }
  std::pair<int, std::string> post(const std::string& path, const std::string& body) {
    return ask({.method = "POST", .path = path, .content_type = "application/json", .body = body});
  }
  std::pair<int, std::string> get(const std::string& path, const std::string& authorization = "") {
    return ask({.method = "GET", .path = path, .authorization = authorization});
  }
  ConnectionCounts counts;
  FakeModel* model = nullptr;
  Service service;
};

using Answered = std::pair<int, std::string>;

}  // namespace

TEST_CASE("One text gets an object, a list gets a list, and /models/NAME the shape of Hugging Face", "[unit][serve]") {
  TestService server;
  CHECK(server.post("/predict", R"({"inputs": "a"})") == Answered(200, R"({"text":"a","top_k":5})"));
  CHECK(server.post("/predict", R"({"inputs": ["a"]})") == Answered(200, R"([{"text":"a","top_k":5}])"));
  CHECK(server.post("/predict", R"({"inputs": ["a", "ü"], "parameters": {"top_k": 2}})") ==
        Answered(200, R"([{"text":"a","top_k":2},{"text":"ü","top_k":2}])"));
  CHECK(server.post("/models/small", R"({"inputs": "a", "options": {"wait_for_model": true}})") ==
        Answered(200, R"("a")"));
  CHECK(server.post("/models/small", R"({"inputs": ["a", "b"]})") == Answered(200, R"(["a","b"])"));
  CHECK(server.post("/models/other", R"({"inputs": "a"})") ==
        Answered(404, "no such model; this server has /models/small"));
  CHECK(server.get("/models") == Answered(200, R"([{"name":"small","task":"fill-mask"}])"));
  CHECK(server.post("/tokenize", R"({"inputs": "a"})") ==
        Answered(200, R"({"text":"a","tokens":["a"],"ids":[7],"truncated":false})"));
}

TEST_CASE("A body of another form is refused with its place", "[unit][serve]") {
  TestService server({.max_texts = 3});
  const std::vector<std::pair<std::string, Answered>> cases = {
      {"", {400, "body: byte 1: this is not JSON"}},
      {"{", {400, "body: byte 2: this is not JSON"}},
      {std::string(100'000, '['), {400, "body: nested deeper than 64 levels"}},
      {R"({"inputs": "a", "inputs": "b"})", {400, "body: duplicate key \"inputs\""}},
      {"{\"inputs\": \"\xff\"}", {400, "body: byte 13: this is not JSON"}},
      {R"({"inputs": "\ud800"})", {400, "body: byte 19: this is not JSON"}},
      {R"({"inputs": "a", "parameters": {"top_k": 1e999}})", {400, "body: [json.exception.out_of_range.406]"}},
      {"3", {422, "body: want an object, got number"}},
      {"{}", {422, "body: \"inputs\" is missing: want a text, or a list"}},
      {R"({"inputs": 3})", {422, "inputs: want a text, got number"}},
      {R"({"inputs": null})", {422, "inputs: want a text, got null"}},
      {R"({"inputs": []})", {422, "inputs: want at least one text"}},
      {R"({"inputs": ["a", ["b"]]})", {422, "inputs[1]: want a text, got array"}},
      {R"({"inputs": ["a", "b", "c", "d"]})", {413, "inputs: 4 texts; at most 3 are taken in a request"}},
      {R"({"input": "a"})", {422, "body: unknown key \"input\"; known: inputs, parameters"}},
      {R"({"inputs": "a", "options": {}})", {422, "body: unknown key \"options\"; known: inputs, parameters"}},
      {R"({"inputs": "a", "parameters": 3})", {422, "parameters: want an object, got number"}},
      {R"({"inputs": "a", "parameters": {"topk": 3}})",
       {422, "parameters: unknown key \"topk\"; known: top_k, targets, truncate"}},
      {R"({"inputs": "a", "parameters": {"normalize": true}})",
       {422, "parameters: \"normalize\" of Hugging Face's API is not supported for this task; known: top_k"}},
      {R"({"inputs": "a", "parameters": {"targets": ["cat", "dog"]}})",
       {422, "parameters: \"targets\": \"dog\" is no token of the vocabulary"}},
      {R"({"inputs": "a", "parameters": {"targets": 3}})", {422, "parameters: \"targets\": want texts, got 3"}},
      {R"({"inputs": "a", "parameters": {"truncate": "yes"}})",
       {422, "parameters: \"truncate\": want true or false, got \"yes\""}},
      {R"({"inputs": "a", "parameters": {"top_k": 0}})",
       {422, "parameters: \"top_k\": want an integer from 1 to 1000"}},
      {R"({"inputs": "a", "parameters": {"top_k": 1001}})",
       {422, "parameters: \"top_k\": want an integer from 1 to 1000"}},
      {R"({"inputs": "a", "parameters": {"top_k": 18446744073709551615}})",
       {422, "parameters: \"top_k\": want an integer from 1 to 1000"}},
      {R"({"inputs": "a", "parameters": {"top_k": 2.5}})",
       {422, "parameters: \"top_k\": want an integer from 1 to 1000"}},
      {R"({"inputs": ["a", "unknown"]})", {422, "inputs[1]: the text is unknown"}},
      {R"({"inputs": "unknown"})", {422, "inputs: the text is unknown"}},
  };
  for (const auto& [body, want] : cases) {
    CAPTURE(body.substr(0, 100));
    const Answered got = server.post("/predict", body);
    CHECK(got.first == want.first);
    CHECK(got.second.substr(0, want.second.size()) == want.second);
  }
}

TEST_CASE("Too many tokens, and too large an answer, are refused before they are computed", "[unit][serve]") {
  TestService server({.max_tokens = 4, .max_answer_bytes = 20});
  CHECK(server.post("/predict", R"({"inputs": ["a b", "c d"], "parameters": {"top_k": 1}})").first == 200);
  CHECK(server.post("/predict", R"({"inputs": ["a b", "c d e"], "parameters": {"top_k": 1}})") ==
        Answered(413, "the tokens of the texts are more than 4, the most for a request; send fewer texts"));
  CHECK(server.post("/predict", R"({"inputs": "abcde", "parameters": {"top_k": 5}})") ==
        Answered(413, "the bytes of the answer are more than 20, the most for a request; send fewer texts"));
}

TEST_CASE("A model answers its example before it counts as loaded", "[unit][serve]") {
  TestService server({}, /*loaded=*/false);
  auto made = std::make_unique<FakeModel>();
  FakeModel* const model = made.get();
  model->first = ModelInput{.text = "first"};
  model->set_open(false);
  std::future<void> loading = std::async(std::launch::async, [&] { server.service.set_model(std::move(made)); });
  model->wait_for_calls(1);
  CHECK(server.get("/ready").first == 503);
  model->set_open(true);
  loading.get();
  CHECK(server.get("/ready").first == 200);
  CHECK(model->batches() == std::vector<std::vector<std::string>>{{"first"}});
  CHECK_THAT(server.get("/metrics").second, Contains("bert_batch_texts_count 0"));  // it is no request

  TestService broken({}, /*loaded=*/false);
  auto fails = std::make_unique<FakeModel>();
  fails->first = ModelInput{.text = "broken"};
  CHECK_THROWS_WITH(broken.service.set_model(std::move(fails)), "the model is broken");
  CHECK(broken.get("/ready").first == 503);
}

TEST_CASE("Unknown paths get 404, wrong methods 405 with those allowed, bodies of another type 415", "[unit][serve]") {
  TestService server;
  for (const char* path : {"/nothing", "/predict/", "//predict", "/Predict", "/models/", "/health/x", ""}) {
    CAPTURE(path);
    CHECK(server.get(path).first == (std::string(path) == "/models/" ? 405 : 404));
  }
  for (const char* path : {"/predict", "/tokenize", "/models/small"}) CHECK(server.get(path).first == 405);
  try {
    server.service.check({.method = "PUT", .path = "/health"});
    FAIL("PUT was taken");
  } catch (const HttpError& error) {
    CHECK(error.status == 405);
    CHECK(error.fields == std::vector<HttpField>{{"Allow", "GET, HEAD"}});
  }
  const auto typed = [&](const std::string& type) {
    return server.ask({.method = "POST", .path = "/predict", .content_type = type, .body = R"({"inputs":"a"})"}).first;
  };
  CHECK(typed("application/json; charset=utf-8") == 200);
  CHECK(typed("Application/JSON") == 200);
  CHECK(typed("") == 415);
  CHECK(typed("text/plain") == 415);
  CHECK(typed("multipart/form-data; boundary=x") == 415);
}

TEST_CASE("A page of another site, and a name that is not the server's, are refused", "[unit][serve]") {
  TestService server({.hosts = {"localhost", "127.0.0.1", "::1"}});
  ServerRequest request{
      .method = "POST", .path = "/predict", .content_type = "application/json", .body = R"({"inputs":"a"})"};
  const auto named = [&](const std::string& host) {
    request.host = host;
    return server.ask(request).first;
  };
  for (const char* host : {"", "localhost", "LOCALHOST:8080", "127.0.0.1:8080", "[::1]:8080", "a.localhost:80"})
    CHECK(named(host) == 200);
  for (const char* host : {"evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.2", "[::2]"})
    CHECK(named(host) == 421);
  request.host = "localhost:8080";
  const auto from = [&](const std::string& origin, const std::string& site) {
    request.origin = origin;
    request.fetch_site = site;
    return server.ask(request).first;
  };
  CHECK(from("http://localhost:8080", "same-origin") == 200);
  CHECK(from("https://LOCALHOST:8080", "") == 200);  // a proxy in front has TLS
  CHECK(from("", "none") == 200);
  CHECK(from("http://evil.example", "cross-site") == 403);
  CHECK(from("http://evil.example", "") == 403);
  CHECK(from("http://localhost:9090", "") == 403);
  CHECK(from("null", "") == 403);
  CHECK(from("", "same-site") == 403);
  request.method = "GET";
  request.path = "/";
  CHECK(from("", "cross-site") == 200);  // a link to the page
}

TEST_CASE("With a token, questions need it; probes, the page and the description do not", "[unit][serve]") {
  TestService server({.token = "0123456789abcdef"});
  for (const char* path : {"/", "/health", "/ready", "/openapi.json"}) CHECK(server.get(path).first == 200);
  for (const char* given : {"", "0123456789abcdef", "Bearer ", "Bearer 0123456789abcdeF", "Bearer 0123456789abcdef0",
                            "Basic 0123456789abcdef"}) {
    CAPTURE(given);
    CHECK(server.get("/metrics", given).first == 401);
    CHECK(server.get("/models", given).first == 401);
  }
  CHECK(server.post("/predict", R"({"inputs": "a"})").first == 401);
  CHECK(server.post("/models/small", R"({"inputs": "a"})").first == 401);
  CHECK(server.post("/models/other", R"({"inputs": "a"})").first == 401);  // names are not told
  CHECK(server.get("/metrics", "Bearer 0123456789abcdef").first == 200);
  CHECK(server.get("/metrics", "bEARER 0123456789abcdef").first == 200);  // RFC 7235, section 2.1
}

TEST_CASE("/ready says that the model is loaded and the server not draining; questions wait for the model",
          "[unit][serve]") {
  TestService server({}, /*loaded=*/false);
  CHECK(server.get("/health") == Answered(200, R"({"status":"ok"})"));
  CHECK(server.get("/ready") == Answered(503, "the model is being loaded"));
  auto early = std::async(std::launch::async, [&] { return server.post("/predict", R"({"inputs": "a"})"); });
  CHECK(early.wait_for(std::chrono::milliseconds(50)) == std::future_status::timeout);
  server.load();
  CHECK(early.get().first == 200);
  CHECK(server.get("/ready") == Answered(200, R"({"status":"ready"})"));
  server.service.drain();
  for (const char* path : {"/ready", "/v2/health/ready", "/v2/models/small/ready"})
    CHECK(server.get(path) == Answered(503, "the server is ending"));
  CHECK(server.post("/predict", R"({"inputs": "a"})").first == 200);
  server.service.end();
  CHECK(server.post("/predict", R"({"inputs": "a"})").first == 503);

  TestService unloaded({.request = std::chrono::duration<double>(0.05)}, /*loaded=*/false);
  CHECK(unloaded.post("/predict", R"({"inputs": "a"})") == Answered(503, "the model is being loaded"));
}

TEST_CASE("The figures are in the text format of Prometheus", "[unit][serve]") {
  TestService server;
  server.post("/predict", R"({"inputs": ["a b", "c"]})");
  server.service.finished("/predict", 200, 0.003);
  server.service.finished("/predict", 200, 40);
  server.service.finished("/models/small", 422, 0.003);
  server.service.finished("/any\"\nthing", 404, 0.003);
  server.counts.open = 3;
  const std::string text = server.get("/metrics").second;
  for (const char* line :
       {"# HELP bert_requests_total Answered requests.\n# TYPE bert_requests_total counter\n",
        "bert_requests_total{path=\"/predict\",status=\"200\"} 2\n",
        "bert_requests_total{path=\"/models/NAME\",status=\"422\"} 1\n",
        "bert_requests_total{path=\"other\",status=\"404\"} 1\n", "# TYPE bert_request_seconds histogram\n",
        "bert_request_seconds_bucket{le=\"0.0025\"} 0\n", "bert_request_seconds_bucket{le=\"0.005\"} 3\n",
        "bert_request_seconds_bucket{le=\"30\"} 3\n", "bert_request_seconds_bucket{le=\"+Inf\"} 4\n",
        "bert_request_seconds_count 4\n", "bert_texts_total 2\n", "bert_tokens_total 3\n",
        "bert_batch_texts_bucket{le=\"2\"} 1\n", "bert_batch_tokens_sum 3\n", "bert_queue_tokens 0\n", "bert_ready 1\n",
        "bert_connections 3\n"}) {
    CHECK_THAT(text, Contains(line));
  }
  CHECK(text.ends_with("\n"));
}

TEST_CASE("The page needs nothing from elsewhere, and openapi.json has the paths of the server", "[unit][serve]") {
  TestService server;
  CHECK(kPage.find("<html") != std::string_view::npos);
  for (const char* reference : {"src=", "http://", "https://", "@import", "url(", "innerHTML"}) {
    CAPTURE(reference);
    CHECK(kPage.find(reference) == std::string_view::npos);
  }
  const json description = json::parse(server.get("/openapi.json").second);
  CHECK(description["openapi"] == "3.0.3");
  CHECK(description["paths"].contains("/v2/models/{name}/infer"));
  CHECK_FALSE(description["paths"].contains("/v1/embeddings"));  // of another task
  for (const auto& [path, methods] : description["paths"].items()) {
    CAPTURE(path);
    std::string real = path;
    if (const size_t name = path.find("{name}"); name != std::string::npos) real.replace(name, 6, "small");
    for (const auto& [method, operation] : methods.items()) {
      const json example =
          operation.value("/requestBody/content/application~1json/example"_json_pointer, json{{"inputs", "a"}});
      const Answered answered = method == "get" ? server.get(real) : server.post(real, example.dump());
      CHECK(answered == Answered(200, answered.second));
    }
  }
}
