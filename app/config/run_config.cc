#include "app/config/run_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <set>
#include <system_error>

#include "app/system/errors.h"

namespace bert {
namespace {

/// Checks the rules between two fields of the struct at `pointer`.
template <class Config>
void check_relations(const std::string& pointer, const Config& config, ConfigReport& report) {
  const std::string object = pointer.substr(1);
  Config::check_relations(
      config, [&](const char* field, const auto& value, const char* want, const char* other, const auto& other_value) {
        report.add(pointer + "/" + field,
                   fmt::format("want {} {}.{} {}, got {}", want, object, other, name_or_value(other_value),
                               name_or_value(value)),
                   {pointer + "/" + other});
      });
}

/// Checks the fields that divide a step into micro-batches.
void check_division(const RunConfig& config, ConfigReport& report) {
  const bool from_memory = config.micro_batch_size == RunConfig::kFromMemory;
  if (config.micro_batch_tokens == 0) {
    if (from_memory || config.batch_divisor() % config.micro_batch_size == 0) return;
    report.add("/micro_batch_size",
               fmt::format("want a divisor of global_batch_size {}{}, got {}", config.global_batch_size,
                           config.batch_size_schedule.empty() ? "" : " and of the sizes of batch_size_schedule",
                           config.micro_batch_size),
               {"/global_batch_size", "/batch_size_schedule"});
    return;
  }
  if (from_memory) {
    report.add("/micro_batch_size", "want no auto with micro_batch_tokens, which takes its place; leave it out",
               {"/micro_batch_tokens"});
  }
  if (config.optimizer.average != GradientAverage::kMaskedTokens) {
    report.add(
        "/optimizer/average",
        fmt::format("want masked_tokens with micro_batch_tokens, as micro-batches then differ in their numbers of "
                    "sequences, got {}",
                    name_of_value(config.optimizer.average)),
        {"/micro_batch_tokens"});
  }
}

void check_report(const RunConfig& config, ConfigReport& report) {
  const std::vector<std::string>& formats = config.report;
  if (!config.reports("jsonl")) {
    report.add("/report", fmt::format("want a list with jsonl, got [{}]: resumption, bert report and bert watch read "
                                      "metrics.jsonl; add jsonl",
                                      fmt::join(formats, ", ")));
  }
  if (std::set<std::string>(formats.begin(), formats.end()).size() < formats.size())
    report.add("/report", fmt::format("want each format once, got [{}]", fmt::join(formats, ", ")));
  if (config.reports("histograms") && !config.reports("tensorboard"))
    report.add("/report", "want tensorboard with histograms, which go there; add it");
}

}  // namespace

std::optional<StepRange> ProfileConfig::range() const {
  StepRange range;
  if (steps.empty()) return range;
  const char* const end = steps.data() + steps.size();
  const auto first = std::from_chars(steps.data(), end, range.first);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != '-') return {};
  const auto last = std::from_chars(first.ptr + 1, end, range.last);
  if (last.ec != std::errc() || last.ptr != end || range.first < 1 || range.last < range.first) return {};
  return range;
}

bool RunConfig::reports(const char* format) const {
  return std::find(report.begin(), report.end(), format) != report.end();
}

int64_t RunConfig::batch_divisor() const {
  int64_t divisor = global_batch_size;
  for (const BatchSizeConfig& next : batch_size_schedule) divisor = std::gcd(divisor, next.global_batch_size);
  return divisor;
}

int64_t RunConfig::fp8_layers() const {
  if (precision != Precision::kFp8) return 0;
  return std::max<int64_t>(model.num_hidden_layers - (first_last_layers_bf16 ? 2 : 0), 0);
}

void check_run(const RunConfig& config, ConfigReport& report) {
  const std::vector<std::string>& no_decay = config.optimizer.no_decay;
  if (std::find(no_decay.begin(), no_decay.end(), "") != no_decay.end())
    report.add("/optimizer/no_decay", "want parts of parameters' names, got an empty one");
  check_relations("/model", config.model, report);
  check_relations("/optimizer", config.optimizer, report);
  check_relations("/schedule", config.schedule, report);
  check_division(config, report);
  check_report(config, report);
  if (config.first_last_layers_bf16 && config.precision != Precision::kFp8) {
    report.add(
        "/first_last_layers_bf16",
        fmt::format("want false with precision {} (only fp8 uses it), got true", name_of_value(config.precision)),
        {"/precision"});
  }
  if (config.max_steps > 0 && config.stop_at_step > config.max_steps) {
    report.add("/stop_at_step", fmt::format("want at most max_steps {}, got {}", config.max_steps, config.stop_at_step),
               {"/max_steps"});
  }
  if (config.initial_vocabulary.rows == InitialRows::kNone && !config.initial_vocabulary.from.empty()) {
    report.add("/initial_vocabulary/rows", "want mean_of_pieces or random with initial_vocabulary.from, got none",
               {"/initial_vocabulary/from"});
  }
  if (config.initial_vocabulary.rows != InitialRows::kNone && config.initial_checkpoint.empty()) {
    report.add("/initial_vocabulary/rows", "want an initial_checkpoint, whose rows are taken, or none here",
               {"/initial_checkpoint"});
  }
  const std::optional<StepRange> profiled = config.profile.range();
  if (!profiled) {
    report.add("/profile/steps",
               fmt::format("want FIRST-LAST with 1 <= FIRST <= LAST, as 10-15, got {}", config.profile.steps));
  } else if (config.max_steps > 0 && profiled->last > config.max_steps) {
    report.add("/profile/steps",
               fmt::format("want steps up to max_steps {}, got {}", config.max_steps, config.profile.steps),
               {"/max_steps"});
  }
  if (config.distributed.backend == CollectiveBackend::kNccl && config.device == DeviceChoice::kCpu) {
    report.add("/distributed/backend", "nccl needs GPUs, but device is cpu; use auto or gloo", {"/device"});
  }
}

void check_micro_batches(const RunConfig& config, int64_t ranks) {
  if (config.micro_batch_tokens > 0 || config.micro_batch_size == RunConfig::kFromMemory) {
    if (ranks <= config.global_batch_size) return;
    throw ConfigError(
        fmt::format("global_batch_size {}: has fewer sequences than there are ranks, {}; use fewer ranks, "
                    "or a larger global_batch_size",
                    config.global_batch_size, ranks));
  }
  const int64_t sequences = config.global_batch_size, micro_batches = sequences / config.micro_batch_size;
  if (ranks <= micro_batches) return;
  int64_t smaller = sequences / ranks;  // the largest micro_batch_size that leaves a micro-batch for each rank
  while (smaller > 0 && sequences % smaller != 0) --smaller;
  throw ConfigError(
      fmt::format("global_batch_size {}: has {} micro-batch{} of micro_batch_size {} for {} ranks; expected at least "
                  "one for each: {}",
                  sequences, micro_batches, micro_batches == 1 ? "" : "es", config.micro_batch_size, ranks,
                  smaller > 0 ? fmt::format("set micro_batch_size={}", smaller)
                              : fmt::format("use at most {} ranks, or a larger global_batch_size", sequences)));
}

void check_sharding(int64_t parameters, int64_t ranks) {
  if (ranks <= parameters) return;
  throw ConfigError("distributed.shard_optimizer_state: has " + std::to_string(parameters) + " parameters to deal to " +
                    std::to_string(ranks) + " ranks; expected at least one for each: use fewer ranks, or false");
}

}  // namespace bert
