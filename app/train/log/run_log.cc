#include "app/train/log/run_log.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "app/config/run_config.h"
#include "app/report/file_sinks.h"
#include "app/report/sink.h"
#include "app/system/error_report.h"
#include "app/system/machine/host.h"
#include "app/train/step/optimizer_step.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "optim/parameter_norms.h"

namespace bert {
namespace {

nlohmann::ordered_json or_null(const std::optional<double>& number) {
  return number ? nlohmann::ordered_json(*number) : nlohmann::ordered_json(nullptr);
}

TensorHistogram histogram_of_tensor(const torch::Tensor& tensor, double factor) {
  const torch::Tensor host = tensor.detach().to(torch::kCPU, torch::kFloat).contiguous();
  return histogram_of({host.const_data_ptr<float>(), static_cast<size_t>(host.numel())}, factor);
}

/// The line of layers.jsonl of step `applied`: name, weight_norm, update_norm and trust_ratio of every parameter
/// (optim/parameter_norms.h), null where there is none. Every rank must call it; the ranks but 0 get null. Waits for
/// the device, and changes nothing.
nlohmann::ordered_json layers_line(const OptimizerStep& step, int64_t applied) {
  const StateDict state = step.optimizer->state_dict();  // gathered from all ranks if it is sharded
  if (step.rank() != 0) return nullptr;
  nlohmann::ordered_json line = {{"step", applied}, {"layers", nlohmann::ordered_json::array()}};
  for (const ParameterNorms& norms : parameter_norms(step.parameters(), step.optimizer_config(), state)) {
    line["layers"].push_back({{"name", norms.name},
                              {"weight_norm", norms.weight},
                              {"update_norm", or_null(norms.update)},
                              {"trust_ratio", or_null(norms.trust_ratio)}});
  }
  return line;
}

/// The distributions of all weights, and with `gradients` of the gradients of the last step without the loss scale.
/// With a sharded optimizer state only rank 0's own parameters have whole gradients there, and the others get none.
/// Copies one tensor at a time to the CPU, and changes nothing.
std::vector<TensorDistribution> distributions_of(const OptimizerStep& step, bool gradients) {
  const torch::NoGradGuard no_grad;
  const double factor = 1.0 / step.last_loss_scale();
  std::vector<TensorDistribution> result;
  for (const NamedParameter& parameter : step.parameters()) {
    TensorDistribution& entry = result.emplace_back();
    entry.name = parameter.name;
    entry.weights = histogram_of_tensor(parameter.tensor, 1.0);
    const torch::Tensor& gradient = parameter.tensor.grad();
    if (gradients && gradient.defined() && step.has_whole_gradient(parameter.name))
      entry.gradients = histogram_of_tensor(gradient, factor);
  }
  return result;
}

struct Format {
  const char* name;  // in config.report
  std::unique_ptr<Sink> (*make)(const std::string& run_directory, int64_t saved);
};
constexpr std::array<Format, 4> kFormats = {{{"jsonl", make_jsonl_sink},
                                             {"tensorboard", make_tensorboard_sink},
                                             {"dllogger", make_dllogger_sink},
                                             {"mlperf", make_mlperf_sink}}};

/// The last part of a directory's path.
std::string last_part(const std::filesystem::path& directory) {
  return (directory.has_filename() ? directory : directory.parent_path()).filename().string();
}

/// The sinks of config.report but the console, and that of Prometheus with config.report_port. `saved`: the step of
/// the checkpoint from which the run goes on; -1: it begins. Throws IoError.
std::vector<std::unique_ptr<Sink>> make_sinks(const RunConfig& config, int64_t saved) {
  std::vector<std::unique_ptr<Sink>> sinks;
  for (const Format& format : kFormats) {
    if (config.reports(format.name)) sinks.push_back(format.make(config.run_directory, saved));
  }
  if (config.report_port > 0)
    sinks.push_back(make_prometheus_sink(last_part(config.run_directory), config.report_port));
  return sinks;
}

using Clock = std::chrono::steady_clock;

/// Local time as 2026-01-31 23:59:59.
std::string time_of_day() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02}", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday,
                     parts.tm_hour, parts.tm_min, parts.tm_sec);
}

}  // namespace

RunLog::RunLog(const RunConfig& config, const RunLogOptions& options, OptimizerStep& step)
    : config_(config),
      step_(step),
      writes_(step.rank() == 0),
      work_(config.model, options.pooler, options.sources),
      summary_(config.run_directory, config.max_steps, options.config_sha256),
      init_time_(seconds_since_epoch()) {
  if (writes_) log_file_.emplace(config.run_directory + "/run.log");
}

