// The protocols of bert serve, with models of a few lines behind them. Base64 is written by hand.
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "app/serve/protocols/number_text.h"
#include "tests/serve/numbers_server.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::Contains;
using bert::testing::NumbersServer;
using bert::testing::Refused;
using bert::testing::Reply;
using nlohmann::json;
using nlohmann::ordered_json;

TEST_CASE("Numbers are written with the fewest digits, and in base64", "[unit][serve]") {
  std::string text;
  append_numbers(text, std::vector<float>{1, 0.1F, -2.5F, 1e-7F, 16777216, NAN});
  CHECK(text == "[1,0.1,-2.5,1e-07,16777216,null]");
  // 1, 0.5 and -2 are 00 00 80 3f, 00 00 00 3f and 00 00 00 c0.
  CHECK(base64_of(std::vector<float>{1, 0.5F, -2}) == "AACAPwAAAD8AAADA");
  CHECK(base64_of(std::vector<float>{1}) == "AACAPw==");
  CHECK(base64_of(std::vector<float>{1, 0.5F}) == "AACAPwAAAD8=");
  CHECK(base64_of({}).empty());
}

TEST_CASE("OpenAI's embeddings", "[unit][serve]") {
  NumbersServer server("embedding");
  CHECK(server.post("/v1/embeddings", R"({"model": "small", "input": "a"})").body ==
        R"({"object":"list","data":[{"object":"embedding","index":0,"embedding":[1,0.5,-2]}],"model":"small",)"
        R"("usage":{"prompt_tokens":4,"total_tokens":4}})");
  CHECK(server.model->wishes.normalize == true);
  CHECK(server.post("/v1/embeddings", R"({"input": ["a", "bcd"], "encoding_format": "base64", "user": "me"})").body ==
        R"({"object":"list","data":[{"object":"embedding","index":0,"embedding":"AACAPwAAAD8AAADA"},)"
        R"({"object":"embedding","index":1,"embedding":"AACAPwAAwD8AAADA"}],"model":"small",)"
        R"("usage":{"prompt_tokens":8,"total_tokens":8}})");
  const auto vectors = [&](const std::string& body) {
    json list = json::array();
    const json reply = server.post("/v1/embeddings", body).value();
    for (const json& each : reply.at("data")) list.push_back(each["embedding"]);
    return list;
  };
  CHECK(vectors(R"({"input": "a", "dimensions": 2})") == json({{1, 0.5}}));
  CHECK(vectors(R"({"input": [5, 6]})") == json::array({{5, 6}}));
  CHECK(vectors(R"({"input": [[5, 6], [7, 8, 9]]})") == json({{5, 6}, {7, 8, 9}}));

  const json models = server.get("/v1/models").value();
  CHECK(models["object"] == "list");
  CHECK(models["data"][0]["id"] == "small");
  CHECK(server.get("/v1/models/small").value() == models["data"][0]);
}

