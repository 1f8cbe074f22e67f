#include "app/config/pretrain_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/system/crypto.h"
#include "app/system/errors.h"

namespace bert {
namespace {

/// Checks the rules between two fields of the struct at `pointer`.
template <class Config>
void check_relations(const std::string& pointer, const Config& config, ConfigReport& report) {
  const std::string object = pointer.substr(1);
  Config::check_relations(config, [&](const char* field, const auto& value, const char* want, const char* other,
                                      const auto& other_value) {
    report.add(pointer + "/" + field, fmt::format("want {} {}.{} {}, got {}", want, object, other, other_value, value),
               {pointer + "/" + other});
  });
}

/// Checks the rules that the range of a single field cannot express.
void check(const PretrainConfig& config, ConfigReport& report) {
  const auto required = [&](const char* pointer, bool empty, const char* example) {
    if (empty) report.add(pointer, fmt::format("required, but not given; for example {}", example));
  };
  required("/run_directory", config.run_directory.empty(), "\"runs/first\"");
  required("/data/train", config.data.train.empty(), "[\"train.shard\"]");
  required("/data/vocab_file", config.data.vocab_file.empty(), "\"vocab.txt\"");
  const auto filled = [&](const char* pointer, const std::vector<std::string>& words, const char* want) {
    if (std::find(words.begin(), words.end(), "") == words.end()) return;
    report.add(pointer, fmt::format("want {}, got an empty one", want));
  };
  filled("/data/train", config.data.train, "names of files");
  filled("/data/validation", config.data.validation, "names of files");
  filled("/optimizer/no_decay", config.optimizer.no_decay, "parts of parameters' names");

  check_relations("/model", config.model, report);
  check_relations("/optimizer", config.optimizer, report);
  check_relations("/schedule", config.schedule, report);
  check_relations("/amp", config.amp, report);
  if (config.global_batch_size % config.micro_batch_size != 0) {
    report.add("/micro_batch_size",
               fmt::format("want a divisor of global_batch_size {}, got {}", config.global_batch_size,
                           config.micro_batch_size),
               {"/global_batch_size"});
  }
  if (config.stop_at_step > config.max_steps) {
    report.add("/stop_at_step", fmt::format("want at most max_steps {}, got {}", config.max_steps, config.stop_at_step),
               {"/max_steps"});
  }
  if (config.evaluate_every > 0 && config.data.validation.empty()) {
    report.add("/evaluate_every",
               fmt::format("want data.validation to evaluate on, or 0 here, got {}", config.evaluate_every),
               {"/data/validation"});
  }
  if (config.initial_optimizer_state && config.initial_checkpoint.empty()) {
    report.add("/initial_optimizer_state", "want an initial_checkpoint that has it, or false here",
               {"/initial_checkpoint"});
  }
  if (config.distributed.backend == "nccl" && config.device == "cpu") {
    report.add("/distributed/backend", "nccl needs GPUs, but device is cpu; use auto or gloo", {"/device"});
  }
}

/// The configuration that `read` sets. Throws ConfigError with all problems.
template <class Read>
PretrainConfig checked(const Read& read) {
  PretrainConfig config;
  ConfigReport report;
  read(fields_of(config), report);
  check(config, report);
  report.throw_if_any();
  return config;
}

/// The fields of a configuration for reading only. fields_of also serves writers and takes no const struct.
ConfigFields fields(const PretrainConfig& config) { return fields_of(const_cast<PretrainConfig&>(config)); }

}  // namespace

PretrainConfig load_pretrain_config(const std::string& path, const std::vector<std::string>& overrides) {
  return checked([&](const ConfigFields& all, ConfigReport& report) { read_config(all, path, overrides, report); });
}

PretrainConfig parse_pretrain_config(const std::string& text, const std::string& name) {
  return checked([&](const ConfigFields& all, ConfigReport& report) { read_config_text(all, text, name, report); });
}

std::string to_json(const PretrainConfig& config) { return write_config(fields(config)); }

std::string config_sha256(const PretrainConfig& config) { return sha256(to_json(config)); }

std::string pretrain_config_schema() { return config_schema(fields({}), "bert pre-training configuration"); }

std::vector<ConfigDifference> compare(const PretrainConfig& before, const PretrainConfig& after) {
  return compare_configs(fields(before), fields(after));
}

std::vector<ConfigDifference> compare_for_resume(const PretrainConfig& before, const PretrainConfig& after) {
  const auto fixed_fields = [](const PretrainConfig& config) {
    ConfigFields fixed = fields(config);
    std::erase_if(fixed.leaves, [](const ConfigField& field) { return field.may_change; });
    return fixed;
  };
  return compare_configs(fixed_fields(before), fixed_fields(after));
}

Objective objective_of(const PretrainConfig& config, Objective made_for) {
  return value_named<Objective>(config.objective).value_or(made_for);
}

void check_micro_batches(const PretrainConfig& config, int64_t ranks) {
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
