// KServe's protocol of bert serve. Bytes of tensors are written by hand.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/serve/numbers_server.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::as_bytes;
using bert::testing::Contains;
using bert::testing::NumbersServer;
using bert::testing::Refused;
using bert::testing::Reply;
using nlohmann::json;

TEST_CASE("KServe's protocol, in JSON and with binary tensors", "[unit][serve]") {
  NumbersServer server("embedding");
  CHECK(server.get("/v2").value()["extensions"] == json({"binary_tensor_data"}));
  CHECK(server.get("/v2/health/live").status == 200);
  CHECK(server.get("/v2/health/ready").status == 200);
  CHECK(server.get("/v2/models/small/ready").status == 200);
  CHECK(server.get("/v2/models/small/versions/1/ready").status == 200);  // as Triton's clients ask with a version
  CHECK(server.get("/v2/models/small/versions/1").value() == server.get("/v2/models/small").value());
  CHECK(server.get("/v2/models/small/versions/2").status == 404);
  CHECK(server.get("/v2/models/small").value() ==
        json::parse(R"({"name": "small", "versions": ["1"], "platform": "bert",
                        "inputs": [{"name": "text", "datatype": "BYTES", "shape": [-1]}],
                        "outputs": [{"name": "embedding", "datatype": "FP32", "shape": [-1, 3]}]})"));
  const std::string infer = "/v2/models/small/infer";
  const std::string in_json =
      R"({"id": "7", "inputs": [{"name": "text", "shape": [2, 1], "datatype": "BYTES", "data": [["a"], ["bc"]]}]})";
  CHECK(server.post(infer, in_json).body ==
        R"({"model_name":"small","model_version":"1","id":"7","outputs":[{"name":"embedding","datatype":"FP32",)"
        R"("shape":[2,3],"data":[1,0.5,-2,1,1,-2]}]})");
  // Of Triton's clients: a row of texts, and the parameters of schedulers.
  CHECK(server
            .post(infer, R"({"inputs": [{"name": "text", "shape": [1, 2], "datatype": "BYTES", "data": ["a", "bc"]}],
                             "parameters": {"priority": 1, "timeout": 1000000, "sequence_id": 3,
                                            "sequence_start": true, "sequence_end": false}})")
            .value()["outputs"][0]["shape"] == json({2, 3}));
  CHECK(server.get("/v2/models/small/config").value() ==
        json::parse(R"({"name": "small", "platform": "bert", "backend": "bert", "max_batch_size": 0,
                        "input": [{"name": "text", "data_type": "TYPE_STRING", "dims": [-1]}],
                        "output": [{"name": "embedding", "data_type": "TYPE_FP32", "dims": [-1, 3]}]})"));
  CHECK(server.get("/v2/models/small/versions/1/config").status == 200);
  CHECK(server.get("/v2/models/other/config").status == 404);
  const json index = json::parse(R"([{"name": "small", "version": "1", "state": "READY", "reason": ""}])");
  CHECK(server.ask({.method = "POST", .path = "/v2/repository/index"}).value() == index);
  CHECK(server.post("/v2/repository/index", R"({"ready": true})").value() == index);
  // Two texts: length 1, a; length 2, bc.
  const std::string tensor("\x01\0\0\0a\x02\0\0\0bc", 11);
  const std::string head = R"({"parameters":{"binary_data_output":true,"normalize":true},"inputs":[{"name":"text",)"
                           R"("shape":[2],"datatype":"BYTES","parameters":{"binary_data_size":11}}]})";
  const Reply reply = server.post(infer, head + tensor, std::to_string(head.size()));
  CAPTURE(reply.body);
  REQUIRE(reply.status == 200);
  REQUIRE(reply.fields.size() == 1);
  CHECK(reply.fields[0].first == "Inference-Header-Content-Length");
  const auto size = static_cast<size_t>(std::stoi(reply.fields[0].second));
  const json outputs = json::parse(reply.body.substr(0, size)).at("outputs");
  CHECK(outputs == json::parse(R"([{"name": "embedding", "datatype": "FP32", "shape": [2, 3],
                                    "parameters": {"binary_data_size": 24}}])"));
  CHECK(reply.body.substr(size) == as_bytes(std::vector<float>{1, 0.5F, -2, 1, 1, -2}));
  CHECK(reply.body.substr(size, 4) == std::string("\0\0\x80\x3f", 4));
  CHECK(server.model->wishes.normalize == true);

  // The output alone is asked for in binary form; or not, where the request asks for binary outputs.
  const std::string asks = R"({"inputs":[{"name":"text","shape":[1],"datatype":"BYTES","data":["a"]}],"outputs":)";
  const std::string binary = asks + R"([{"name":"embedding","parameters":{"binary_data":true}}]})";
  CHECK(server.post(infer, binary).body.ends_with(as_bytes(std::vector<float>{1, 0.5F, -2})));
  CHECK_THAT(server.post(infer, asks + R"([{"name":"embedding"}]})").body, Contains(R"("data":[1,0.5,-2])"));

  NumbersServer words("fill-mask");
  CHECK(words.get("/v2/models/small").value()["outputs"] ==
        json::parse(R"([{"name": "answer", "datatype": "BYTES", "shape": [-1]}])"));
  CHECK(words.post(infer, asks + R"([{"name":"answer"}]})").value()["outputs"][0]["data"] ==
        json({R"({"numbers":[1.0,0.5,-2.0]})"}));
  const std::string text = R"({"numbers":[1.0,0.5,-2.0]})";
  CHECK(words.post(infer, asks + R"([{"name":"answer","parameters":{"binary_data":true}}]})")
            .body.ends_with(std::string("\x1a\0\0\0", 4) + text));
  CHECK(text.size() == 0x1a);

  NumbersServer reranker("rerank");
  const std::string pair =
      R"({"inputs": [{"name": "query", "shape": [2], "datatype": "BYTES", "data": ["q", "q"]},
                     {"name": "text", "shape": [2], "datatype": "BYTES", "data": ["ax", "x"]}]})";
  CHECK_THAT(reranker.post(infer, pair).body,
             Contains(R"({"name":"score","datatype":"FP32","shape":[2,1],"data":[0.5,1]})"));
}