TEST_CASE("Errors of OpenAI's paths have its form", "[unit][serve]") {
  NumbersServer server("embedding", {.max_texts = 2});
  const json code;  // null
  struct Case {
    const char* body;
    int status;
    const char* message;
    json param, code;
  };
  for (const Case& each : std::vector<Case>{
           {R"({"model": "small", "input": 3})", 400, "input: want a text, a list of texts", "input", {}},
           {R"({"model": "small", "input": []})", 400, "input: want one text or more", "input", {}},
           {R"({"model": "small", "input": ["a", 3]})", 400, "input[1]: want a text", "input", {}},
           {R"({"model": "small", "input": [1, "a"]})", 400, "input: want ids of tokens, got \"a\"", "input", {}},
           {R"({"model": "small", "input": [[1], [-1]]})", 400, "input[1]: want ids of tokens", "input", {}},
           {R"({"model": "small", "input": ["a", "unknown"]})", 400, "input[1]: the text is unknown", "input", {}},
           {R"({"model": "small", "input": ["a", "b", "c"]})", 413, "input: 3 texts; at most 2", "input", {}},
           {R"({"model": "small"})", 400, "input: is missing", "input", {}},
           {R"({"model": 3, "input": "a"})", 400, "model: want a text", "model", {}},
           {R"({"model": "other", "input": "a"})", 404, "model: there is no \"other\"; this server has small", "model",
            "model_not_found"},
           {R"({"input": "a", "encoding_format": "hex"})",
            400,
            "encoding_format: want float or base64",
            "encoding_format",
            {}},
           {R"({"input": "a", "dimensions": 0})", 400, "dimensions: want an integer from 1", "dimensions", {}},
           {R"({"input": "a", "dimensions": 4})", 400, "dimensions: want an integer from 1 to 3", "dimensions", {}},
           {R"({"input": "a", "inputs": "b"})", 400, "body: unknown key \"inputs\"", {}, {}},
           {"{", 400, "body: byte 2: this is not JSON", {}, {}},
           {"3", 400, "body: want an object, got number", {}, {}}}) {
    CAPTURE(each.body);
    const Reply reply = server.post("/v1/embeddings", each.body);
    CHECK(reply.status == each.status);
    const json error = reply.value().at("error");
    CHECK_THAT(error["message"].get<std::string>(), Contains(each.message));
    CHECK(error["type"] == "invalid_request_error");
    CHECK(error["param"] == each.param);
    CHECK(error["code"] == each.code);
  }
  const Reply broken = server.post("/v1/embeddings", R"({"input": "broken"})");
  CHECK(broken.status == 500);
  CHECK(broken.value()["error"]["type"] == "server_error");
  CHECK(server.get("/v1/models/other").value()["error"]["code"] == "model_not_found");
  CHECK(server.get("/v1/embeddings").status == 405);
  CHECK(server.get("/v1/embeddings").value()["error"]["message"] == "/v1/embeddings takes POST");
  NumbersServer secret("embedding", {.token = "0123456789abcdef"});
  CHECK(secret.get("/v1/models").value()["error"]["code"] == "invalid_api_key");
  NumbersServer other("fill-mask");
  const Reply task = other.post("/v1/embeddings", R"({"input": "a"})");
  CHECK(task.status == 400);
  CHECK_THAT(task.body, Contains("small is served for fill-mask; this path needs bert serve --task embedding"));
}

TEST_CASE("text-embeddings-inference's vectors and similarities", "[unit][serve]") {
  NumbersServer server("embedding");
  for (const char* path : {"/", "/embed"}) {
    CAPTURE(path);
    CHECK(server.post(path, R"({"inputs": "a"})").body == "[[1,0.5,-2]]");  // a list also for one text
    CHECK(server.model->wishes.normalize == true);
    CHECK(server.post(path, R"({"inputs": ["a", "bc"], "normalize": false, "truncate": true})").body ==
          "[[1,0.5,-2],[1,1,-2]]");
    CHECK(server.model->wishes.normalize == false);
    CHECK(server.model->wishes.long_texts == LongTexts::kTruncate);
    server.post(path, R"({"inputs": "a", "truncate": false, "prompt_name": "query", "options": {}})");
    CHECK(server.model->wishes.long_texts == LongTexts::kRefuse);
    CHECK(server.model->wishes.prompt_name == "query");
    CHECK(server.model->wishes.cut_at_begin == std::nullopt);
    for (const auto& [side, at_begin] :
         {std::pair("Left", true), std::pair("left", true), std::pair("Right", false), std::pair("right", false)}) {
      // huggingface_hub sends encoding_format, and other clients other members, which are ignored there.
      const json body = {{"inputs", "a"}, {"truncation_direction", side}, {"encoding_format", nullptr}, {"top_n", 3}};
      CHECK(server.post(path, body.dump()).status == 200);
      CHECK(server.model->wishes.cut_at_begin == at_begin);
    }
    CHECK(server.post(path, R"({"inputs": "a", "parameters": {"dimensions": 2}, "truncate": null})").body ==
          "[[1,0.5]]");
    CHECK(server.model->wishes.long_texts == std::nullopt);
  }
  CHECK(server.post("/embed_all", R"({"inputs": ["a", "b"]})").body == "[[[1,2,3],[4,5,6]],[[1,2,3],[4,5,6]]]");
  const std::string question = R"({"inputs": {"source_sentence": "a", "sentences": ["a", "bcd"]}})";
  // 1 + 0.25 + 4, and 1 + 0.75 + 4: the model of this test does not normalise.
  CHECK(server.post("/similarity", question).body == "[5.25,5.75]");
  CHECK(server.post("/", question).body == "[5.25,5.75]");
  CHECK(server.post("/models/small", question).body == "[5.25,5.75]");  // as huggingface_hub asks a named model
  const json info = server.get("/info").value();
  CHECK(info["model_id"] == "small");
  CHECK(info["model_type"] == json{{"embedding", {{"pooling", "mean"}}}});
  CHECK(info["max_input_length"] == 128);
  CHECK(info["model_dtype"] == "float32");
  CHECK(info["auto_truncate"] == true);
  // Source: text-embeddings-inference, router/src/lib.rs (Info).
  for (const char* field :
       {"model_id", "model_sha", "model_dtype", "served_model_name", "model_type", "max_concurrent_requests",
        "max_input_length", "max_batch_tokens", "max_batch_requests", "max_client_batch_size", "auto_truncate",
        "tokenization_workers", "version", "sha", "docker_label"}) {
    CAPTURE(field);
    CHECK(info.contains(field));
  }
  CHECK(info["max_client_batch_size"] == 2048);
}

