#include "app/config/finetune_config.h"

#include <fmt/format.h>

#include "app/config/pretrain_config.h"
#include "app/system/crypto.h"
#include "app/system/errors.h"

namespace bert {
namespace {

void check_required(const FinetuneConfig& config, ConfigReport& report) {
  const auto required = [&](const char* pointer, bool empty, const char* example) {
    if (empty) report.add(pointer, fmt::format("required, but not given; for example {}", example));
  };
  required("/run_directory", config.run_directory.empty(), "\"runs/sst2\"");
  required("/task", config.task.empty(), "\"sst2\"");
  required("/initial_checkpoint", config.initial_checkpoint.empty(), "\"runs/phase2\"");
  required("/data/directory",
           config.data.directory.empty() && (config.data.train_file.empty() || config.data.dev_file.empty()),
           "\"glue/SST-2\"");
}

void check(const FinetuneConfig& config, ConfigReport& report) {
  check_run(config, report);
  const auto needs_evaluations = [&](const char* pointer, bool used) {
    if (used && config.evaluate_every == 0)
      report.add(pointer, "want evaluate_every above 0, which sets the evaluations to choose from",
                 {"/evaluate_every"});
  };
  needs_evaluations("/early_stopping_patience", config.early_stopping_patience > 0);
  needs_evaluations("/keep_best", config.keep_best);
}

/// The configuration that `read` sets. Throws ConfigError with all problems.
template <class Read>
FinetuneConfig checked(const Read& read) {
  FinetuneConfig config;
  ConfigReport report;
  read(config, report);
  check(config, report);
  report.throw_if_any();
  return config;
}

/// The fields of a configuration for reading only.
ConfigFields fields(const FinetuneConfig& config) { return fields_of(const_cast<FinetuneConfig&>(config)); }

}  // namespace

FinetuneConfig::FinetuneConfig() {
  // Devlin et al. 2018, appendix A.3; the groups of run_classifier.py and run_squad.py.
  constexpr double kRate = 2e-5, kWarmup = 0.1;
  micro_batch_size = global_batch_size = 32;
  optimizer.type = "adamw";
  optimizer.lr = kRate;
  optimizer.no_decay = {"bias", "LayerNorm.bias", "LayerNorm.weight"};
  schedule.type = "linear";
  schedule.warmup_proportion = kWarmup;
}

FinetuneConfig load_finetune_config(const std::string& path, const std::vector<std::string>& overrides) {
  return checked([&](FinetuneConfig& config, ConfigReport& report) {
    const ConfigFields all = fields_of(config);
    read_config(all, path, overrides, report);
    for (const ConfigField& field : all.leaves) {
      if (report.given(field.pointer)) config.given.insert(field.pointer);
    }
    check_required(config, report);
  });
}

FinetuneConfig parse_finetune_config(const std::string& text, const std::string& name) {
  return checked(
      [&](FinetuneConfig& config, ConfigReport& report) { read_config_text(fields_of(config), text, name, report); });
}

std::string to_json(const FinetuneConfig& config) { return write_config(fields(config)); }

std::string config_sha256(const FinetuneConfig& config) { return sha256(to_json(config)); }

std::string finetune_config_schema() { return config_schema(fields({}), "bert fine-tuning configuration"); }

std::vector<ConfigDifference> compare(const FinetuneConfig& before, const FinetuneConfig& after) {
  return compare_configs(fields(before), fields(after));
}

std::vector<ConfigDifference> compare_for_resume(const FinetuneConfig& before, const FinetuneConfig& after) {
  return compare_configs(fixed_fields(fields(before)), fixed_fields(fields(after)));
}

bool names_task(const std::string& path, const std::vector<std::string>& overrides) {
  FinetuneConfig config;
  ConfigReport report;
  try {
    read_config(fields_of(config), path, overrides, report);
  } catch (const std::exception&) {
    return false;
  }
  return report.given("/task");
}

TrainedModelConfig read_trained_model(const std::string& text, const std::string& task, const std::string& name) {
  if (task.empty()) {
    const PretrainConfig config = parse_pretrain_config(text, name);
    return {.model = config.model, .tokenizer = config.data.tokenizer};
  }
  const FinetuneConfig config = parse_finetune_config(text, name);
  TrainedModelConfig trained{.model = config.model, .tokenizer = config.data.tokenizer};
  if (!config.run_directory.empty()) trained.task_data = config.data.task;
  return trained;
}

}  // namespace bert