bool RunLog::on_console() const { return std::ranges::find(config_.report, "console") != config_.report.end(); }

void RunLog::say(const std::string& text) {
  if (!writes_) return;
  if (console_ != nullptr) return console_->message(text);
  if (on_console()) std::fprintf(stderr, "%s\n", text.c_str());
  record(text);
}

void RunLog::note(const std::string& text) {
  if (writes_) record(text);
}

void RunLog::record(const std::string& text) {
  const std::lock_guard lock(files_);
  if (failure_) return;
  try {
    log_file_->write(time_of_day() + " " + text + (text.ends_with('\n') ? "" : "\n"));
  } catch (const IoError&) {
    failure_ = std::current_exception();
  }
}

std::exception_ptr RunLog::failure() const {
  const std::lock_guard lock(files_);
  return failure_;
}

void RunLog::to_sinks(const std::function<void(Sink& sink)>& call) {
  for (const auto& sink : sinks_) {
    if (failure()) return;
    try {
      call(*sink);  // not under files_: the console writes to run.log
    } catch (const IoError&) {
      const std::lock_guard lock(files_);
      failure_ = std::current_exception();
    }
  }
}

void RunLog::open(int64_t saved) {
  if (!writes_) return;
  if (on_console()) {
    auto console = std::make_unique<ConsoleSink>([] { return std::string(name_of(current_phase())); },
                                                 [this](const std::string& line) { record(line); });
    console_ = console.get();
    sinks_.push_back(std::move(console));
  }
  for (auto& sink : make_sinks(config_, saved)) sinks_.push_back(std::move(sink));
}

void RunLog::begin(RunFacts facts) {
  trains_since_ = Clock::now();
  if (!writes_) return;
  facts.init_time = init_time_;
  facts.begin_time = seconds_since_epoch();
  for (const auto& sink : sinks_) sink->begin(facts);
}

void RunLog::step_tried() {
  ++tried_;
  if (console_ != nullptr) console_->reached(first_step_ + tried_);
}

void RunLog::start(int64_t applied, int64_t last_step, double gemm_flops) {
  gemm_flops_ = gemm_flops;
  to_sinks([&](Sink& sink) {
    sink.training_begins({.step = applied, .last_step = last_step, .time = seconds_since_epoch()});
  });
  interval_start_ = Clock::now();
  first_step_ = applied;
}

nlohmann::ordered_json RunLog::interval_line(const StepMetrics& m, const WorkMeter::Work& work,
                                             const std::vector<double>& mlm_sums, double seconds) const {
  nlohmann::ordered_json line = {{"step", m.step}, {"steps", tried_}, {"loss", m.loss}};
  for (const auto& [name, mean] : m.terms) line[name + "_loss"] = mean;
  line.update({{"learning_rate", m.learning_rate},
               {"grad_norm", m.grad_norm},
               {"loss_scale", m.loss_scale},
               {"skipped_steps", m.skipped},
               {"sequences_per_second", m.sequences_per_second},
               {"tokens_per_second", m.tokens_per_second},
               {"mfu", m.mfu}});
  line["tokens_per_rank"] = {{"least", std::llround(work.least_tokens)}, {"most", std::llround(work.most_tokens)}};
  if (!config_.batch_size_schedule.empty()) line["sequences_per_step"] = work.sequences / static_cast<double>(tried_);
  line["fill"] = work.tokens / work.capacity;
  line["data_wait_seconds"] = work.most_seconds_waited;
  line["data_wait_share"] = work.most_seconds_waited / seconds;
  if (work.corrupted > 0) line["corrupted_rows"] = work.corrupted;
  for (size_t i = 0; i < work.sources.size(); ++i) {
    const WorkMeter::SourceWork& source = work.sources[i];
    line["sources"][source.name] = {{"mlm_loss", mlm_sums[i] / std::max(source.masked_tokens, 1.0)},
                                    {"examples", std::llround(source.examples)},
                                    {"masked_tokens", std::llround(source.masked_tokens)}};
  }
  return line;
}

