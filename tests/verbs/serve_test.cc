// bert serve as a process: answers, refusals to start, and the end.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "app/finetune/finetuning_run.h"
#include "app/net/socket.h"
#include "app/system/exit_codes.h"
#include "app/verbs/verbs.h"
#include "data/io/files.h"
#include "tests/http/raw_client.h"
#include "tests/places.h"
#include "tests/support/command_testing.h"
#include "tests/support/random_checkpoint.h"
#include "tests/support/serve_process.h"
#include "tests/support/tiny_finetuning.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::Answered;
using bert::testing::Approx;
using bert::testing::ask;
using bert::testing::Contains;
using bert::testing::post;
using bert::testing::RawClient;
using bert::testing::run_command;
using bert::testing::ServeProcess;
using bert::testing::TemporaryDirectory;
using bert::testing::write_random_checkpoint;
using nlohmann::json;

TEST_CASE("bert serve answers as bert predict does, and ends with 0 after SIGTERM", "[unit][serve]") {
  const TemporaryDirectory directory;
  const std::string checkpoint = write_random_checkpoint(directory);
  for (const std::string& task : {std::string("fill-mask"), std::string("features")}) {
    CAPTURE(task);
    ServeProcess server(directory, {"--checkpoint", checkpoint, "--task", task, "--port", "0", "--name", "small"});
    const int64_t port = server.port();
    REQUIRE(port > 0);
    const std::string text = "the [MASK] sat.", body = json{{"inputs", text}}.dump();
    const auto line = run_command(predict_command, {"predict", "--checkpoint", checkpoint, "--task", task, text});
    const auto [status, answer] = ask(port, post("/predict", body));
    CHECK(status == 200);
    CHECK(answer + "\n" == line.out);
    const json want = json::parse(line.out), got = json::parse(ask(port, post("/models/small", body)).second);
    CHECK(got == (task == "features" ? json::array({want["last_hidden_state"]}) : want["fillers"]));
    CHECK(ask(port, "GET /ready HTTP/1.0\r\n\r\n") == Answered(200, R"({"status":"ready"})"));
    const json tokens = json::parse(ask(port, post("/tokenize", body)).second);
    CHECK(tokens["tokens"] == json({"[CLS]", "the", "[MASK]", "sat", ".", "[SEP]"}));
    CHECK(tokens["ids"] == json({2, 5, 4, 7, 9, 3}));
    const std::string longer = json{{"inputs", "[MASK] the cat sat the cat sat the cat sat the cat sat"}}.dump();
    CHECK(ask(port, post("/predict", longer)) ==
          Answered(422, R"({"error":"inputs: text of 15 tokens: the model takes at most 12; shorten it"})"));
    if (task == "fill-mask") {
      CHECK(ask(port, post("/predict", R"({"inputs": "the cat"})")) ==
            Answered(422, R"({"error":"inputs: no [MASK] in the text"})"));
    }
    server.signal(SIGTERM);
    CHECK(server.code() == kOk);
    CHECK(server.said().empty());
  }
}

TEST_CASE("Every answer of bert serve has the form that its openapi.json says", "[unit][serve]") {
  const TemporaryDirectory directory;
  std::vector<std::pair<std::string, std::string>> models;  // task and checkpoint
  for (const char* task : {"fill-mask", "features", "embedding"})
    models.emplace_back(task, write_random_checkpoint(directory));
  for (const auto& [made, task] :
       {std::pair("text-classification", "text-classification"), std::pair("text-regression", "text-classification"),
        std::pair("ner", "token-classification"), std::pair("squad-v1", "question-answering")}) {
    const FinetuneConfig config = bert::testing::tiny_task_of(made, directory);
    REQUIRE(finetune(config, false) == kOk);
    models.emplace_back(task, config.run_directory);
  }
  models.emplace_back("rerank", directory.path("text-regression"));  // one output
  for (const auto& [task, checkpoint] : models) {
    CAPTURE(task, checkpoint);
    ServeProcess server(directory, {"--checkpoint", checkpoint, "--task", task, "--port", "0", "--name", "small"});
    const int64_t port = server.port();
    REQUIRE(port > 0);
    const std::string script = std::string(BERT_SOURCE_DIR) + "/tests/scripts/openapi_answers.py";
    const std::string said = directory.path("said");
    const int status =
        std::system(("python3 " + script + " " + std::to_string(port) + " " + task + " >" + said + " 2>&1").c_str());
    const std::string text = read_file(said);
    if (text.starts_with("SKIPPED: ")) BERT_SKIP(text.substr(9));
    CAPTURE(text);
    CHECK(status == 0);
    server.signal(SIGTERM);
    CHECK(server.code() == kOk);
  }
}

