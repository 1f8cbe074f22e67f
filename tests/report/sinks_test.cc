// The files of each format for a short run with known numbers.
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "app/net/socket.h"
#include "app/report/file_sinks.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "tests/http/raw_client.h"
#include "tests/support/lines.h"
#include "tests/support/report_readers.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::Approx;
using bert::testing::Contains;
using bert::testing::lines_in;
using bert::testing::TemporaryDirectory;
using Json = nlohmann::ordered_json;

namespace {

constexpr double kTime = 1700000000;  // seconds since 1970

RunFacts facts(const TemporaryDirectory& directory, int64_t step) {
  return {.run_directory = directory.path(),
          .host = "here",
          .config = Json::parse(R"({
              "global_batch_size": 256, "seed": 42, "report": ["jsonl"], "model": {"hidden_size": 32},
              "optimizer": {"type": "lamb", "lr": 0.006, "beta1": 0.9, "beta2": 0.999, "eps": 1e-6,
                            "weight_decay": 0.01, "max_grad_norm": 1.0},
              "schedule": {"type": "poly", "degree": 0.5}})"),
          .pid = 7 + step,
          .init_time = kTime + static_cast<double>(step),
          .begin_time = kTime + 0.5 + static_cast<double>(step),
          .step = step,
          .max_steps = 8,
          .warmup_steps = 2,
          .accumulation_steps = 32,
          .training_examples = 5000,
          .evaluation_examples = 100,
          .max_sequence_length = 128,
          .platform = "1 x cpu"};
}

IntervalReport interval(int64_t step) {
  const auto number = static_cast<double>(step);
  return {.metrics = {},
          .line = {{"step", step},
                   {"steps", 2},
                   {"loss", 10 - number},
                   {"learning_rate", 1e-3 * number},
                   {"sequences_per_second", 64.5},
                   {"tokens_per_rank", {{"least", 10}, {"most", 12}}},
                   {"sources", {{"wiki \"1\"", {{"mlm_loss", 3.5}}}}},
                   {"time", kTime + number},
                   {"elapsed_seconds", number}}};
}

EvaluationLine evaluation(int64_t step, double accuracy) {
  return {.line = {{"step", step},
                   {"evaluation", {{"loss", 2.25}, {"mlm_accuracy", accuracy}}},
                   {"time", kTime + 0.25 + static_cast<double>(step)},
                   {"elapsed_seconds", 1.0}},
          .main_figure = "mlm_accuracy"};
}

RunEnd end_at(int64_t step, bool finished) {
  return {.step = step,
          .finished = finished,
          .time = kTime + 100,
          .seconds = 50,
          .steps = 4,
          .sequences = 1000,
          .mean_loss = 6.5,
          .last_loss = 6,
          .train_seconds = 40};
}

/// Passes a run from step `begin` on to `sink`: intervals at even steps, and evaluations before the first and after the
/// last step.
void run(Sink& sink, const TemporaryDirectory& directory, int64_t begin, int64_t end, bool finished) {
  const auto evaluate = [&](int64_t step, double accuracy) {
    sink.evaluation_begins(step, kTime + static_cast<double>(step));
    sink.evaluation(evaluation(step, accuracy));
  };
  sink.begin(facts(directory, begin));
  if (begin == 0) evaluate(0, 0.25);
  sink.training_begins({.step = begin, .last_step = 8, .time = kTime + static_cast<double>(begin)});
  for (int64_t step = begin + 2; step <= end; step += 2) sink.interval(interval(step));
  if (finished) evaluate(end, 0.75);
  sink.end(end_at(end, finished));
}

using Make = std::function<std::unique_ptr<Sink>(const std::string& run_directory, int64_t saved)>;

/// A run that is killed at step 6, after a checkpoint of step 4, and goes on to step 8.
void run_twice(const Make& make, const TemporaryDirectory& directory) {
  {
    const auto killed = make(directory.path(), -1);
    killed->begin(facts(directory, 0));
    killed->evaluation_begins(0, kTime);
    killed->evaluation(evaluation(0, 0.25));
    killed->training_begins({.step = 0, .last_step = 8, .time = kTime});
    for (const int64_t step : {2, 4, 6}) killed->interval(interval(step));
  }
  run(*make(directory.path(), 4), directory, 4, 8, /*finished=*/true);
}

/// The JSON after `token` in each line of the file.
std::vector<Json> lines_of(const std::string& path, const std::string& token) {
  std::vector<Json> lines;
  for (const std::string& line : lines_in(std::ifstream(path))) {
    REQUIRE(line.starts_with(token));
    lines.push_back(Json::parse(line.substr(token.size())));
  }
  return lines;
}

std::vector<std::string> keys_of(const Json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  return keys;
}

