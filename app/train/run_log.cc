#include "app/train/run_log.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string_view>
#include <utility>

#include "app/system/error_report.h"
#include "app/system/machine/host.h"
#include "app/train/run_attempts.h"
#include "app/train/run_sinks.h"
#include "app/train/step/device.h"
#include "app/train/step/layer_report.h"
#include "data/io/error.h"
#include "data/io/files.h"

namespace bert {
namespace {

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
      options_(options),
      step_(step),
      flop_counter_(config.model, options.pooler),
      gemm_flops_(measure_gemm(step.device(), compute_dtype(parse_precision(config.precision)))),
      init_time_(seconds_since_epoch()) {
  for (const std::string& name : options.sources) sources_.push_back({name});
  if (chief()) log_file_.emplace(config.run_directory + "/run.log");
}

bool RunLog::on_console() const {
  return std::find(config_.report.begin(), config_.report.end(), "console") != config_.report.end();
}

void RunLog::say(const std::string& text) {
  if (!chief()) return;
  if (console_ != nullptr) return console_->message(text);
  if (on_console()) std::fprintf(stderr, "%s\n", text.c_str());
  record(text);
}

void RunLog::note(const std::string& text) {
  if (chief()) record(text);
}

void RunLog::record(const std::string& text) {
  guarded([&] { log_file_->write(time_of_day() + " " + text + (text.ends_with('\n') ? "" : "\n")); });
}

void RunLog::guarded(const std::function<void()>& write) {
  const std::lock_guard lock(files_);
  if (failure_) return;
  try {
    write();
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
  if (!chief()) return;
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
  if (!chief()) return;
  facts.init_time = init_time_;
  facts.begin_time = seconds_since_epoch();
  for (const auto& sink : sinks_) sink->begin(facts);
  attempts_.emplace(config_.run_directory + "/attempts.jsonl",
                    [](std::string_view line) { return nlohmann::json::accept(line); });
  write_attempt(attempt_begin(config_, step_, facts.step));
}

void RunLog::write_attempt(const nlohmann::ordered_json& line) {
  attempts_->write(line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

void RunLog::attempt_ended(int64_t applied, int exit_code, const std::string& reason) {
  if (!attempts_) return;
  const nlohmann::ordered_json line = attempt_end(applied, exit_code, reason);
  try {  // also after another write has failed, which may be the reason
    write_attempt(line);
  } catch (const IoError&) {
    // The process ends with its own error, and the absent line says that its end is not known.
  }
}

void RunLog::step_tried() {
  ++tried_;
  if (console_ != nullptr) console_->reached(first_step_ + tried_);
}

void RunLog::start(int64_t applied, int64_t last_step) {
  to_sinks([&](Sink& sink) {
    sink.training_begins({.step = applied, .last_step = last_step, .time = seconds_since_epoch()});
  });
  interval_start_ = Clock::now();
  first_step_ = applied;
}

void RunLog::add(const GlobalStep& step) {
  for (const PackedBatch& batch : step.micro_batches) {
    const auto* ends = batch.cu_seqlens.const_data_ptr<int32_t>();
    for (int64_t row = 0; row < batch.num_sequences(); ++row)
      flops_ += 3 * flop_counter_.forward_of_sequence(ends[row + 1] - ends[row]);
    flops_ += 3 * flop_counter_.forward_of_heads(batch.num_masked(), batch.num_sequences());
    if (sources_.empty()) continue;
    const auto* sources = batch.masked_sources.const_data_ptr<int64_t>();
    for (int64_t i = 0; i < batch.num_masked(); ++i) ++sources_[static_cast<size_t>(sources[i])].masked_tokens;
  }
  sequences_ += std::ssize(step.places);
  tokens_ += step.num_tokens();
  capacity_ += step.capacity;
  waited_ += step.seconds_waited;
  corrupted_ += step.damaged.sequences;
  if (sources_.empty()) return;
  for (const ExampleOrder::Place& place : step.places) ++sources_[static_cast<size_t>(place.source)].examples;
}

RunLog::Work RunLog::sum_work() const {
  // Every rank fills in its own row, so the sum over ranks is exact.
  enum Column : int64_t { kSequences, kTokens, kWaited, kFlops, kCapacity, kColumns };
  const auto sources = static_cast<int64_t>(sources_.size());
  torch::Tensor table = torch::zeros({step_.world_size(), kColumns + 2 * sources}, torch::kDouble);
  auto* row = table[step_.rank()].mutable_data_ptr<double>();
  row[kSequences] = static_cast<double>(sequences_);
  row[kTokens] = static_cast<double>(tokens_);
  row[kWaited] = waited_;
  row[kFlops] = flops_;
  row[kCapacity] = static_cast<double>(capacity_);
  for (int64_t i = 0; i < sources; ++i) {
    const SourceCounts& counts = sources_[static_cast<size_t>(i)];
    row[kColumns + i] = static_cast<double>(counts.examples);
    row[kColumns + sources + i] = static_cast<double>(counts.masked_tokens);
  }
  table = step_.sum_over_ranks(table);
  const torch::Tensor sums = table.sum(0);
  const auto* sum = sums.const_data_ptr<double>();
  Work work;
  work.sequences = sum[kSequences];
  work.tokens = sum[kTokens];
  work.least_tokens = table.select(1, kTokens).min().item<double>();
  work.most_tokens = table.select(1, kTokens).max().item<double>();
  work.flops = sum[kFlops];
  work.capacity = sum[kCapacity];
  work.most_seconds_waited = table.select(1, kWaited).max().item<double>();
  work.examples.assign(sum + kColumns, sum + kColumns + sources);
  work.masked_tokens.assign(sum + kColumns + sources, sum + kColumns + 2 * sources);
  return work;
}

nlohmann::ordered_json RunLog::interval_line(const StepMetrics& m, const Work& work,
                                             const std::vector<double>& mlm_sums) const {
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
  line["fill"] = work.tokens / work.capacity;
  line["data_wait_seconds"] = work.most_seconds_waited;
  if (corrupted_ > 0) line["corrupted_rows"] = corrupted_;
  for (size_t i = 0; i < sources_.size(); ++i) {
    line["sources"][sources_[i].name] = {{"mlm_loss", mlm_sums[i] / std::max(work.masked_tokens[i], 1.0)},
                                         {"examples", std::llround(work.examples[i])},
                                         {"masked_tokens", std::llround(work.masked_tokens[i])}};
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
  const Work work = sum_work();
  m.sequences_per_second = work.sequences / seconds;
  m.tokens_per_second = work.tokens / seconds;
  m.mfu = work.flops / seconds / gemm_flops_ / step_.world_size();
  const double exposed_communication_ms = step_.exposed_communication_ms();
  if (chief()) {
    nlohmann::ordered_json line = interval_line(m, work, loss.sums);
    if (step_.world_size() > 1) line["exposed_communication_ms"] = exposed_communication_ms;
    const IntervalReport report{.metrics = m, .line = timed(std::move(line))};
    to_sinks([&](Sink& sink) { sink.interval(report); });
  }
  sequences_per_second_ = m.sequences_per_second;
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
  tried_ = sequences_ = tokens_ = capacity_ = 0;
  flops_ = 0;
  waited_ = 0;
  corrupted_ = 0;
  for (SourceCounts& counts : sources_) counts.examples = counts.masked_tokens = 0;
}

void RunLog::evaluation_begins(int64_t applied) {
  to_sinks([&](Sink& sink) { sink.evaluation_begins(applied, seconds_since_epoch()); });
}

void RunLog::write_evaluation(int64_t applied, const EvaluationReport& evaluation) {
  if (!chief()) return;
  const EvaluationLine line{.line = timed({{"step", applied}, {"evaluation", evaluation.figures}}),
                            .main_figure = evaluation.main_figure};
  to_sinks([&](Sink& sink) { sink.evaluation(line); });
  say(fmt::format("step {}: {}", applied, evaluation.text));
  for (const auto& [name, value] : evaluation.summary) figures_[name] = value;
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
  if (config_.reports("histograms") && chief()) {
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

void RunLog::write_summary(int64_t applied) {
  if (!chief()) return;
  nlohmann::ordered_json summary = {
      {"steps", applied}, {"max_steps", config_.max_steps}, {"config_sha256", options_.config_sha256}};
  for (const auto& [name, value] : figures_) summary[name] = value;
  if (sequences_per_second_) summary["sequences_per_second"] = *sequences_per_second_;
  AtomicFile file(config_.run_directory + "/summary.json");
  file.write(summary.dump(2) + "\n");
  file.commit();
}

void RunLog::mend_summary(int64_t applied) {
  if (!chief()) return;
  const std::string path = config_.run_directory + "/summary.json";
  if (std::filesystem::exists(path)) {
    const auto summary = nlohmann::json::parse(read_file(path), nullptr, /*allow_exceptions=*/false);
    if (summary.is_object() && summary.contains("steps") && summary["steps"] == applied) return;
  }
  write_summary(applied);
}

}  // namespace bert