TEST_CASE("Errors of text-embeddings-inference's paths have its form and its codes", "[unit][serve]") {
  NumbersServer server("embedding", {.max_texts = 2}), reranker("rerank");
  const auto check = [](NumbersServer& asked, const Refused& each, const char* type) {
    CAPTURE(each.path, each.body);
    const Reply reply = asked.post(each.path, each.body);
    CHECK(reply.status == each.status);
    const json error = reply.value();
    CHECK_THAT(error.at("error").get<std::string>(), Contains(each.part));
    CHECK(error.at("error_type") == type);
  };
  for (const Refused& each : std::vector<Refused>{
           {"/embed", "{", 400, "this is not JSON"},
           {"/embed", "[]", 422, "body: want an object, got array"},
           {"/embed", R"({"inputs": 3})", 422, "inputs: want a text"},
           {"/embed", R"({"texts": "a"})", 422, "inputs: is missing"},
           {"/embed", R"({})", 422, "inputs: is missing"},
           {"/embed", R"({"inputs": "a", "normalize": 1})", 422, "normalize: want true or false, got 1"},
           {"/embed", R"({"inputs": "a", "truncation_direction": "up"})", 422, "want Left or Right, got \"up\""},
           {"/embed", R"({"inputs": "a", "parameters": 3})", 422, "parameters: want an object"},
           {"/embed", R"({"inputs": ["a", "b", "c"]})", 413, "inputs: 3 texts; at most 2"},
           {"/embed", R"({"inputs": ["a", "unknown"]})", 413, "inputs[1]: the text is unknown"},
           {"/similarity", R"({"inputs": "a"})", 422, "inputs: want an object, got string"},
           {"/similarity", R"({"inputs": {"source_sentence": "a"}})", 422, "sentences: is missing"}})
    check(server, each, "Validation");
  for (const Refused& each : std::vector<Refused>{
           {"/embed", R"({"inputs": []})", 400, "inputs: want one text or more"},
           {"/embed", R"({"inputs": [[]]})", 400, "inputs[0]: want one id of a token or more"},
           {"/embed_all", R"({"inputs": []})", 400, "inputs: want one text or more"},
           {"/similarity", R"({"inputs": {"source_sentence": "a", "sentences": []}})", 400, "one sentence or more"}})
    check(server, each, "Empty");
  check(reranker, {"/rerank", R"({"query": "q", "texts": []})", 400, "texts: want one passage or more"}, "Empty");
  check(server, {"/embed", R"({"inputs": "broken"})", 424, "internal error"}, "Backend");
  check(server, {"/rerank", R"({"query": "a", "texts": ["b"]})", 424, "needs bert serve --task rerank"}, "Backend");
  check(reranker, {"/embed", R"({"inputs": "a"})", 424, "needs bert serve --task embedding"}, "Backend");
  NumbersServer full("embedding", {.batch = {.max_queue_tokens = 3}});
  check(full, {"/embed", R"({"inputs": "a"})", 429, "the queue is full"}, "Overloaded");
  CHECK(full.post("/embed", R"({"inputs": "a"})").fields.front().first == "Retry-After");
  full.service.end();
  check(full, {"/embed", R"({"inputs": "a"})", 503, "the server is ending"}, "Unhealthy");
}