/// The answer at /metrics.
std::string metrics_of(int64_t port) {
  testing::RawClient client(port);
  client.send("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
  return client.answer();
}

}  // namespace

TEST_CASE("JSON lines: later steps are dropped, and layers and answers appear with their first line",
          "[unit][report]") {
  const TemporaryDirectory directory;
  {
    const auto sink = make_jsonl_sink(directory.path(), -1);
    run(*sink, directory, 0, 4, /*finished=*/false);
    CHECK_FALSE(std::filesystem::exists(directory.path("layers.jsonl")));
    for (const int64_t step : {2, 4}) {
      sink->layers({{"step", step}, {"layers", Json::array()}});
      sink->answers({{"step", step}, {"answers", Json::array()}});
    }
  }
  make_jsonl_sink(directory.path(), 2)->interval(interval(4));
  const std::vector<Json> metrics = lines_of(directory.path("metrics.jsonl"), "");
  REQUIRE(metrics.size() == 3);
  CHECK(metrics[0] == evaluation(0, 0.25).line);
  CHECK(metrics[1] == interval(2).line);
  CHECK(metrics[2] == interval(4).line);
  CHECK(read_file(directory.path("layers.jsonl")) == "{\"step\":2,\"layers\":[]}\n");
  CHECK(read_file(directory.path("answers.jsonl")) == "{\"step\":2,\"answers\":[]}\n");
}

TEST_CASE("DLLogger's lines have the keys of its JSONStreamBackend, in their order", "[unit][report]") {
  const TemporaryDirectory directory;
  run(*make_dllogger_sink(directory.path(), -1), directory, 0, 4, /*finished=*/true);
  const std::vector<Json> lines = lines_of(directory.path("report/dllogger.json"), "DLLL ");
  // dllogger/logger.py, JSONStreamBackend.log() and .metadata().
  const std::vector<std::string> log = {"timestamp", "datetime", "elapsedtime", "type", "step", "data"};
  const std::vector<std::string> metadata = {"timestamp", "elapsedtime", "datetime", "type", "metric", "metadata"};
  for (const Json& line : lines) {
    CHECK(keys_of(line) == (line.at("type") == "METADATA" ? metadata : log));
    for (const char* text : {"timestamp", "datetime", "elapsedtime"}) CHECK(line.at(text).is_string());
    CHECK(std::stod(line.at("timestamp").get<std::string>()) >= kTime);
  }
  CHECK(lines[0].at("step") == "PARAMETER");
  CHECK(lines[0].at("data").at("optimizer.lr") == 0.006);
  CHECK(lines[0].at("timestamp") == "1700000000.000000");
  std::vector<Json> logs;
  for (const Json& line : lines) {
    if (line.at("type") == "LOG") logs.push_back(line);
  }
  REQUIRE(logs.size() == 6);
  CHECK(logs[1].at("step") == Json::array({0}));
  CHECK(logs[1].at("data") == Json({{"eval_loss", 2.25}, {"eval_mlm_accuracy", 0.25}}));
  CHECK(logs[2].at("step") == Json::array({2}));
  CHECK(logs[2].at("data").at("average_loss") == 8);
  CHECK(logs[2].at("data").at("learning_rate") == 2e-3);
  CHECK(logs[2].at("data").at("training_sequences_per_second") == 64.5);
  CHECK(logs[2].at("data").at("tokens_per_rank.least") == 10);
  CHECK_FALSE(logs[2].at("data").contains("time"));
  CHECK(logs[5].at("step") == Json::array());
  CHECK(logs[5].at("data") == Json({{"e2e_train_time", 50.0},
                                    {"training_sequences_per_second", 25.0},
                                    {"final_loss", 6.0},
                                    {"raw_train_time", 40.0}}));
}

TEST_CASE("DLLogger's file loses the later steps of a killed process", "[unit][report]") {
  const TemporaryDirectory directory;
  run_twice(make_dllogger_sink, directory);
  std::vector<Json> steps;
  for (const Json& line : lines_of(directory.path("report/dllogger.json"), "DLLL ")) {
    if (line.at("type") == "LOG") steps.push_back(line.at("step"));
  }
  CHECK(Json(steps).dump() == R"(["PARAMETER",[0],[2],[4],"PARAMETER",[6],[8],[8],[]])");
}