TEST_CASE("bert serve answers with fine-tuned models as bert predict does, and in the shapes of pipelines",
          "[unit][serve]") {
  const TemporaryDirectory directory;
  struct Case {
    const char *made, *task;
    std::vector<std::string> arguments;
    json input, wrong;
    const char* refusal;
  };
  const std::vector<Case> cases = {
      {"text-classification",
       "text-classification",
       {"6 7"},
       "6 7",
       {{"text", "6 7"}},
       R"({"error":"inputs: \"text_pair\" is missing: want a text or {\"text\", \"text_pair\"}"})"},
      {"text-regression",
       "text-classification",
       {"6 7"},
       "6 7",
       3,
       R"({"error":"inputs: want a text or {\"text\", \"text_pair\"}, got number"})"},
      {"ner",
       "token-classification",
       {"5  6 20"},
       "5  6 20",
       {{"text", "5"}},
       R"({"error":"inputs: want a text, got object"})"},
      {"squad-v1",
       "question-answering",
       {"--question", "20 21", "5 6 7 8 9 10"},
       {{"question", "20 21"}, {"context", "5 6 7 8 9 10"}},
       {{"question", "20"}, {"context", " "}},
       R"({"error":"inputs: question-answering: a context has no words"})"}};
  for (const Case& each : cases) {
    CAPTURE(each.made);
    const FinetuneConfig config = bert::testing::tiny_task_of(each.made, directory);
    REQUIRE(finetune(config, false) == kOk);
    std::vector<std::string> arguments = {"predict", "--checkpoint", config.run_directory, "--task", each.task};
    arguments.insert(arguments.end(), each.arguments.begin(), each.arguments.end());
    const auto line = run_command(predict_command, arguments);
    REQUIRE(line.code == kOk);

    ServeProcess server(directory,
                        {"--checkpoint", config.run_directory, "--task", each.task, "--port", "0", "--name", "small"});
    const int64_t port = server.port();
    REQUIRE(port > 0);
    CHECK(ask(port, post("/predict", json{{"inputs", each.input}, {"parameters", json::object()}}.dump())) ==
          Answered(200, line.out.substr(0, line.out.size() - 1)));
    CHECK(ask(port, post("/predict", json{{"inputs", each.wrong}}.dump())) == Answered(422, each.refusal));
    const json want = json::parse(line.out),
               got = json::parse(ask(port, post("/models/small", json{{"inputs", each.input}}.dump())).second);
    if (want.contains("label")) {
      REQUIRE(got.size() == 1);  // a list for each text
      REQUIRE(got[0].size() > 1);
      CHECK(got[0][0] == json{{"label", want["label"]}, {"score", want["score"]}});
      double sum = 0;
      for (const json& label : got[0]) sum += label["score"].get<double>();
      CHECK(sum == Approx(1));
      const json labels = json::parse(ask(port, post("/predict", R"({"inputs": "6 7", "raw_scores": true})")).second);
      CHECK(labels.size() == got[0].size());  // as text-embeddings-inference
      CHECK(labels[0]["label"] == want["label"]);
      CHECK(labels[0]["score"] != want["score"]);
      const json pair = json{{"inputs", {{{"text", "6"}, {"text_pair", "7"}}, "6 7"}}};
      RawClient client(port);
      client.send(post("/predict", pair.dump()));
      client.finish();
      const std::string answer = client.rest();  // in chunks
      CHECK_THAT(answer, Contains(R"([{"text":"6","label":")") && Contains(R"(,{"text":"6 7","label":")"));
    } else if (want.contains("value")) {
      CHECK(got == json::array({json::array({{{"label", "LABEL_0"}, {"score", want["value"]}}})}));
    } else if (want.contains("answer")) {
      const int64_t start = got["start"], end = got["end"];
      CHECK(got ==
            json{{"score", want["span_probability"]}, {"start", start}, {"end", end}, {"answer", want["answer"]}});
      const std::string context = each.input["context"];
      CHECK(context.substr(static_cast<size_t>(start), static_cast<size_t>(end - start)) == want["answer"]);
    } else {
      const std::vector<std::pair<int, int>> places = {{0, 1}, {3, 4}, {5, 7}};
      REQUIRE(want["words"].size() == places.size());
      for (size_t i = 0; i < places.size(); ++i) {
        CHECK(want["words"][i]["start"] == places[i].first);
        CHECK(want["words"][i]["end"] == places[i].second);
      }
      const auto grouped = run_command(predict_command, {"predict", "--checkpoint", config.run_directory, "--task",
                                                         each.task, "--aggregation", "simple", each.arguments[0]});
      CHECK(got == json::parse(grouped.out)["entities"]);
      CHECK_FALSE(got.empty());
    }
    server.signal(SIGTERM);
    CHECK(server.code() == kOk);
  }
}