TEST_CASE("Rerankers rank, best first, for clients of text-embeddings-inference, Cohere and Jina", "[unit][serve]") {
  NumbersServer server("rerank");
  CHECK(server.post("/rerank", R"({"query": "q", "texts": ["ax", "x", "abcx"], "return_text": true})").body ==
        R"([{"index":1,"text":"x","score":1},{"index":0,"text":"ax","score":0.5},)"
        R"({"index":2,"text":"abcx","score":0.25}])");
  CHECK(server.model->wishes.function_to_apply == FunctionToApply::kSigmoid);
  CHECK(server.post("/", R"({"query": "q", "texts": ["ax", "x"], "raw_scores": true})").body ==
        R"([{"index":1,"score":1},{"index":0,"score":0.5}])");
  CHECK(server.model->wishes.function_to_apply == FunctionToApply::kNone);
  const std::string question =
      R"({"model": "small", "query": "q", "documents": ["ax", {"text": "x"}, "abcx"], "top_n": 2, "return_documents": true})";
  for (const char* path : {"/v1/rerank", "/v2/rerank", "/rerank"}) {
    CAPTURE(path);
    json reply = server.post(path, question).value();
    const std::string id = reply["id"];
    CHECK(id.size() == std::string("00000000-0000-4000-8000-000000000000").size());
    CHECK(server.post(path, question).value()["id"] != id);
    reply.erase("id");
    const char* version = std::string(path) == "/v2/rerank" ? "2" : "1";
    CHECK(reply == json{{"object", "list"},
                        {"model", "small"},
                        {"results",
                         {{{"index", 1}, {"relevance_score", 1}, {"document", {{"text", "x"}}}},
                          {{"index", 0}, {"relevance_score", 0.5}, {"document", {{"text", "ax"}}}}}},
                        {"meta", {{"api_version", {{"version", version}}}, {"tokens", {{"input_tokens", 12}}}}},
                        {"usage", {{"prompt_tokens", 12}, {"total_tokens", 12}}}});
  }
  // Of cohere's ClientV2 and Client; langchain-cohere sends null for what nobody has said.
  CHECK(server
            .post("/v2/rerank", R"({"model": "small", "query": "q", "documents": ["a"], "max_tokens_per_doc": 7,
                                      "priority": 0})")
            .status == 200);
  CHECK(server.model->wishes.max_second_tokens == 7);
  CHECK(server.post("/v2/rerank", R"({"query": "q", "documents": ["a"], "max_tokens_per_doc": null})").status == 200);
  CHECK(server.model->wishes.max_second_tokens == 0);
  const json fields = server
                          .post("/v1/rerank", R"({"query": "q", "rank_fields": ["title", "body"], "return_documents":
            true, "max_chunks_per_doc": 3, "documents": [{"body": "xx", "title": "a", "text": "no"}, {"title": "x"}]})")
                          .value()["results"];
  CHECK(fields == json({{{"index", 1}, {"relevance_score", 1}, {"document", {{"text", "x"}}}},
                        {{"index", 0}, {"relevance_score", 0.5}, {"document", {{"text", "a xx"}}}}}));
  CHECK(server.post("/v1/rerank", R"({"query": "q", "documents": ["a", "x"]})").value()["results"] ==
        json({{{"index", 1}, {"relevance_score", 1}}, {{"index", 0}, {"relevance_score", 0}}}));
  CHECK(server.post("/predict", R"({"inputs": {"text": "q", "text_pair": "ax"}})").body == R"({"numbers":[0.5]})");
  CHECK(server.get("/info").value()["model_type"] ==
        json{{"reranker", {{"id2label", {{"0", "LABEL_0"}}}, {"label2id", {{"LABEL_0", 0}}}}}});
  for (const Refused& each : std::vector<Refused>{
           {"/rerank", R"({"texts": ["a"]})", 422, "query: is missing"},
           {"/rerank", R"({"query": "q", "texts": [3]})", 422, "texts: want texts, got 3"},
           {"/rerank", R"({"query": "unknown", "texts": ["a"]})", 413, "texts[0]: the text is unknown"},
           {"/v1/rerank", R"({"query": "q", "documents": "a"})", 400, "documents: want a list of texts"},
           {"/v1/rerank", R"({"query": "q", "documents": [3]})", 400, "documents[0]: want a text, got number"},
           {"/v1/rerank", R"({"query": "q", "documents": [{"title": "a"}]})", 400, "text: is missing"},
           {"/v1/rerank", R"({"query": "q", "documents": ["a"], "top_n": 0})", 400, "top_n: want an integer from 1"},
           {"/v1/rerank", R"({"model": "other", "query": "q", "documents": ["a"]})", 404, "there is no \"other\""},
           {"/v1/rerank", R"({"query": "q", "documents": ["a"], "max_tokens_per_doc": 0})", 400,
            "want an integer from 1"},
           {"/v1/rerank", R"({"query": "q", "documents": ["a"], "texts": ["a"]})", 400, "unknown key \"texts\""}}) {
    CAPTURE(each.path, each.body);
    const Reply reply = server.post(each.path, each.body);
    CHECK(reply.status == each.status);
    const char* key = each.path == "/v1/rerank" ? "message" : "error";
    CHECK_THAT(reply.value().at(key).get<std::string>(), Contains(each.part));
  }
  CHECK(server.post("/predict", R"({"inputs": "a", "parameters": {}})").status == 422);
  CHECK(server.post("/rerank", R"({"query": "q", "texts": ["", "x"], "top_n": 1})").body ==
        R"([{"index":1,"score":1},{"index":0,"score":0}])");
}

