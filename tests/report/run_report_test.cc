#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/report/view/report_data.h"
#include "app/report/view/report_markdown.h"
#include "app/report/view/report_page.h"
#include "app/report/view/run_files.h"
#include "app/report/view/run_series.h"
#include "app/report/view/sparkline.h"
#include "app/verbs/verbs.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "tests/places.h"
#include "tests/support/command_testing.h"
#include "tests/support/tiny_pretraining.h"
#include "tests/testing.h"

using namespace bert;
using namespace bert::testing;

namespace {

constexpr const char* kHostile = "</script><img src=x onerror=alert(1)>";

void write(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

/// Two intervals of two steps with 8 sequences each: 4 s and 2 s long. The second is by another process, which began
/// 100 s later.
const std::string kMetrics =
    R"({"step": 0, "evaluation": {"mlm_loss": 7.5, "examples": 40}, "time": 1000.5, "elapsed_seconds": 0.5}
{"step": 2, "steps": 2, "loss": 4.0, "sequences_per_second": 4.0, "tokens_per_second": 100.0, "skipped_steps": 1, "data_wait_seconds": 1.0, "mfu": 0.25, "time": 1004.0, "elapsed_seconds": 4.0}
{"step": 4, "steps": 2, "loss": 2.0, "sequences_per_second": 8.0, "tokens_per_second": 200.0, "skipped_steps": 1, "data_wait_seconds": 0.5, "mfu": 0.5, "time": 1103.0, "elapsed_seconds": 3.0}
{"step": 4, "evaluation": {"mlm_loss": 3.5, "examples": 40}, "time": 1103.6, "elapsed_seconds": 3.6}
)";

void write_run(const std::string& directory,
               const std::string& config = R"({"max_steps": 4, "global_batch_size": 8})") {
  std::filesystem::create_directories(directory);
  write(directory + "/metrics.jsonl", kMetrics);
  write(directory + "/config.json", config);
}

ReportedRun reported(const std::string& directory) {
  ReportedRun run{.files = read_run(directory), .series = {}, .checkpoints = {}, .lengths = {}};
  run.series = series_of(run.files.metrics, setting(run.files.config, "/global_batch_size"));
  return run;
}

}  // namespace

TEST_CASE("The curves of a run are its lines over steps, tokens and hours", "[unit][report]") {
  const RunSeries series = series_of(parse_json_lines(kMetrics, "metrics.jsonl"), 8);
  CHECK(series.training.step == std::vector<int64_t>{2, 4});
  CHECK(series.training.tokens == std::vector<double>{400, 800});  // 4 s of 100 and 2 s of 200
  CHECK(series.training.hours[0] == Approx(4.0 / 3600));
  CHECK(series.training.hours[1] == Approx(7.0 / 3600));  // without the 96 s between the processes
  CHECK(series.training.values.at("loss") == std::vector<double>{4, 2});
  CHECK(series.training.values.at("skipped_steps") == std::vector<double>{1, 2});
  CHECK(series.training.values.at("waiting") == std::vector<double>{0.25, 0.25});
  CHECK_FALSE(series.training.values.contains("time"));
  CHECK(series.evaluations.step == std::vector<int64_t>{0, 4});
  CHECK(series.evaluations.tokens == std::vector<double>{0, 800});
  CHECK(series.evaluations.last("mlm_loss") == 3.5);
  CHECK(std::isnan(series.evaluations.last("accuracy")));
  REQUIRE(series.restarts.size() == 1);
  CHECK(series.restarts[0].step == 4);
  CHECK(series.restarts[0].tokens == 400);
}