TEST_CASE("bert serve on a network wants a token, and keeps it from others", "[unit][serve]") {
  const TemporaryDirectory directory;
  const std::string checkpoint = write_random_checkpoint(directory), file = directory.path("token");
  const auto end_of = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"serve", "--checkpoint", checkpoint, "--port", "0"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const auto result = run_command(serve_command, arguments);
    return Answered(result.code, result.err);
  };
  const auto [code, said] = end_of({"--host", "0.0.0.0"});
  CHECK(code == kRefused);
  CHECK_THAT(said, Contains("--host 0.0.0.0 is reached by other machines, and there is no token: give --token-file"));
  std::ofstream(file) << "short\n";
  chmod(file.c_str(), 0600);
  CHECK(end_of({"--token-file", file}).first == kBadData);
  std::ofstream(file) << "0123456789abcdef\n";
  chmod(file.c_str(), 0644);
  CHECK(end_of({"--token-file", file}).first == kRefused);
  CHECK(end_of({"--token-file", directory.path("none")}).first == kInputMissing);

  chmod(file.c_str(), 0600);
  ServeProcess server(directory,
                      {"--checkpoint", checkpoint, "--host", "0.0.0.0", "--port", "0", "--token-file", file});
  const int64_t port = server.port();
  REQUIRE(port > 0);
  const std::string body = R"({"inputs": "the [MASK] sat."})";
  CHECK(ask(port, post("/predict", body)).first == 401);
  CHECK(ask(port, post("/predict", body, "Authorization: Bearer 0123456789abcdef\r\n")).first == 200);
}

TEST_CASE("bert serve that cannot start says why", "[unit][serve]") {
  const TemporaryDirectory directory;
  const std::string checkpoint = write_random_checkpoint(directory);
  const Descriptor taken = listen_on({"127.0.0.1", 0});
  const std::string port = std::to_string(port_of(taken.get()));
  const auto busy = run_command(serve_command, {"serve", "--checkpoint", checkpoint, "--port", port});
  CHECK(busy.code == kIo);
  CHECK_THAT(busy.err, Contains("cannot listen on 127.0.0.1:" + port + ": Address already in use, by pid " +
                                std::to_string(getpid())));
  CHECK_THAT(busy.err, Contains("name another port, or --port 0 for any"));
  CHECK(run_command(serve_command, {"serve", "--checkpoint", directory.path("none"), "--port", "0"}).code ==
        kInputMissing);
  CHECK(run_command(serve_command, {"serve", "--checkpoint", checkpoint, "--port", "70000"}).code == kUsage);
  CHECK(run_command(serve_command, {"serve", "--checkpoint", checkpoint, "--max-tokens", "1000000"}).code == kUsage);
}

