#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <ctime>
#include <optional>
#include <string_view>

#include "app/report/file_sinks.h"
#include "app/report/line_file.h"
#include "data/io/files.h"

namespace bert {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kToken = "DLLL ";
constexpr double kMicroseconds = 1e6;  // in a second

/// True for lines of no step, and of steps up to `saved`. The line of an end, whose step is [], goes: the run goes on.
bool is_before(std::string_view line, int64_t saved) {
  if (saved < 0 || !line.starts_with(kToken)) return false;
  const auto object = nlohmann::json::parse(line.substr(kToken.size()), nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return false;
  const auto step = object.value("step", nlohmann::json("none"));
  if (!step.is_array()) return true;
  return !step.empty() && step.back().is_number_integer() && step.back().get<int64_t>() <= saved;
}

/// Local time as Python prints it: 2026-01-31 23:59:59.123456+01:00.
std::string date_of(double time) {
  const auto microseconds = static_cast<int64_t>(std::llround(time * kMicroseconds));
  const auto seconds = static_cast<std::time_t>(microseconds / 1000000);
  std::tm parts{};
  localtime_r(&seconds, &parts);
  const long east = parts.tm_gmtoff / 60;  // minutes
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02}.{:06}{}{:02}:{:02}", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec, microseconds % 1000000,
                     east < 0 ? '-' : '+', std::labs(east) / 60, std::labs(east) % 60);
}

class DlloggerSink : public Sink {
 public:
  DlloggerSink(const std::string& run_directory, int64_t saved)
      : directory_(run_directory + "/report"), saved_(saved) {}

  void begin(const RunFacts& facts) override {
    make_directories(directory_);
    file_.emplace(directory_ + "/dllogger.json", [this](std::string_view line) { return is_before(line, saved_); });
    start_ = facts.init_time;
    log(start_, "PARAMETER", flat(facts.config));
    describe("average_loss", "", ":.5f");
    describe("learning_rate", "", ":.3e");
    describe("training_sequences_per_second", "sequences/s", ":.1f");
    describe("e2e_train_time", "s", ":.1f");
    describe("raw_train_time", "s", ":.1f");
  }

  void interval(const IntervalReport& report) override {
    Json data = {{"average_loss", report.line.at("loss")}, {"learning_rate", report.line.at("learning_rate")}};
    const Json figures = flat(figures_of(report.line));
    for (const auto& [key, value] : figures.items()) {
      if (key != "loss" && key != "learning_rate")
        data[key == "sequences_per_second" ? "training_sequences_per_second" : key] = value;
    }
    log(report.line, std::move(data));
  }

  void evaluation(const EvaluationLine& evaluation) override {
    Json data;
    const Json figures = flat(evaluation.line.at("evaluation"));
    for (const auto& [key, value] : figures.items()) data["eval_" + key] = value;
    log(evaluation.line, std::move(data));
  }

  void end(const RunEnd& end) override {
    if (!file_ || end.steps == 0) return;
    log(end.time, Json::array(),
        {{"e2e_train_time", end.seconds},
         {"training_sequences_per_second", end.train_seconds > 0 ? end.sequences / end.train_seconds : 0},
         {"final_loss", end.last_loss},
         {"raw_train_time", end.train_seconds}});
  }

 private:
  void describe(const std::string& metric, const std::string& unit, const std::string& format) {
    Json metadata = {{"format", format}};
    if (!unit.empty()) metadata["unit"] = unit;
    write({{"timestamp", fmt::format("{:.6f}", start_)},
           {"elapsedtime", "0.0"},
           {"datetime", date_of(start_)},
           {"type", "METADATA"},
           {"metric", metric},
           {"metadata", std::move(metadata)}});
  }
  void log(const Json& line, Json data) {
    if (file_) log(line.at("time").get<double>(), Json::array({line.at("step")}), std::move(data));
  }
  void log(double time, Json step, Json data) {
    write({{"timestamp", fmt::format("{:.6f}", time)},
           {"datetime", date_of(time)},
           {"elapsedtime", fmt::format("{:.6f}", time - start_)},
           {"type", "LOG"},
           {"step", std::move(step)},
           {"data", std::move(data)}});
  }
  void write(const Json& object) {
    file_->write(std::string(kToken) + object.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace));
  }

  const std::string directory_;
  const int64_t saved_;
  std::optional<LineFile> file_;
  double start_ = 0;  // seconds since 1970
};

}  // namespace

std::unique_ptr<Sink> make_dllogger_sink(const std::string& run_directory, int64_t saved) {
  return std::make_unique<DlloggerSink>(run_directory, saved);
}

}  // namespace bert