TEST_CASE("Wrong tensors of KServe's protocol are refused with their place", "[unit][serve]") {
  NumbersServer server("embedding");
  const std::string infer = "/v2/models/small/infer";
  const auto with = [](const std::string& tensor) { return R"({"inputs": [)" + tensor + "]}"; };
  const std::string good = R"({"name": "text", "shape": [1], "datatype": "BYTES", "data": ["a"]})";
  for (const Refused& each : std::vector<Refused>{
           {infer, "{", 400, "this is not JSON"},
           {infer, "{}", 400, "inputs: is missing"},
           {infer, R"({"inputs": []})", 400, "inputs: text is missing"},
           {infer, R"({"inputs": 3})", 400, "inputs: want a list of tensors"},
           {infer, with(R"({"name": "words", "shape": [1], "datatype": "BYTES", "data": ["a"]})"), 400,
            "inputs[0]: the model has no input words; it has text"},
           {infer, with(good + "," + good), 400, "inputs[1]: input text is there twice"},
           {infer, with(R"({"name": "text", "shape": [1], "datatype": "INT64", "data": [1]})"), 400,
            "inputs[0]: datatype: want BYTES, got INT64"},
           {infer, with(R"({"name": "text", "shape": [2, 2], "datatype": "BYTES", "data": ["a", "b", "c", "d"]})"), 400,
            "inputs[0]: shape: want [N], [N, 1] or [1, N], got [2,2]"},
           {infer, with(R"({"name": "text", "shape": [2], "datatype": "BYTES", "data": ["a"]})"), 400,
            "inputs[0]: shape says 2 texts, and 1 are there"},
           {infer, with(R"({"name": "text", "shape": [1], "datatype": "BYTES", "data": [3]})"), 400,
            "inputs[0]: data: want texts, got number"},
           {infer, with(R"({"name": "text", "shape": [1], "datatype": "BYTES"})"), 400, "data: is missing"},
           {infer, with(R"({"name": "text", "shape": [1], "datatype": "BYTES", "data": ["unknown"]})"), 400,
            "inputs[0]: the text is unknown"},
           {infer, R"({"inputs": [)" + good + R"(], "outputs": [{"name": "score"}]})", 400,
            "outputs[0]: the model has no output score; it has embedding"},
           {infer, R"({"inputs": [)" + good + R"(], "parameters": {"top_k": 3}})", 400, "unknown key \"top_k\""},
           {infer,
            R"({"inputs": [)" + good + R"(], "outputs": [{"name": "embedding", "parameters": {"classification": 2}}]})",
            400, "outputs[0]: parameters: unknown key \"classification\"; known: binary_data"},
           {"/v2/repository/index", R"({"ready": 1})", 400, "ready: want true or false"},
           {"/v2/models/other/infer", "{}", 404, "no such model; this server has /v2/models/small/infer"}}) {
    CAPTURE(each.body);
    const Reply reply = server.post(each.path, each.body);
    CHECK(reply.status == each.status);
    CHECK_THAT(reply.value().at("error").get<std::string>(), Contains(each.part));
  }
  const auto behind = [&](const std::string& bytes, size_t size, const std::string& json_bytes = "") {
    const std::string head = R"({"inputs":[{"name":"text","shape":[1],"datatype":"BYTES","parameters":)"
                             R"({"binary_data_size":)" +
                             std::to_string(size) + "}}]}";
    const Reply reply = server.post(infer, head + bytes, json_bytes.empty() ? std::to_string(head.size()) : json_bytes);
    return std::to_string(reply.status) + " " + reply.value().value("error", "");
  };
  using namespace std::string_literals;
  CHECK(behind("\x01\0\0\0a"s, 5) == "200 ");
  CHECK_THAT(behind("\x02\0\0\0a"s, 5), Contains("400 inputs[0]: text 0 is longer than the tensor's data"));
  CHECK_THAT(behind("\xff\xff\xff\xff"s, 4), Contains("400 inputs[0]: text 0 is longer than the tensor's data"));
  CHECK_THAT(behind("\x01\0"s, 2), Contains("400 inputs[0]: text 0 is longer than the tensor's data"));
  CHECK_THAT(behind("\x01\0\0\0\xff"s, 5), Contains("400 inputs[0]: text 0 is not UTF-8"));
  CHECK_THAT(behind("\x01\0\0\0a"s, 6), Contains("binary_data_size is 6, and 5 bytes are left behind the JSON"));
  CHECK_THAT(behind("\x01\0\0\0ab"s, 5), Contains("1 bytes behind the JSON belong to no input"));
  CHECK_THAT(behind("\x01\0\0\0a"s, 5, "1000"), Contains("400 Inference-Header-Content-Length: want a number up to"));
  CHECK_THAT(behind("\x01\0\0\0a"s, 5, "-1"), Contains("400 Inference-Header-Content-Length: want a number up to"));
  const ServerRequest octets{.method = "POST", .path = infer, .content_type = "application/octet-stream", .body = "{"};
  CHECK(server.ask(octets).status == 400);  // not 415
}