TEST_CASE("A clock that is set anew begins no other process", "[unit][report]") {
  // The clock goes 100 s forward after the first line, and back after the second. The last line is of a later process.
  const RunSeries series = series_of(parse_json_lines(R"({"step": 1, "time": 1004, "elapsed_seconds": 4}
{"step": 2, "time": 1106, "elapsed_seconds": 6}
{"step": 3, "time": 1008, "elapsed_seconds": 8}
{"step": 4, "time": 1020, "elapsed_seconds": 2}
)",
                                                      "m"),
                                     8);
  REQUIRE(series.restarts.size() == 1);
  CHECK(series.restarts[0].step == 4);
  CHECK(series.training.hours[2] == Approx(8.0 / 3600));
  CHECK(series.training.hours[3] == Approx(10.0 / 3600));
}

TEST_CASE("A value that only some lines have is NaN in the others", "[unit][report]") {
  const RunSeries series =
      series_of(parse_json_lines("{\"step\": 1, \"loss\": 1}\n{\"step\": 2, \"fill\": 0.5}\n"
                                 "{\"step\": 3, \"loss\": null, \"sources\": {\"a\": {\"mlm_loss\": 2}}}\n",
                                 "m"),
                8);
  CHECK(series.training.size() == 3);
  CHECK(series.training.values.at("loss")[0] == 1);
  CHECK(std::isnan(series.training.values.at("loss")[2]));
  CHECK(std::isnan(series.training.values.at("fill")[0]));
  CHECK(series.training.values.at("source a").size() == 3);
  CHECK(series.training.last("source a") == 2);
}

TEST_CASE("Long curves keep their extremes and their ends", "[unit][report]") {
  Columns columns;
  for (int64_t i = 0; i < 1000; ++i) {
    columns.step.push_back(i);
    columns.values["loss"].push_back(i == 500 ? 9 : i == 700 ? -9 : 1 + 0.001 * static_cast<double>(i % 7));
  }
  const std::vector<size_t> places = places_to_draw(columns, "loss", 20);
  CHECK(places.size() <= 21);
  for (const size_t place : {size_t{500}, size_t{700}, size_t{999}})
    CHECK(std::ranges::find(places, place) != places.end());
  CHECK(std::ranges::is_sorted(places));
  columns.values["loss"][0] = columns.values["loss"][600] = NAN;  // the first of their parts
  columns.values["loss"][650] = 20;
  const std::vector<size_t> beside_nan = places_to_draw(columns, "loss", 20);
  for (const size_t place : {size_t{500}, size_t{650}, size_t{700}})
    CHECK(std::ranges::find(beside_nan, place) != beside_nan.end());
  CHECK(std::ranges::find(beside_nan, size_t{0}) == beside_nan.end());
  CHECK(evenly(5, 10) == std::vector<size_t>{0, 1, 2, 3, 4});
  CHECK(evenly(11, 3) == std::vector<size_t>{0, 5, 10});
  CHECK(evenly(8, 3) == std::vector<size_t>{0, 3, 7});
  CHECK(evenly(0, 3).empty());
}

TEST_CASE("A sparkline goes from the lowest to the highest block", "[unit][report]") {
  CHECK(sparkline({0, 7}, 10) == "▁█");
  CHECK(sparkline({7, 6, 5, 4, 3, 2, 1, 0}, 8) == "█▇▆▅▄▃▂▁");
  CHECK(sparkline({0, 0, 4, 4, 8, 8}, 3) == "▁▅█");
  CHECK(sparkline({1, 1, 1}, 3) == "▁▁▁");
  CHECK(sparkline({NAN, 1, INFINITY, 2}, 8) == "▁█");
  CHECK(sparkline({}, 8).empty());
}

TEST_CASE("A damaged line is named, a torn last line is not there", "[unit][report]") {
  CHECK(parse_json_lines("{\"step\": 1}\n{\"step\": 2, \"lo", "m").size() == 1);
  CHECK_THROWS_WITH(parse_json_lines("{\"step\": 1}\n{\"step\": \n{\"step\": 3}\n", "m"), Contains("m:2: "));
  CHECK_THROWS_WITH(parse_json_lines("{}\n{}\n[1]\n", "m"), Contains("m:3: expected a JSON object"));
  CHECK_THROWS_WITH(series_of(parse_json_lines("{\"loss\": 1}\n", "m"), 8), Contains("m:1: \"step\" is missing"));
}

