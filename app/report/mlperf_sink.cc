#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#include "app/report/file_sinks.h"
#include "app/report/line_file.h"
#include "data/io/files.h"

namespace bert {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kLineToken = ":::MLLOG ";
constexpr const char *kPoint = "POINT_IN_TIME", *kStart = "INTERVAL_START", *kEnd = "INTERVAL_END";

/// True for lines of steps up to `saved`, but for that of the end: the run goes on.
bool is_kept(std::string_view line, int64_t saved) {
  if (saved < 0 || !line.starts_with(kLineToken)) return false;
  const auto object = nlohmann::json::parse(line.substr(kLineToken.size()), nullptr, /*allow_exceptions=*/false);
  if (!object.is_object() || object.value("key", "") == "run_stop") return false;
  const auto metadata = object.value("metadata", nlohmann::json::object());
  return metadata.is_object() && metadata.value("step", int64_t{0}) <= saved;
}

/// The names in MLPerf's log of the fields of `optimizer`, by the type of the optimizer.
std::string prefix_of(const std::string& optimizer) {
  return optimizer == "lamb" || optimizer == "adamw" ? "opt_" + optimizer + "_" : "opt_adam_";
}

class MlperfSink : public Sink {
 public:
  MlperfSink(const std::string& run_directory, int64_t saved) : directory_(run_directory + "/report"), saved_(saved) {}

  void begin(const RunFacts& facts) override {
    make_directories(directory_);
    file_.emplace(directory_ + "/mlperf.log", [this](std::string_view line) { return is_kept(line, saved_); });
    sequences_a_step_ = facts.config.at("global_batch_size").get<int64_t>();
    if (file_->kept_lines()) return;
    time_ = facts.init_time;
    log(kPoint, "cache_clear", false);
    log(kStart, "init_start", nullptr);
    log(kPoint, "submission_benchmark", "bert");
    log(kPoint, "submission_org", "none");
    log(kPoint, "submission_division", "open");
    log(kPoint, "submission_status", "research");
    log(kPoint, "submission_platform", facts.platform);
    write_parameters(facts);
    write_optimizer(facts);
    time_ = facts.begin_time;
    log(kEnd, "init_stop", nullptr);
    log(kStart, "run_start", nullptr);
  }

  void training_begins(const TrainingBegin& begin) override {
    last_step_ = begin.last_step;
    time_ = begin.time;
    start_block(begin.step);
  }

  void evaluation_begins(int64_t step, double time) override {
    time_ = time;
    stop_block(step);
    log(kStart, "eval_start", nullptr, at(step));
  }

  void evaluation(const EvaluationLine& evaluation) override {
    const auto step = evaluation.line.at("step").get<int64_t>();
    time_ = evaluation.line.at("time").get<double>();
    const Json& figures = evaluation.line.at("evaluation");
    if (const auto figure = figures.find(evaluation.main_figure); figure != figures.end())
      log(kPoint, "eval_accuracy", *figure, at(step));
    log(kEnd, "eval_stop", nullptr, at(step));
    if (step < last_step_) start_block(step);
  }

  void end(const RunEnd& end) override {
    time_ = end.time;
    stop_block(end.step);
    Json metadata = at(end.step);
    metadata["status"] = end.finished ? "success" : "aborted";
    log(kEnd, "run_stop", nullptr, metadata);
  }

 private:
  void write_parameters(const RunFacts& facts) {
    log(kPoint, "seed", facts.config.at("seed"));
    log(kPoint, "global_batch_size", sequences_a_step_);
    log(kPoint, "gradient_accumulation_steps", facts.accumulation_steps);
    log(kPoint, "max_sequence_length", facts.max_sequence_length);
    log(kPoint, "train_samples", facts.training_examples);
    log(kPoint, "eval_samples", facts.evaluation_examples);
  }

  void write_optimizer(const RunFacts& facts) {
    const Json& optimizer = facts.config.at("optimizer");
    const auto type = optimizer.at("type").get<std::string>();
    const std::string prefix = prefix_of(type);
    log(kPoint, "opt_name", type);
    log(kPoint, "opt_base_learning_rate", optimizer.at("lr"));
    log(kPoint, prefix + "epsilon", optimizer.at("eps"));
    log(kPoint, prefix + "beta_1", optimizer.at("beta1"));
    log(kPoint, prefix + "beta_2", optimizer.at("beta2"));
    log(kPoint,
        type == "lamb"    ? prefix + "weight_decay_rate"
        : type == "adamw" ? prefix + "weight_decay"
                          : "opt_weight_decay",
        optimizer.at("weight_decay"));
    log(kPoint, "opt_gradient_clip_norm", optimizer.at("max_grad_norm"));
    const Json& schedule = facts.config.at("schedule");
    if (type == "lamb" && schedule.at("type").get<std::string>().starts_with("poly"))
      log(kPoint, "opt_lamb_learning_rate_decay_poly_power", schedule.at("degree"));
    log(kPoint, "opt_learning_rate_training_steps", facts.max_steps);
    log(kPoint, "opt_learning_rate_warmup_steps", facts.warmup_steps);
    log(kPoint, "num_warmup_steps", facts.warmup_steps);
    log(kPoint, "start_warmup_step", 0);
  }

  /// Metadata of the begin or end of something at `step`.
  [[nodiscard]] Json at(int64_t step) const {
    const int64_t sequences = step * sequences_a_step_;
    return {{"epoch_num", sequences}, {"samples_count", sequences}, {"step", step}};
  }
  void start_block(int64_t step) {
    const int64_t sequences = step * sequences_a_step_;
    log(kStart, "block_start", nullptr, {{"first_epoch_num", sequences}, {"samples_count", sequences}, {"step", step}});
    in_block_ = true;
  }
  void stop_block(int64_t step) {
    if (!std::exchange(in_block_, false)) return;
    log(kEnd, "block_stop", nullptr, at(step));
  }

  /// `line` is that of the call, as in the logs of MLPerf's own library.
  void log(const char* event, const std::string& key, const Json& value, const Json& metadata = Json::object(),
           int line = __builtin_LINE()) {
    if (!file_) return;
    Json place = {{"file", "app/report/mlperf_sink.cc"}, {"lineno", line}};
    place.update(metadata);
    constexpr double kMilliseconds = 1e3;  // in a second
    const Json object = {{"namespace", ""},     {"time_ms", std::llround(time_ * kMilliseconds)},
                         {"event_type", event}, {"key", key},
                         {"value", value},      {"metadata", std::move(place)}};
    file_->write(std::string(kLineToken) + object.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace));
  }

  const std::string directory_;
  const int64_t saved_;
  std::optional<LineFile> file_;
  int64_t sequences_a_step_ = 0, last_step_ = 0;
  bool in_block_ = false;
  double time_ = 0;  // of the event, seconds since 1970
};

}  // namespace

std::unique_ptr<Sink> make_mlperf_sink(const std::string& run_directory, int64_t saved) {
  return std::make_unique<MlperfSink>(run_directory, saved);
}

}  // namespace bert
