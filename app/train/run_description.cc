#include "app/train/run_description.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "app/system/machine/host.h"
#include "app/train/log/run_attempts.h"

namespace bert {
namespace {

std::string plural(int64_t count, const char* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

/// Micro-batches of a rank in a step. With micro_batch_tokens the number follows from the data, and is taken to be 1.
int64_t accumulation_of(const RunConfig& config, int64_t ranks) {
  if (config.micro_batch_tokens > 0) return 1;
  const int64_t in_one = config.micro_batch_size * ranks;
  return (config.global_batch_size + in_one - 1) / in_one;
}

std::string batch_of(const RunConfig& config, int64_t ranks) {
  const std::string of_ranks = ranks > 1 ? fmt::format(" x {} ranks", ranks) : "";
  if (config.micro_batch_tokens > 0) {
    return fmt::format("{} sequences a step, packed into micro-batches of at most {} tokens{}",
                       config.global_batch_size, config.micro_batch_tokens, of_ranks);
  }
  const int64_t in_one = config.micro_batch_size * ranks;
  const int64_t accumulation = accumulation_of(config, ranks);
  return fmt::format("{} sequences a step = micro-batch {} x accumulation {}{}{}", config.global_batch_size,
                     config.micro_batch_size, accumulation, of_ranks,
                     accumulation * in_one == config.global_batch_size ? "" : ", the last ones smaller");
}

/// The larger batches that follow.
std::string growth_of(const RunConfig& config) {
  std::string text;
  for (const BatchSizeConfig& next : config.batch_size_schedule) {
    text += fmt::format(", {} after {}", next.global_batch_size,
                        next.after_steps > 0 ? plural(next.after_steps, "step") : plural(next.after_tokens, "token"));
  }
  return text;
}

std::string steps_of(const RunConfig& config, int64_t applied, int64_t last_step) {
  std::string text = fmt::format("{} to {}", applied, last_step);
  if (config.max_hours > 0) text += fmt::format(", or to the end of {:g} hours", config.max_hours);
  if (last_step < config.max_steps) text += fmt::format(" of {}", config.max_steps);
  if (config.evaluate_every > 0) text += fmt::format(", evaluation every {} steps", config.evaluate_every);
  if (config.checkpoint_every > 0) text += fmt::format(", checkpoint every {} steps", config.checkpoint_every);
  if (config.checkpoint_every_minutes > 0)
    text += fmt::format("{} every {:g} minutes", config.checkpoint_every > 0 ? " and" : ", checkpoint",
                        config.checkpoint_every_minutes);
  return text;
}

}  // namespace

std::string describe_begin(RunState& run, int64_t applied, int64_t last_step) {
  const RunConfig& config = run.config();
  const int64_t ranks = run.step().world_size(), examples = run.examples();
  const BertConfig& model = config.model;
  int64_t parameters = 0;
  for (const torch::Tensor& parameter : run.step().module().parameters()) parameters += parameter.numel();
  const double epochs = run.sequences(config.max_steps) / static_cast<double>(std::max<int64_t>(examples, 1));
  const std::string planned = config.max_hours > 0 ? "" : fmt::format(", {:.3g} epochs planned", epochs);
  return fmt::format(
      "device    {}{}, {}, {}\n"
      "model     {} of {}, {:.1f} million parameters\n"
      "data      {}{}\n"
      "batch     {}\n"
      "steps     {}\n"
      "results   {} (metrics.jsonl, run.log, checkpoints)",
      run.step().device().str(), ranks > 1 ? fmt::format(" x {} ranks", ranks) : "",
      plural(at::get_num_threads(), "thread"), name_of_value(config.precision),
      plural(model.num_hidden_layers, "layer"), model.hidden_size, static_cast<double>(parameters) / 1e6,
      plural(examples, "example"), planned, batch_of(config, ranks) + growth_of(config),
      steps_of(config, applied, last_step), config.run_directory);
}

RunFacts facts_of(RunState& run, int64_t applied) {
  const RunConfig& config = run.config();
  const int64_t ranks = run.step().world_size();
  return {.run_directory = config.run_directory,
          .host = machine_name(),
          .config = nlohmann::ordered_json::parse(run.config_json()),
          .pid = getpid(),
          .step = applied,
          .max_steps = config.max_steps,
          .warmup_steps = std::llround(config.schedule.warmup_proportion * static_cast<double>(config.max_steps)),
          .accumulation_steps = accumulation_of(config, ranks),
          .training_examples = run.examples(),
          .evaluation_examples = run.evaluation_examples(),
          .max_sequence_length = run.max_sequence_length(),
          .platform = fmt::format("{} x {}", ranks, device_in_words(run.step().device()))};
}

std::string describe_end(RunState& run, int64_t applied) {
  std::string text = fmt::format("finished step {}", applied);
  for (const auto& [name, value] : run.log().summary().figures()) {
    if (name != "unigram_entropy" && name != "mlm_loss_untrained") text += fmt::format(", {} {:.4g}", name, value);
  }
  return text + fmt::format("\nthe result is {}/latest, its figures are in {}/summary.json", run.config().run_directory,
                            run.config().run_directory);
}

}  // namespace bert