TEST_CASE("bert report refuses what is no run and leaves an earlier report as it was", "[unit][report]") {
  const TemporaryDirectory directory;
  const std::string run = directory.path("run"), output = directory.path("report.html");
  write(output, "earlier");
  const auto report = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "report");
    return run_command(report_command, arguments);
  };
  CHECK(report({run, "--output", output}).code == kInputMissing);
  std::filesystem::create_directories(run);
  CommandResult result = report({run, "--output", output});
  CHECK(result.code == kInputMissing);
  CHECK_THAT(result.err, Contains("is no run directory: it has neither config.json nor metrics.jsonl"));
  write(run + "/metrics.jsonl", "");
  result = report({run, "--output", output});
  CHECK(result.code == kInputMissing);
  CHECK_THAT(result.err, Contains("metrics.jsonl: has no line yet"));
  write(run + "/metrics.jsonl", kMetrics + "{damaged\n");
  result = report({run, "--output", output});
  CHECK(result.code == kBadData);
  CHECK_THAT(result.err, Contains("metrics.jsonl:5: "));
  write_run(run);
  write(run + "/layers.jsonl", "{\"step\": 1, \"layers\": 7}\n");
  result = report({run, "--output", output});
  CHECK(result.code == kBadData);
  CHECK_THAT(result.err, Contains("layers.jsonl:1: \"layers\""));
  CHECK(read_file(output) == "earlier");
  CHECK(report({run}).code == kUsage);
  CHECK(report({run, "--output", run + "/metrics.jsonl"}).code == kUsage);
  CHECK(report({run, "--format", "pdf"}).code == kUsage);
  CHECK(read_file(run + "/metrics.jsonl") == kMetrics);
}

TEST_CASE("The page of a report holds its numbers and nothing from elsewhere", "[unit][report]") {
  const TemporaryDirectory directory;
  const std::string first = directory.path("first"), second = directory.path("second");
  write_run(first);
  write_run(second,
            nlohmann::json{{"max_steps", 4}, {"global_batch_size", 8}, {"run_directory", second}, {"device", kHostile}}
                .dump());
  write(second + "/attempts.jsonl",
        "{\"event\": \"begin\", \"time\": 1000, \"step\": 0, \"command\": [\"bert\", \"<b>\"], \"host\": \"a\"}\n");
  const std::string output = directory.path("report.html");
  REQUIRE(run_command(report_command, {"report", first, second, "--output", output}).code == kOk);
  const std::string page = read_file(output), again = directory.path("again.html");
  REQUIRE(run_command(report_command, {"report", first, second, "--output", again}).code == kOk);
  CHECK(read_file(again) == page);
  CHECK_THAT(page, Contains("<svg"));
  CHECK(page.find("src=") == page.find("src=x"));  // that of the hostile text, within the data
  for (const char* from_elsewhere : {"href=", "https:", "url(", "@import", "fetch("})
    CHECK(page.find(from_elsewhere) == std::string::npos);
  CHECK(page.find("http:") == page.find("http://www.w3.org/2000/svg"));  // the name of SVG's elements
  CHECK(page.find("http:") == page.rfind("http:"));
  CHECK(page.find("</script><img") == std::string::npos);
  const std::string mark = R"(<script type="application/json" id="data">)";
  const size_t begin = page.find(mark) + mark.size();
  const auto data = nlohmann::json::parse(page.substr(begin, page.find("</script>", begin) - begin));
  CHECK(data["runs"][0]["training"]["values"]["loss"] == std::vector<double>{4, 2});
  CHECK(data["runs"][1]["configuration"]["/device"] == nlohmann::json(kHostile).dump());
  CHECK(data["runs"][1]["attempts"][0]["command"][1] == "<b>");
  CHECK(data["runs"][0]["lengths"]["absent"] == "the configuration names no shards");
  REQUIRE(data["differences"].size() == 1);
  CHECK(data["differences"][0]["key"] == "/device");
  CHECK(data["differences"][0]["values"] == nlohmann::json{"", nlohmann::json(kHostile).dump()});
}