TEST_CASE("bert serve has several models, each with its name and its task", "[unit][serve]") {
  const TemporaryDirectory directory;
  const std::string checkpoint = write_random_checkpoint(directory);
  ServeProcess server(directory, {"--checkpoint", checkpoint, "--name", "words", "--model",
                                  "vectors=embedding:" + checkpoint, "--model", "more=" + checkpoint, "--port", "0"});
  const int64_t port = server.port();
  REQUIRE(port > 0);
  CHECK(
      ask(port, "GET /models HTTP/1.0\r\n\r\n").second ==
      R"([{"name":"words","task":"fill-mask"},{"name":"vectors","task":"embedding"},{"name":"more","task":"fill-mask"}])");
  const json vectors = json::parse(ask(port, post("/embed", R"({"inputs": "the cat"})")).second);
  const auto line = run_command(
      predict_command, {"predict", "--checkpoint", checkpoint, "--task", "embedding", "--normalize", "the cat"});
  const json want = json::parse(line.out)["embedding"];
  REQUIRE(vectors[0].size() == want.size());
  for (size_t i = 0; i < want.size(); ++i) CHECK(vectors[0][i].get<double>() == Approx(want[i].get<double>()));
  const std::string text = R"({"inputs": "the [MASK] sat."})";
  CHECK(ask(port, post("/models/more", text)) == ask(port, post("/models/words", text)));
  server.signal(SIGTERM);
  CHECK(server.code() == kOk);
  const auto refused = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "serve");
    const auto result = run_command(serve_command, arguments);
    CHECK(result.code == kUsage);
    return result.err;
  };
  CHECK_THAT(refused({"--port", "0"}), Contains("give --checkpoint, or --model NAME=PATH"));
  CHECK_THAT(refused({"--model", checkpoint}),
             Contains("--model: want NAME=PATH or NAME=TASK:PATH, got " + checkpoint));
  CHECK_THAT(refused({"--model", "a=x", "--model", "a=y"}), Contains("two models have the name a"));
  CHECK_THAT(refused({"--model", "a=x", "--name", "b"}), Contains("--name is the name of --checkpoint"));
}

TEST_CASE("Models of one path have their weights once", "[unit][serve]") {
  const TemporaryDirectory directory;
  constexpr int64_t kRows = 800000;  // of the word embeddings: 50,000 kB
  const std::string checkpoint = write_random_checkpoint(directory, /*with_averages=*/false, kRows);
  std::vector<std::string> arguments = {"--checkpoint", checkpoint, "--port", "0"};
  const auto memory_of = [&] {
    ServeProcess server(directory, arguments);
    REQUIRE(server.port() > 0);
    return server.own_kilobytes();
  };
  const int64_t one = memory_of();
  for (const char* name : {"a=embedding:", "b=features:", "c=embedding:"})
    arguments.insert(arguments.end(), {"--model", name + checkpoint});
  const int64_t four = memory_of();
  CAPTURE(one, four);
  CHECK(one > 50000);
  CHECK(four - one < 25000);
}