// Source: text-embeddings-inference, router/src/http/types.rs (PredictInput, PredictResponse).
TEST_CASE("A classifier answers text-embeddings-inference's /predict, and the server's own", "[unit][serve]") {
  NumbersServer server("text-classification");
  const auto answer = [&](const std::string& body) { return server.post("/predict", body).value(); };
  CHECK(answer(R"({"inputs": "I like it", "raw_scores": false, "truncate": true})") == json({"I like it", ""}));
  CHECK(server.model->wishes.function_to_apply == FunctionToApply::kDefault);
  CHECK(server.model->wishes.long_texts == LongTexts::kTruncate);
  CHECK(answer(R"({"inputs": ["a"]})") == json({"a", ""}));
  CHECK(answer(R"({"inputs": ["a", "pair"]})") == json({"a", "pair"}));
  CHECK(answer(R"({"inputs": [["a"]], "top_n": 3})") == json::array({{"a", ""}}));
  CHECK(answer(R"({"inputs": [["a"], ["b", "p"]], "raw_scores": true, "truncation_direction": "Left"})") ==
        json::array({{"a", ""}, {"b", "p"}}));
  CHECK(server.model->wishes.function_to_apply == FunctionToApply::kNone);
  CHECK(server.model->wishes.cut_at_begin == true);
  CHECK(server.post("/", R"({"inputs": ["a", "pair"], "raw_scores": true})").value() == json({"a", "pair"}));
  CHECK(server.model->wishes.function_to_apply == FunctionToApply::kNone);
  // The server's own form, and that of Hugging Face.
  const json one = {{"numbers", {1, 0.5, -2}}};
  CHECK(answer(R"({"inputs": "a", "parameters": {}})") == one);
  CHECK(answer(R"({"inputs": ["a", "b"], "parameters": {}})") == json({one, one}));
  CHECK(answer(R"({"inputs": {"text": "a", "text_pair": "b"}})") == one);
  CHECK(answer(R"({"inputs": [{"text": "a", "text_pair": "b"}, "a"]})") == json({one, one}));
  CHECK(server.post("/", R"({"inputs": ["a", "b"], "parameters": {}})").value() == json::array({{"a", ""}, {"b", ""}}));
  struct Case {
    const char *body, *type, *part;
    int status;
  };
  for (const Case& each : std::vector<Case>{
           {R"({"inputs": []})", "Empty", "inputs: want one text or more", 400},
           {R"({"inputs": ["a", "b", "c"]})", "Validation", "a list of texts is taken beside \"parameters\": {}", 422},
           {R"({"inputs": [["a"], "b"]})", "Validation", "inputs[1]: want a text, a pair", 422},
           {R"({"inputs": [["a"], [3]]})", "Validation", "inputs[1]: want a text, got number", 422},
           {R"({"inputs": "a", "raw_scores": 1})", "Validation", "raw_scores: want true or false", 422},
           {R"({"inputs": [["a"], ["unknown"]]})", "Validation", "inputs[1]: the text is unknown", 413}}) {
    CAPTURE(each.body);
    const Reply reply = server.post("/predict", each.body);
    CHECK(reply.status == each.status);
    CHECK_THAT(reply.value().at("error").get<std::string>(), Contains(each.part));
    CHECK(reply.value().at("error_type") == each.type);
  }
  NumbersServer reranker("rerank");
  CHECK(reranker.post("/predict", R"({"inputs": [["q", "ax"], ["q", "x"]]})").body == "[[0.5],[1.0]]");
  CHECK(reranker.model->wishes.function_to_apply == FunctionToApply::kSigmoid);
}