TEST_CASE("A report counts the lengths of the shards that a configuration names", "[unit][report]") {
  const TemporaryDirectory directory;
  const std::string shard = directory.path("train.shard"), run = directory.path("run"),
                    output = directory.path("r.html");
  write_counting_shard(shard, 300, 1);
  write_run(run, nlohmann::json{{"global_batch_size", 8}, {"data", {{"train", {shard}}}}}.dump());
  REQUIRE(run_command(report_command, {"report", run, "--output", output}).code == kOk);
  const std::string page = read_file(output);
  CHECK_THAT(page, Contains("\"counted\":300"));
  CHECK_THAT(page, Contains("\"max_seq_length\":24"));
  double tokens = 0;
  for (const PretrainingShards shards({shard}); int64_t row : {0}) {
    for (row = 0; row < shards.size(); ++row) tokens += static_cast<double>(shards.row(row).length);
  }
  CHECK_THAT(page, Contains("\"mean_length\":" + nlohmann::json(tokens / 300).dump()));
  CHECK_THAT(page, Contains("\"padding_saved\":" + nlohmann::json(1 - tokens / 300 / 24).dump()));
}

TEST_CASE("A report counts the lengths of some examples of all parts of long data", "[unit][report]") {
  constexpr int64_t kRows = 30'000, kCounted = 20'000;  // no multiple
  const TemporaryDirectory directory;
  const std::string shard = directory.path("train.shard"), run = directory.path("run"),
                    output = directory.path("r.html");
  write_counting_shard(shard, kRows, 1);
  write_run(run, nlohmann::json{{"global_batch_size", 8}, {"data", {{"train", {shard}}}}}.dump());
  REQUIRE(run_command(report_command, {"report", run, "--output", output}).code == kOk);
  const PretrainingShards shards({shard});
  double tokens = 0;
  for (int64_t i = 0; i < kCounted; ++i)
    tokens += static_cast<double>(shards.row(i * (kRows - 1) / (kCounted - 1)).length);
  const std::string page = read_file(output);
  CHECK_THAT(page, Contains("\"counted\":20000"));
  CHECK_THAT(page, Contains("\"mean_length\":" + nlohmann::json(tokens / kCounted).dump()));
}

TEST_CASE("Answers and layers become rows, right answers are counted", "[unit][report]") {
  const TemporaryDirectory directory;
  write_run(directory.path("run"));
  write(
      directory.path("run/answers.jsonl"),
      R"({"step": 0, "answers": [{"text": "a [MASK]", "expected": "b", "fillers": [{"token_str": "c", "score": 0.5}, {"token_str": "b", "score": 0.25}]}]}
{"step": 4, "answers": [{"text": "a [MASK]", "expected": "b", "fillers": [{"token_str": "b", "score": 0.5}]}]}
)");
  write(directory.path("run/layers.jsonl"),
        R"({"step": 2, "layers": [{"name": "w", "weight_norm": 1.5, "update_norm": null, "trust_ratio": null}]}
{"step": 4, "layers": [{"name": "w", "weight_norm": 2.5, "update_norm": 0.5, "trust_ratio": 5}]}
)");
  const nlohmann::json run = report_data({reported(directory.path("run"))})["runs"][0];
  CHECK(run["answers"]["right"] == nlohmann::json::parse(R"([{"step": 0, "right": 0}, {"step": 4, "right": 1}])"));
  CHECK(run["answers"]["evaluations"][0]["answers"][0]["fillers"][1]["token"] == "b");
  CHECK(run["layers"] == nlohmann::json::parse(R"({"steps": [2, 4], "rows": [
    {"name": "w", "weight_norm": [1.5, 2.5], "update_norm": [null, 0.5], "trust_ratio": [null, 5]}]})"));
}

