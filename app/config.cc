#include "app/config.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/sha256.h"

namespace bert {
namespace {

/// What no single field's range can say.
void check(const PretrainConfig& config, ConfigReport& report) {
  const auto required = [&](const char* pointer, bool empty, const char* example) {
    if (empty) report.add(pointer, fmt::format("required, but not given; for example {}", example));
  };
  required("/run_directory", config.run_directory.empty(), "\"runs/first\"");
  required("/data/train", config.data.train.empty(), "[\"train.shard\"]");
  required("/data/vocab_file", config.data.vocab_file.empty(), "\"vocab.txt\"");

  if (config.model.hidden_size % config.model.num_attention_heads != 0) {
    report.add("/model/num_attention_heads",
               fmt::format("want a divisor of model.hidden_size {}, got {}", config.model.hidden_size,
                           config.model.num_attention_heads),
               {"/model/hidden_size"});
  }
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
  if (config.schedule.type != "constant" && config.schedule.warmup_proportion >= 1.0) {
    report.add("/schedule/warmup_proportion", "want less than 1: the schedule would end before its warm-up does",
               {"/schedule/type"});
  }
  const OptimizerConfig& optimizer = config.optimizer;
  if (optimizer.max_trust_ratio > 0.0 && optimizer.min_trust_ratio > optimizer.max_trust_ratio) {
    report.add("/optimizer/min_trust_ratio",
               fmt::format("want at most optimizer.max_trust_ratio {}, got {}", optimizer.max_trust_ratio,
                           optimizer.min_trust_ratio),
               {"/optimizer/max_trust_ratio"});
  }
  if (config.amp.min_scale > config.amp.init_scale) {
    report.add("/amp/min_scale",
               fmt::format("want at most amp.init_scale {}, got {}", config.amp.init_scale, config.amp.min_scale),
               {"/amp/init_scale"});
  }
  if (config.amp.dynamic && config.amp.growth_factor <= 1.0) {
    report.add("/amp/growth_factor",
               fmt::format("want above 1 where amp.dynamic is true, got {}", config.amp.growth_factor),
               {"/amp/dynamic"});
  }
  if (config.amp.dynamic && config.amp.backoff_factor >= 1.0) {
    report.add("/amp/backoff_factor",
               fmt::format("want below 1 where amp.dynamic is true, got {}", config.amp.backoff_factor),
               {"/amp/dynamic"});
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

/// For reading only; fields_of serves writers too.
ConfigFields fields(const PretrainConfig& config) { return fields_of(const_cast<PretrainConfig&>(config)); }

}  // namespace

PretrainConfig load_pretrain_config(const std::string& path, const std::vector<std::string>& overrides) {
  PretrainConfig config;
  ConfigReport report;
  read_config(fields_of(config), path, overrides, report);
  check(config, report);
  report.throw_if_any();
  return config;
}

PretrainConfig parse_pretrain_config(const std::string& text, const std::string& name) {
  PretrainConfig config;
  ConfigReport report;
  read_config_text(fields_of(config), text, name, report);
  check(config, report);
  report.throw_if_any();
  return config;
}

std::string to_json(const PretrainConfig& config) { return write_config(fields(config)); }

std::string config_sha256(const PretrainConfig& config) { return sha256(to_json(config)); }

std::string pretrain_config_schema() { return config_schema(fields({}), "bert pre-training configuration"); }

std::vector<ConfigDifference> compare(const PretrainConfig& before, const PretrainConfig& after) {
  return compare_configs(fields(before), fields(after));
}

std::vector<ConfigDifference> compare_for_resume(const PretrainConfig& before, const PretrainConfig& after) {
  std::vector<ConfigDifference> differences = compare(before, after);
  std::erase_if(differences, [](const ConfigDifference& difference) {
    static const char* const kMayChange[] = {"/run_directory",          "/stop_at_step",       "/checkpoint_every",
                                             "/evaluate_every",         "/log_every",          "/device",
                                             "/keep_checkpoints",       "/micro_batch_size",   "/num_threads",
                                             "/gradient_checkpointing", "/data/log_sample_ids"};
    return difference.pointer.rfind("/distributed/", 0) == 0 ||
           std::any_of(std::begin(kMayChange), std::end(kMayChange),
                       [&](const char* key) { return difference.pointer == key; });
  });
  return differences;
}

}  // namespace bert