TEST_CASE("A request in flight at SIGTERM is answered; one beyond the limit of the drain is cut with 75",
          "[unit][serve]") {
  const TemporaryDirectory directory;
  const std::string checkpoint = write_random_checkpoint(directory);
  json texts = json::array();
  for (int i = 0; i < 1000; ++i) texts.push_back("the [MASK] sat.");
  {
    ServeProcess server(directory, {"--checkpoint", checkpoint, "--port", "0"});
    RawClient client(server.port());
    client.send(post("/predict", json{{"inputs", texts}}.dump()));
    server.signal(SIGTERM);
    const std::string answer = client.rest();
    CHECK(answer.starts_with("HTTP/1.1 200 "));
    CHECK(answer.ends_with("\r\n0\r\n\r\n"));
    CHECK(server.code() == kOk);
  }
  ServeProcess server(directory, {"--checkpoint", checkpoint, "--port", "0", "--drain-seconds", "0.2"});
  RawClient client(server.port());
  client.send(
      "POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n");
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  server.signal(SIGTERM);
  CHECK(server.code() == kPreempted);
  CHECK_THAT(server.said(), Contains("requests were cut: they were not answered 0.2 s after the signal"));
}

TEST_CASE("bert asks for huge pages, unless GLIBC_TUNABLES has a choice", "[unit][serve]") {
  const TemporaryDirectory directory;
  const std::string checkpoint = write_random_checkpoint(directory);
  std::string choice;
  std::getline(std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled"), choice);
  const bool asks = choice.find("[madvise]") != std::string::npos;
  for (const auto& [given, expected] : {std::pair("", "glibc.malloc.hugetlb=1"),
                                        {"glibc.malloc.arena_max=8", "glibc.malloc.hugetlb=1"},
                                        {"glibc.malloc.hugetlb=0", "glibc.malloc.hugetlb=0"}}) {
    CAPTURE(given);
    setenv("GLIBC_TUNABLES", given, 1);
    ServeProcess server(directory, {"--checkpoint", checkpoint, "--port", "0", "--name", "with spaces"});
    unsetenv("GLIBC_TUNABLES");
    const int64_t port = server.port();
    REQUIRE(port > 0);
    CHECK_THAT(server.variable("GLIBC_TUNABLES"), Catch::Matchers::StartsWith(asks ? expected : given));
    CHECK(server.name() == "bert");
    CHECK_THAT(ask(port, "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n").second, Contains("with spaces"));
    server.signal(SIGTERM);
    CHECK(server.code() == kOk);
  }
}

TEST_CASE("The page shows the answer to each task in headless Chromium", "[unit][serve][finetune]") {
  const TemporaryDirectory directory;
  const auto shown = [&](const std::string& checkpoint, const std::string& task) {
    CAPTURE(task);
    const std::string command = std::string(BERT_SOURCE_DIR) + "/tests/scripts/serve_page.sh " + BERT_BINARY_DIR + " " +
                                checkpoint + " " + directory.path() + " " + task + " >" + directory.path("said");
    const int status = std::system(command.c_str());
    std::string said = read_file(directory.path("said"));
    CAPTURE(said);
    CHECK(status == 0);
    return said;
  };
  const std::string checkpoint = write_random_checkpoint(directory);
  const std::string said = shown(checkpoint, "fill-mask");
  if (said.starts_with("SKIPPED: ")) BERT_SKIP(said.substr(9));
  for (const char* picture : {"page-light.png", "page-dark.png"})
    CHECK(read_file(directory.path(picture)).size() > 10'000);
  shown(checkpoint, "embedding");
  for (const auto& [run, task] : {std::pair{"text-classification", "text-classification"},
                                  {"ner", "token-classification"},
                                  {"squad-v1", "question-answering"}}) {
    const FinetuneConfig config = bert::testing::tiny_task_of(run, directory);
    REQUIRE(finetune(config, false) == kOk);
    const std::string model = directory.path(std::string(task) + "-hf");
    REQUIRE(run_command(convert_command,
                        {"convert", "--to", "huggingface", "--input", config.run_directory, "--output", model})
                .code == kOk);
    json settings = json::parse(read_file(model + "/config.json"));
    if (task == std::string("token-classification"))
      settings["id2label"]["0"] = "B-Y";  // in place of O: a word has one
    std::ofstream(model + "/config.json") << settings;
    shown(model, task);
  }
}