TEST_CASE("MLPerf's log has each key of BERT once, also of a run that goes on", "[unit][report]") {
  const TemporaryDirectory directory;
  run_twice(make_mlperf_sink, directory);
  const std::vector<Json> lines = lines_of(directory.path("report/mlperf.log"), ":::MLLOG ");
  std::vector<std::string> events;  // those after the parameters
  std::map<std::string, std::vector<Json>> values;
  for (const Json& line : lines) {
    CHECK(keys_of(line) == std::vector<std::string>{"namespace", "time_ms", "event_type", "key", "value", "metadata"});
    CHECK(line.at("metadata").at("lineno").get<int64_t>() > 0);
    const auto key = line.at("key").get<std::string>();
    values[key].push_back(line.at("value"));
    if (!values["run_start"].empty()) events.push_back(key);
  }
  CHECK(events == std::vector<std::string>{"run_start", "eval_start", "eval_accuracy", "eval_stop", "block_start",
                                           "block_start", "block_stop", "eval_start", "eval_accuracy", "eval_stop",
                                           "run_stop"});
  // training_5.0.0/closed_bert.yaml and common.yaml of mlperf_logging.
  for (const char* once : {"submission_benchmark",
                           "submission_org",
                           "submission_division",
                           "submission_platform",
                           "init_stop",
                           "run_start",
                           "run_stop",
                           "global_batch_size",
                           "opt_base_learning_rate",
                           "opt_lamb_epsilon",
                           "opt_learning_rate_training_steps",
                           "opt_learning_rate_warmup_steps",
                           "num_warmup_steps",
                           "start_warmup_step",
                           "opt_lamb_beta_1",
                           "opt_lamb_beta_2",
                           "opt_lamb_weight_decay_rate",
                           "gradient_accumulation_steps",
                           "train_samples",
                           "eval_samples"}) {
    CAPTURE(once);
    CHECK(values[once].size() == 1);
  }
  CHECK(values["opt_lamb_beta_2"][0] == 0.999);
  CHECK(values["gradient_accumulation_steps"][0] == 32);
  CHECK(values["eval_accuracy"] == std::vector<Json>{0.25, 0.75});
  const Json& last = lines.back();
  CHECK(last.at("time_ms") == 1700000100000);
  CHECK(last.at("metadata").at("status") == "success");
  CHECK(last.at("metadata").at("samples_count") == 8 * 256);
}

TEST_CASE("A run that a signal stops is aborted in MLPerf's log until it goes on", "[unit][report]") {
  const TemporaryDirectory directory;
  const auto last = [&] { return lines_of(directory.path("report/mlperf.log"), ":::MLLOG ").back(); };
  run(*make_mlperf_sink(directory.path(), -1), directory, 0, 4, /*finished=*/false);
  CHECK(last().at("metadata").at("status") == "aborted");
  run(*make_mlperf_sink(directory.path(), 4), directory, 4, 8, /*finished=*/true);
  CHECK(last().at("metadata").at("status") == "success");
  const std::string log = read_file(directory.path("report/mlperf.log"));
  CHECK(log.find("run_stop") == log.rfind("run_stop"));
}

TEST_CASE("MLPerf's compliance checker accepts the log, as open and as closed", "[unit][report]") {
  if (testing::python_of("BERT_MLPERF_PYTHON").empty())
    BERT_SKIP("BERT_MLPERF_PYTHON does not name a Python with mlperf-logging");
  const TemporaryDirectory directory;
  run(*make_mlperf_sink(directory.path(), -1), directory, 0, 8, /*finished=*/true);
  const std::string path = directory.path("report/mlperf.log");
  CHECK_NOTHROW(testing::check_with_mlperf(path));
  std::string log = read_file(path);
  log.replace(log.find("\"open\""), 6, "\"closed\"");
  const auto with = [&](const std::string& text) {
    AtomicFile file(path);
    file.write(text);
    file.commit();
  };
  with(log);
  CHECK_NOTHROW(testing::check_with_mlperf(path));
  log.replace(log.find("opt_lamb_beta_2"), 15, "opt_lamb_beta_3");
  with(log);
  CHECK_THROWS_WITH(testing::check_with_mlperf(path), Contains("opt_lamb_beta_2"));
}