TEST_CASE("A profile is a part of the report, and is refused with its field", "[unit][report]") {
  const TemporaryDirectory directory;
  write_run(directory.path("run"));
  CHECK(report_data({reported(directory.path("run"))})["runs"][0]["profile"].is_null());
  const std::string profile =
      R"({"steps": [10, 15], "step_ms": 8.5, "parts": [{"name": "forward", "ms": 3.5, "share": 0.4}],
    "operators": [{"name": "bert::linear", "calls": 2, "self_ms": 2.5, "share": 0.3, "flops": 1e9, "bytes": 1e6,
    "limit_ms": null}], "limits": {"gemm_tflops": 0.25, "copy_gb_per_second": 40}})";
  write(directory.path("run/profile.json"), profile);
  nlohmann::json want = nlohmann::json::parse(profile);
  want["steps"] = {"10", "15"};
  CHECK(report_data({reported(directory.path("run"))})["runs"][0]["profile"] == want);
  write(directory.path("run/profile.json"), R"({"steps": [10, 15], "step_ms": 8.5, "parts": 7})");
  CHECK_THROWS_WITH(report_data({reported(directory.path("run"))}), Contains("profile.json: \"parts\""));
}

TEST_CASE("bert report --format markdown prints the figures, a curve and the differences", "[unit][report]") {
  const TemporaryDirectory directory;
  write_run(directory.path("first"), R"({"max_steps": 4, "global_batch_size": 8, "note": "a|b"})");
  write_run(directory.path("second"), R"({"max_steps": 8, "global_batch_size": 8, "note": "`@team`"})");
  write(directory.path("first/summary.json"), R"({"steps": 4})");
  const CommandResult result = run_command(
      report_command, {"report", directory.path("first"), directory.path("second"), "--format", "markdown"});
  CHECK(result.code == kOk);
  CHECK(result.out ==
        "| figure | `first` | `second` |\n"
        "| --- | ---: | ---: |\n"
        "| state | `finished` | `not finished, or its files do not say it` |\n"
        "| steps | 4 of 4 | 4 of 8 |\n"
        "| time of training | 00:07 | 00:07 |\n"
        "| training loss | 2 | 2 |\n"
        "| its curve | █▁ | █▁ |\n"
        "| evaluation `mlm_loss` | 3.5 | 3.5 |\n"
        "| sequences/s | 8 | 8 |\n"
        "| tokens/s | 200 | 200 |\n"
        "| MFU | 50.0 % | 50.0 % |\n"
        "| waiting for data | 25.0 % | 25.0 % |\n"
        "| skipped steps | 2 | 2 |\n"
        "| restarts | 1 | 1 |\n"
        "\nThe configurations differ in\n\n"
        "| key | `first` | `second` |\n"
        "| --- | ---: | ---: |\n"
        "| `/max_steps` | `4` | `8` |\n"
        "| `/note` | `\"a\\|b\"` | `` \"`@team`\" `` |\n");
}

TEST_CASE("The curves of a page in headless Chromium agree with metrics.jsonl", "[unit][report]") {
  const TemporaryDirectory directory;
  const std::string command = std::string("python3 ") + BERT_SOURCE_DIR + "/tests/scripts/report_page.py " +
                              BERT_BINARY_DIR + " " + directory.path() + " >" + directory.path("said") + " 2>&1";
  const int status = std::system(command.c_str());
  const std::string said = read_file(directory.path("said"));
  if (said.starts_with("SKIPPED: ")) BERT_SKIP(said.substr(9));
  CAPTURE(said);
  CHECK(status == 0);
  for (const char* picture : {"report-wide-light.png", "report-narrow-light.png", "report-wide-dark.png"})
    CHECK(read_file(directory.path(picture)).size() > 10'000);
}