void RunLog::write_interval(int64_t applied) {
  if (tried_ == 0) return;
  const double seconds = std::chrono::duration<double>(Clock::now() - interval_start_).count();
  const OptimizerStep::MeanTerms loss = step_.take_mean_terms();
  const std::vector<std::string> names = step_.loss_names();
  StepMetrics m;
  m.step = applied;
  m.max_steps = config_.max_steps;
  m.skipped = tried_ - (applied - first_step_);
  for (size_t i = 0; i < names.size(); ++i) m.terms.emplace_back(names[i], loss.terms[i]);
  m.loss = std::accumulate(loss.terms.begin(), loss.terms.end(), 0.0);
  m.learning_rate = step_.last_learning_rate();
  m.grad_norm = step_.optimizer->grad_norm().item<double>();
  m.loss_scale = step_.scaler.enabled() ? step_.scaler.current_scale().item<double>() : 1.0;
  const WorkMeter::Work work = work_.sum(step_);
  m.sequences_per_second = work.sequences / seconds;
  m.tokens_per_second = work.tokens / seconds;
  m.mfu = work.flops / seconds / gemm_flops_ / step_.world_size();
  const double exposed_communication_ms = step_.exposed_communication_ms();
  if (writes_) {
    nlohmann::ordered_json line = interval_line(m, work, loss.sums, seconds);
    if (step_.world_size() > 1) line["exposed_communication_ms"] = exposed_communication_ms;
    const IntervalReport report{.metrics = m, .line = timed(std::move(line))};
    to_sinks([&](Sink& sink) { sink.interval(report); });
  }
  summary_.set_rate(m.sequences_per_second);
  total_.steps += tried_;
  total_.sequences += work.sequences;
  total_.train_seconds += seconds;
  total_.last_loss = m.loss;
  loss_sum_ += m.loss * static_cast<double>(tried_);
  start_interval(applied);
}

void RunLog::start_interval(int64_t applied) {
  interval_start_ = Clock::now();
  first_step_ = applied;
  tried_ = 0;
  work_.reset();
}

void RunLog::evaluation_begins(int64_t applied) {
  to_sinks([&](Sink& sink) { sink.evaluation_begins(applied, seconds_since_epoch()); });
}

void RunLog::write_evaluation(int64_t applied, const EvaluationReport& evaluation) {
  if (!writes_) return;
  const EvaluationLine line{.line = timed({{"step", applied}, {"evaluation", evaluation.figures}}),
                            .main_figure = evaluation.main_figure};
  to_sinks([&](Sink& sink) { sink.evaluation(line); });
  say(fmt::format("step {}: {}", applied, evaluation.text));
  summary_.take(evaluation.summary);
}

void RunLog::write_answers(const nlohmann::ordered_json& line) {
  if (!line.is_null()) to_sinks([&](Sink& sink) { sink.answers(line); });
}

void RunLog::write_layers(int64_t applied) {
  if (std::exchange(layers_step_, applied) == applied) return;
  const auto start = Clock::now();
  if (config_.reports("layers")) {
    const nlohmann::ordered_json line = layers_line(step_, applied);
    to_sinks([&](Sink& sink) { sink.layers(line); });
  }
  if (config_.reports("histograms") && writes_) {
    const std::vector<TensorDistribution> tensors = distributions_of(step_, /*gradients=*/total_.steps + tried_ > 0);
    to_sinks([&](Sink& sink) { sink.distributions(applied, seconds_since_epoch(), tensors); });
  }
  leave_out(Clock::now() - start);
}

void RunLog::finish() {
  if (console_ != nullptr) console_->finish();
}

void RunLog::end(int64_t applied, bool finished) {
  RunEnd end = total_;
  end.step = applied;
  end.finished = finished;
  end.time = seconds_since_epoch();
  end.seconds = std::chrono::duration<double>(Clock::now() - trains_since_).count();
  if (end.steps > 0) end.mean_loss = loss_sum_ / static_cast<double>(end.steps);
  to_sinks([&](Sink& sink) { sink.end(end); });
}

nlohmann::ordered_json RunLog::timed(nlohmann::ordered_json line) const {
  line["time"] = seconds_since_epoch();
  line["elapsed_seconds"] = std::round(1000 * std::chrono::duration<double>(Clock::now() - begin_).count()) / 1000;
  return line;
}

void RunSummary::take(const std::map<std::string, double>& figures) {
  for (const auto& [name, value] : figures) figures_[name] = value;
}

void RunSummary::write(int64_t applied) const {
  nlohmann::ordered_json summary = {{"steps", applied}, {"max_steps", max_steps_}, {"config_sha256", sha256_}};
  for (const auto& [name, value] : figures_) summary[name] = value;
  if (sequences_per_second_) summary["sequences_per_second"] = *sequences_per_second_;
  write_file(path_, summary.dump(2) + "\n");
}

void RunSummary::mend(int64_t applied) const {
  if (std::filesystem::exists(path_)) {
    const auto summary = nlohmann::json::parse(read_file(path_), nullptr, /*allow_exceptions=*/false);
    if (summary.is_object() && summary.contains("steps") && summary["steps"] == applied) return;
  }
  write(applied);
}

}  // namespace bert