TEST_CASE("Several models in one server: by name, else the first that is for the path", "[unit][serve]") {
  NumbersServer server("fill-mask",
                       {.further = {{"encoder", "embedding"}, {"ranker", "rerank"}, {"other", "embedding"}},
                        .request = std::chrono::duration<double>(0.05)});
  CHECK(server.get("/ready").status == 503);
  CHECK(server.get("/v2/models/small/ready").status == 200);
  CHECK(server.get("/v2/models/encoder/ready").status == 503);
  CHECK(server.post("/v2/repository/index", "{}").value()[1] ==
        json{{"name", "encoder"}, {"version", "1"}, {"state", "UNAVAILABLE"}, {"reason", "loading"}});
  CHECK(server.post("/v2/repository/index", R"({"ready": true})").value().size() == 1);
  CHECK(server.post("/embed", R"({"inputs": "a"})").status == 503);
  server.load("embedding", 1);
  CHECK(server.post("/embed", R"({"inputs": "a"})").body == "[[1,0.5,-2]]");
  server.load("rerank", 2);
  CHECK(server.get("/v2/health/ready").status == 503);
  server.load("embedding", 3);
  CHECK(server.get("/ready").status == 200);
  CHECK(server.get("/models").body == R"([{"name":"small","task":"fill-mask"},{"name":"encoder","task":"embedding"},)"
                                      R"({"name":"ranker","task":"rerank"},{"name":"other","task":"embedding"}])");
  CHECK(server.get("/v1/models").value()["data"].size() == 4);
  const auto model_of = [&](const std::string& body) {
    const json reply = server.post("/v1/embeddings", body).value();
    return reply.contains("error") ? reply["error"]["message"] : reply["model"];
  };
  CHECK(model_of(R"({"input": "a"})") == "encoder");
  CHECK(model_of(R"({"input": "a", "model": "other"})") == "other");
  CHECK(model_of(R"({"input": "a", "model": "ranker"})") ==
        "model: ranker is served for rerank; this path needs bert serve --task embedding");
  CHECK(model_of(R"({"input": "a", "model": "none"})") ==
        "model: there is no \"none\"; this server has small, encoder, ranker, other");
  CHECK(server.post("/v1/rerank", R"({"query": "q", "documents": ["x"]})").value()["model"] == "ranker");
  CHECK(server.post("/rerank", R"({"query": "q", "texts": ["x"]})").body == R"([{"index":0,"score":1}])");
  CHECK(server.post("/predict", R"({"inputs": "a"})").body == R"({"numbers":[1.0,0.5,-2.0]})");
  CHECK(server.post("/models/other", R"({"inputs": "a"})").body == "[1.0,0.5,-2.0]");
  CHECK(server.get("/v2/models/ranker").value()["outputs"][0]["name"] == "score");
  const json paths = server.get("/openapi.json").value()["paths"];
  CHECK(paths.contains("/v1/embeddings"));
  CHECK(paths.contains("/v1/rerank"));
}

