#include "app/train/run_log.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/train/device.h"
#include "data/io/error.h"
#include "data/io/files.h"

namespace bert {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

RunLog::RunLog(const PretrainConfig& config, Objective objective, TrainingStep& step)
    : config_(config),
      pairs_(has_pairs(objective) ? name_of_value(objective) : ""),
      step_(step),
      flop_counter_(config.model, has_pairs(objective)),
      gemm_flops_(measure_gemm(step.device(), compute_dtype(parse_precision(config.precision)))) {}

void RunLog::say(const std::string& text) {
  if (!chief()) return;
  progress_ ? progress_->message(text) : static_cast<void>(std::fprintf(stderr, "%s\n", text.c_str()));
}

void RunLog::open(int64_t saved) {
  if (chief()) file_.emplace(config_.run_directory + "/metrics.jsonl", saved);
}

void RunLog::start(int64_t applied, int64_t last_step) {
  if (chief()) progress_.emplace(applied, last_step);
  interval_start_ = Clock::now();
  first_step_ = applied;
}

void RunLog::add(const PackedBatch& batch, const PretrainingDataLoader& loader) {
  const auto* ends = batch.cu_seqlens.const_data_ptr<int32_t>();
  for (int64_t row = 0; row < batch.num_sequences(); ++row)
    flops_ += 3 * flop_counter_.forward_of_sequence(ends[row + 1] - ends[row]);
  flops_ += 3 * flop_counter_.forward_of_heads(batch.num_masked(), batch.num_sequences());
  tokens_ += batch.num_tokens();
  capacity_ += loader.capacity();
  waited_ = loader.seconds_waited();
  corrupted_ = loader.damaged().sequences;
  if (loader.sources().size() == 1) return;
  for (size_t i = sources_.size(); i < loader.sources().size(); ++i) sources_.push_back({loader.sources()[i].name});
  for (const int64_t sequence : sequence_numbers(batch)) {
    ++sources_[static_cast<size_t>(loader.place_of_sequence(sequence).source)].examples;
  }
  const auto* sources = batch.masked_sources.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < batch.num_masked(); ++i) ++sources_[static_cast<size_t>(sources[i])].masked_tokens;
}

RunLog::Work RunLog::sum_work() const {
  // Every rank fills in its own row, so the sum over ranks is exact.
  enum Column : int64_t { kTokens, kWaited, kFlops, kCapacity, kColumns };
  const auto sources = static_cast<int64_t>(sources_.size());
  torch::Tensor table = torch::zeros({step_.world_size(), kColumns + 2 * sources}, torch::kDouble);
  auto* row = table[step_.rank()].mutable_data_ptr<double>();
  row[kTokens] = static_cast<double>(tokens_);
  row[kWaited] = waited_ - waited_before_;
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

void RunLog::write_interval(int64_t applied) {
  if (tried_ == 0) return;
  const double seconds = std::chrono::duration<double>(Clock::now() - interval_start_).count();
  const TrainingStep::MeanLoss loss = step_.take_mean_loss();
  StepMetrics m;
  m.step = applied;
  m.max_steps = config_.max_steps;
  m.skipped = tried_ - (applied - first_step_);
  m.mlm_loss = loss.mlm;
  m.pairs = pairs_;
  m.pair_loss = loss.nsp;
  m.loss = loss.mlm + loss.nsp;
  m.learning_rate = step_.last_learning_rate();
  m.grad_norm = step_.optimizer->grad_norm().item<double>();
  m.loss_scale = step_.scaler.enabled() ? step_.scaler.current_scale().item<double>() : 1.0;
  m.sequences_per_second = static_cast<double>(tried_ * config_.global_batch_size) / seconds;
  const Work work = sum_work();
  m.tokens_per_second = work.tokens / seconds;
  m.mfu = work.flops / seconds / gemm_flops_ / step_.world_size();
  const double exposed_communication_ms = step_.exposed_communication_ms();
  if (chief()) {
    nlohmann::ordered_json line = {{"step", m.step}, {"steps", tried_}, {"loss", m.loss}, {"mlm_loss", m.mlm_loss}};
    if (!pairs_.empty()) line[pairs_ + "_loss"] = m.pair_loss;
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
    if (corrupted_ > corrupted_before_) line["corrupted_rows"] = corrupted_ - corrupted_before_;
    for (size_t i = 0; i < sources_.size(); ++i) {
      line["sources"][sources_[i].name] = {{"mlm_loss", loss.mlm_sums[i] / std::max(work.masked_tokens[i], 1.0)},
                                           {"examples", std::llround(work.examples[i])},
                                           {"masked_tokens", std::llround(work.masked_tokens[i])}};
    }
    if (step_.world_size() > 1) line["exposed_communication_ms"] = exposed_communication_ms;
    write(line);
    progress_->update(m);
  }
  sequences_per_second_ = m.sequences_per_second;
  interval_start_ = Clock::now();
  first_step_ = applied;
  tried_ = tokens_ = capacity_ = 0;
  flops_ = 0;
  waited_before_ = waited_;
  corrupted_before_ = corrupted_;
  for (SourceCounts& counts : sources_) counts.examples = counts.masked_tokens = 0;
}

void RunLog::write_evaluation(int64_t applied, const Evaluation& e) {
  if (!chief()) return;
  nlohmann::ordered_json evaluation = {
      {"mlm_loss", e.mlm_loss}, {"mlm_perplexity", std::exp(e.mlm_loss)}, {"mlm_accuracy", e.mlm_accuracy}};
  std::string line = fmt::format("step {}: held-out mlm loss {:.4f} (word frequency {:.4f}), mlm accuracy {:.3f}",
                                 applied, e.mlm_loss, e.unigram_entropy, e.mlm_accuracy);
  if (!pairs_.empty()) {
    evaluation[pairs_ + "_loss"] = e.pair_loss;
    evaluation[pairs_ + "_accuracy"] = figures_[pairs_ + "_accuracy"] = e.pair_accuracy;
    line += fmt::format(", {} accuracy {:.3f}", pairs_, e.pair_accuracy);
  }
  evaluation.update(
      {{"unigram_entropy", e.unigram_entropy}, {"examples", e.examples}, {"masked_tokens", e.masked_tokens}});
  write({{"step", applied}, {"evaluation", evaluation}});
  say(line);
  figures_["mlm_loss"] = e.mlm_loss;
  figures_["mlm_accuracy"] = e.mlm_accuracy;
  figures_["unigram_entropy"] = e.unigram_entropy;
  if (applied == 0 && config_.initial_checkpoint.empty()) figures_["mlm_loss_untrained"] = e.mlm_loss;
}

void RunLog::finish() {
  if (progress_) progress_->finish();
}

void RunLog::write(const nlohmann::ordered_json& line) {
  if (failure_) return;
  try {
    file_->write(line);
  } catch (const IoError&) {
    failure_ = std::current_exception();
  }
}

void RunLog::write_summary(int64_t applied) {
  if (!chief()) return;
  nlohmann::ordered_json summary = {
      {"steps", applied}, {"max_steps", config_.max_steps}, {"config_sha256", config_sha256(config_)}};
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