TEST_CASE("A damaged body is answered or refused with its reason, in every protocol", "[unit][serve]") {
  NumbersServer embedding("embedding"), reranker("rerank");
  using namespace std::string_literals;
  const std::string head = R"({"inputs":[{"name":"text","shape":[2],"datatype":"BYTES","parameters":)"
                           R"({"binary_data_size":11}}]})";
  struct Question {
    NumbersServer& server;
    std::string path, body, json_bytes = {};
  };
  const std::vector<Question> questions = {
      {embedding, "/v2/models/small/infer", head + "\x01\0\0\0a\x02\0\0\0bc"s, std::to_string(head.size())},
      {embedding, "/v1/embeddings", R"({"model":"small","input":["a",[1,2]],"dimensions":2})"},
      {embedding, "/embed", R"({"inputs":["a","b"],"normalize":true,"parameters":{"truncate":false}})"},
      {embedding, "/similarity", R"({"inputs":{"source_sentence":"a","sentences":["b"]}})"},
      {reranker, "/rerank", R"({"query":"q","texts":["a","b"],"raw_scores":true})"},
      {reranker, "/v1/rerank", R"({"query":"q","documents":["a",{"text":"b"}],"top_n":1})"}};
  for (const Question& each : questions) {
    CAPTURE(each.path);
    REQUIRE(each.server.post(each.path, each.body, each.json_bytes).status == 200);
    const auto is_good = [&](const std::string& body) {
      const int status = each.server.post(each.path, body, each.json_bytes).status;
      return status == 200 || (status >= 400 && status < 500);
    };
    for (size_t size = 0; size < each.body.size(); ++size) CHECK(is_good(each.body.substr(0, size)));
    for (size_t i = 0; i < each.body.size(); ++i) {
      for (const char other : {'\0', '\xff', '"', '[', '{', '1', '-', ','}) {
        std::string body = each.body;
        body[i] = other;
        CAPTURE(i, other);
        CHECK(is_good(body));
      }
    }
  }
}