TEST_CASE("The root asks the first model that takes such inputs", "[unit][serve]") {
  NumbersServer server("question-answering", {.further = {{"encoder", "embedding"}, {"ranker", "rerank"}}});
  server.load("embedding", 1);
  server.load("rerank", 2);
  CHECK(server.post("/", R"({"inputs": "a"})").body == "[[1,0.5,-2]]");
  CHECK(server.post("/", R"({"inputs": ["a", "a"]})").body == "[[1,0.5,-2],[1,0.5,-2]]");
  CHECK(server.post("/", R"({"inputs": [[5, 6]]})").body == "[[5,6]]");
  CHECK(server.post("/", R"({"query": "q", "texts": ["x"]})").body == R"([{"index":0,"score":1}])");
  CHECK(server.post("/predict", R"({"inputs": "a"})").body == R"({"numbers":[1.0,0.5,-2.0]})");
  CHECK(server.get("/info").value()["model_id"] == "encoder");
}

TEST_CASE("Too many passages, and a long query with many, are refused before they are put together", "[unit][serve]") {
  NumbersServer server("rerank", {.max_texts = 70});
  const auto asked = [&](size_t query, int passages) {
    const json body = {{"query", std::string(query, 'q')}, {"texts", json(std::vector<std::string>(passages, "x"))}};
    return server.post("/rerank", body.dump());
  };
  CHECK(asked(1, 70).status == 200);
  CHECK(asked(1, 71).status == 413);
  CHECK(asked(1 << 20, 64).status == 200);
  CHECK(asked(1 << 20, 65).status == 413);
}

TEST_CASE("A large answer is sent in parts", "[unit][serve]") {
  constexpr size_t kTexts = 1000;
  NumbersServer server("embedding");
  ordered_json texts = ordered_json::array();
  for (size_t i = 0; i < kTexts; ++i) texts.push_back(std::string(100, 'a'));
  const ServerRequest request{.method = "POST",
                              .path = "/embed",
                              .content_type = "application/json",
                              .body = ordered_json{{"inputs", texts}}.dump()};
  CHECK(server.service.answer(request).next_part == nullptr);  // 12 KB
  CHECK(json::parse(server.ask(request).body).size() == kTexts);
  const std::string ids = json(std::vector<int>(100, 123456)).dump();
  std::string body = R"({"inputs": [)" + ids;
  for (size_t i = 1; i < kTexts; ++i) body += "," + ids;
  const ServerRequest large{
      .method = "POST", .path = "/embed", .content_type = "application/json", .body = body + "]}"};
  ServerResponse response = server.service.answer(large);
  REQUIRE(response.next_part != nullptr);
  std::vector<std::string> parts;
  for (std::string part = response.next_part(); !part.empty(); part = response.next_part()) parts.push_back(part);
  CHECK(parts.size() == 3);  // 700 KB
  std::string whole;
  for (const std::string& part : parts) whole += part;
  const json vectors = json::parse(whole);
  CHECK(vectors.size() == kTexts);
  CHECK(vectors.back() == json(std::vector<int>(100, 123456)));
}