TEST_CASE("TensorBoard finds scalars under transformers' names, hyper-parameters and the configuration",
          "[unit][report]") {
  if (testing::python_of("BERT_TENSORBOARD_PYTHON").empty())
    BERT_SKIP("BERT_TENSORBOARD_PYTHON does not name a Python with tensorboard");
  const TemporaryDirectory directory;
  run_twice(make_tensorboard_sink, directory);
  const nlohmann::json found = testing::read_with_tensorboard(directory.path("report/tensorboard"));
  const nlohmann::json& scalars = found.at("scalars");
  const auto steps = [&](const char* tag) {
    std::vector<int64_t> result;
    for (const auto& point : scalars.at(tag)) result.push_back(point[0].get<int64_t>());
    return result;
  };
  CHECK(steps("train/loss") == std::vector<int64_t>{2, 4, 6, 8});  // step 6 once: that of the killed process is dropped
  CHECK(steps("eval/loss") == std::vector<int64_t>{0, 8});
  CHECK(scalars.at("train/loss")[3][1] == 2);
  CHECK(scalars.at("train/loss")[2][2] == kTime + 6);
  CHECK(scalars.at("train/learning_rate")[0][1].get<double>() == Approx(2e-3));
  CHECK(scalars.at("train/tokens_per_rank/most")[0][1] == 12);
  CHECK(scalars.at("train/train_samples_per_second")[0][1] == 20);
  CHECK(scalars.at("train/train_runtime")[0][1] == 50);
  CHECK_FALSE(scalars.contains("train/time"));
  CHECK(found.at("hparams").at("optimizer.lr") == 0.006);
  CHECK(found.at("hparams").at("optimizer.type") == "lamb");
  CHECK(found.at("status") == 1);
  CHECK_THAT(found.at("texts").at("args/text_summary").get<std::string>(), Contains("\"hidden_size\": 32"));
}

TEST_CASE("Prometheus finds the newest numbers on the port", "[unit][report]") {
  const TemporaryDirectory directory;
  const int64_t port = port_of(listen_on({.host = "127.0.0.1", .port = 0}).get());
  {
    const auto sink = make_prometheus_sink("first", port);
    sink->begin(facts(directory, 0));
    CHECK_THAT(metrics_of(port), Contains("# TYPE bert_train_step gauge\nbert_train_step{run=\"first\"} 0\n"));
    for (const int64_t step : {2, 4}) sink->interval(interval(step));
    sink->evaluation(evaluation(4, 0.5));
    const std::string text = metrics_of(port);
    CHECK_THAT(text, Contains("200 OK"));
    CHECK_THAT(text, Contains("text/plain; version=0.0.4"));
    for (const char* line :
         {"bert_train_step{run=\"first\"} 4\n", "bert_train_loss{run=\"first\"} 6\n",
          "bert_train_time_seconds{run=\"first\"} 1700000004\n", "bert_eval_mlm_accuracy{run=\"first\"} 0.5\n",
          "bert_train_tokens_per_rank_least{run=\"first\"} 10\n",
          "bert_train_source_mlm_loss{run=\"first\",source=\"wiki \\\"1\\\"\"} 3.5\n"}) {
      CHECK_THAT(text, Contains(line));
    }
    testing::RawClient client(port);
    client.send("GET /other HTTP/1.1\r\nHost: a\r\n\r\n");
    CHECK_THAT(client.answer(), Contains("404"));
    const auto second = make_prometheus_sink("second", port);
    CHECK_THROWS_WITH(second->begin(facts(directory, 0)), Contains("set another report_port"));
  }
  CHECK_THROWS(testing::RawClient(port));  // the port is closed with the run
}

TEST_CASE("Prometheus reads numbers that are not finite, and no number of an earlier line", "[unit][report]") {
  const TemporaryDirectory directory;
  const int64_t port = port_of(listen_on({.host = "127.0.0.1", .port = 0}).get());
  const auto sink = make_prometheus_sink("a", port);
  sink->begin(facts(directory, 0));
  sink->interval(interval(2));
  sink->evaluation(evaluation(2, 0.5));
  IntervalReport report = interval(4);
  report.line["loss"] = NAN;
  report.line["grad_norm"] = INFINITY;
  report.line["learning_rate"] = -INFINITY;
  report.line.erase("sources");
  report.line.erase("sequences_per_second");
  sink->interval(report);
  const std::string text = metrics_of(port);
  // Prometheus' text format: "NaN, +Inf, and -Inf are valid values".
  for (const char* line : {"bert_train_loss{run=\"a\"} NaN\n", "bert_train_grad_norm{run=\"a\"} +Inf\n",
                           "bert_train_learning_rate{run=\"a\"} -Inf\n", "bert_train_max_steps{run=\"a\"} 8\n",
                           "bert_train_step{run=\"a\"} 4\n", "bert_eval_mlm_accuracy{run=\"a\"} 0.5\n"}) {
    CHECK_THAT(text, Contains(line));
  }
  for (const char* absent : {"bert_train_source", "sequences_per_second"})
    CHECK(text.find(absent) == std::string::npos);
}

TEST_CASE("A sink whose place cannot be written to throws IoError", "[unit][report]") {
  const TemporaryDirectory directory;
  AtomicFile file(directory.path("report"));  // a file in the place of the directory
  file.commit();
  for (const Make& make : {Make(make_tensorboard_sink), Make(make_dllogger_sink), Make(make_mlperf_sink)})
    CHECK_THROWS_AS(make(directory.path(), -1)->begin(facts(directory, 0)), IoError);
}
