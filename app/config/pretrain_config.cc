#include "app/config/pretrain_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "app/config/finetune_config.h"
#include "app/system/crypto.h"
#include "app/system/errors.h"

namespace bert {
namespace {

void check_sources(const DataSourcesConfig& data, ConfigReport& report) {
  constexpr const char* kSources = "/data/sources";
  if (!data.train.empty() && !data.sources.empty()) {
    report.add(kSources, "want data.train or data.sources, got both; set data.train=[] to mix sources",
               {"/data/train"});
  }
  constexpr double kLeastShare = 1.0 / 65536;  // SourceMix::kLongestPattern
  double total = 0;
  for (const DataSourceConfig& source : data.sources) total += source.weight;
  std::set<std::string> names;
  for (size_t i = 0; i < data.sources.size(); ++i) {
    const DataSourceConfig& source = data.sources[i];
    const std::string pointer = fmt::format("{}/{}", kSources, i);
    if (source.path.empty()) {
      report.add(pointer + "/path", "required, but not given; for example \"wikipedia/\"", {kSources});
    } else if (!names.insert(source_name(source)).second) {
      report.add(pointer + "/name",
                 fmt::format("want another name for each source, got \"{}\" again", source_name(source)), {kSources});
    }
    if (source.weight < kLeastShare * total) {
      report.add(pointer + "/weight",
                 fmt::format("want at least 1/65536 of all weights, which are {:g}, got {}", total, source.weight),
                 {kSources});
    }
  }
}

void check_masking(const DataSourcesConfig& data, ConfigReport& report) {
  if (data.masking == Masking::kDynamic) return;
  const MaskingConfig unused = DataSourcesConfig{}.masks;
  const auto expect = [&](const char* field, const auto& value, const auto& unused_value) {
    if (value == unused_value) return;
    report.add(
        std::string("/data/") + field,
        fmt::format("data.masking static takes the masks in the shards; leave it at {} or set data.masking=dynamic",
                    unused_value),
        {"/data/masking"});
  };
  expect("masked_lm_prob", data.masks.masked_lm_prob, unused.masked_lm_prob);
  expect("max_predictions_per_seq", data.masks.max_predictions_per_seq, unused.max_predictions_per_seq);
  expect("do_whole_word_mask", data.masks.do_whole_word_mask, unused.do_whole_word_mask);
  expect("max_ngram", data.masks.max_ngram, unused.max_ngram);
}

void check_batch_sizes(const PretrainConfig& config, ConfigReport& report) {
  const auto& schedule = config.batch_size_schedule;
  BatchSizeConfig before{.after_steps = 0, .after_tokens = 0, .global_batch_size = config.global_batch_size};
  for (size_t i = 0; i < schedule.size(); ++i) {
    const BatchSizeConfig& next = schedule[i];
    const std::string pointer = fmt::format("/batch_size_schedule/{}", i);
    const std::vector<std::string> unless = {"/batch_size_schedule"};
    if ((next.after_steps > 0) == (next.after_tokens > 0)) {
      report.add(pointer, "want after_steps or after_tokens above 0, and not both", unless);
    } else if (i > 0 && (next.after_steps <= before.after_steps && next.after_tokens <= before.after_tokens)) {
      report.add(pointer, "want a later place than that of the entry before, in the same unit", unless);
    } else if (i > 0 && (next.after_steps > 0) != (before.after_steps > 0)) {
      report.add(pointer, "want after_steps in all entries, or after_tokens in all", unless);
    }
    if (next.global_batch_size <= before.global_batch_size) {
      report.add(pointer + "/global_batch_size",
                 fmt::format("want more than the {} before, got {}", before.global_batch_size, next.global_batch_size),
                 unless);
    }
    before = next;
  }
}

void check_hours(const PretrainConfig& config, ConfigReport& report) {
  if (config.max_hours == 0 || config.schedule.type == ScheduleType::kConstant) return;
  if (config.schedule.type != ScheduleType::kWsd) {
    report.add("/max_hours",
               fmt::format("want schedule.type constant or wsd, got {}: the others need the number of steps from the "
                           "beginning; set max_steps, max_tokens or num_train_epochs",
                           name_of_value(config.schedule.type)),
               {"/schedule/type"});
    return;
  }
  if (!config.batch_size_schedule.empty()) {
    report.add(
        "/max_hours",
        "want no batch_size_schedule with wsd: the time of larger steps, and so that of the decay, is not known; "
        "set max_steps, max_tokens or num_train_epochs",
        {"/batch_size_schedule"});
  }
  if (config.schedule.decay_proportion >= 1) {
    report.add(
        "/schedule/decay_proportion",
        fmt::format("want less than 1 with max_hours: the steps before the decay tell the time of a step, got {}",
                    config.schedule.decay_proportion),
        {"/max_hours"});
  }
}

/// Checks that a run has what it cannot do without.
void check_required(const PretrainConfig& config, ConfigReport& report) {
  const auto required = [&](const char* pointer, bool empty, const char* example) {
    if (empty) report.add(pointer, fmt::format("required, but not given; for example {}", example));
  };
  required("/run_directory", config.run_directory.empty(), "\"runs/first\"");
  required("/data/train", config.data.train.empty() && config.data.sources.empty(), "[\"train.shard\"]");
  required("/data/vocab_file", config.data.vocab_file.empty(), "\"vocab.txt\"");
}

/// Checks the rules that the range of a single field cannot express.
void check(const PretrainConfig& config, ConfigReport& report) {
  const auto filled = [&](const char* pointer, const std::vector<std::string>& words, const char* want) {
    if (std::find(words.begin(), words.end(), "") == words.end()) return;
    report.add(pointer, fmt::format("want {}, got an empty one", want));
  };
  filled("/data/train", config.data.train, "names of files");
  filled("/data/validation", config.data.validation, "names of files");
  check_run(config, report);
  check_sources(config.data, report);
  check_masking(config.data, report);
  check_batch_sizes(config, report);
  check_hours(config, report);
  if (config.micro_batch_tokens > 0 && config.data.length_bin_size > 0) {
    report.add("/data/length_bin_size",
               fmt::format("want 0 with micro_batch_tokens, which mixes lengths to fill micro-batches, got {}",
                           config.data.length_bin_size),
               {"/micro_batch_tokens"});
  }
  if (config.cuda_graphs != CudaGraphs::kOff && config.micro_batch_tokens == 0) {
    report.add("/cuda_graphs", "want off without micro_batch_tokens, which gives batches fixed shapes",
               {"/micro_batch_tokens"});
  }
  if (config.cuda_graphs != CudaGraphs::kOff && config.distributed.shard_optimizer_state)
    report.add("/cuda_graphs", "want off with shard_optimizer_state, whose update consists of several ranks' parts",
               {"/distributed/shard_optimizer_state"});
  if (config.cuda_graphs != CudaGraphs::kOff && config.max_hours > 0)
    report.add("/cuda_graphs", "want off with max_hours, which moves a decay that the graph of the update has captured",
               {"/max_hours"});
  if (config.cuda_graphs == CudaGraphs::kOn && config.device == DeviceChoice::kCpu)
    report.add("/cuda_graphs", "want off or auto on the CPU, got on", {"/device"});
  if (config.evaluate_every > 0 && config.data.validation.empty()) {
    report.add("/evaluate_every",
               fmt::format("want data.validation to evaluate on, or 0 here, got {}", config.evaluate_every),
               {"/data/validation"});
  }
  if (config.from_step > 0 && config.initial_checkpoint.empty())
    report.add("/from_step", "want initial_checkpoint, the run that has this step, or 0 here", {"/initial_checkpoint"});
  if (config.from_step > 0 && config.initial_optimizer_state) {
    report.add("/from_step", "want initial_optimizer_state false: a branch takes the whole optimizer",
               {"/initial_optimizer_state"});
  }
  if (config.from_step > 0 && config.initial_vocabulary.rows != InitialRows::kNone) {
    report.add("/from_step", "want initial_vocabulary.rows none: a branch keeps the vocabulary of its data",
               {"/initial_vocabulary/rows"});
  }
  if (config.from_step > 0 && config.from_step >= config.max_steps) {
    report.add("/from_step", fmt::format("want less than max_steps {}, got {}", config.max_steps, config.from_step),
               {"/max_steps"});
  }
  if (config.initial_optimizer_state && config.initial_checkpoint.empty()) {
    report.add("/initial_optimizer_state", "want an initial_checkpoint that has it, or false here",
               {"/initial_checkpoint"});
  }
}

/// The configuration that `read` sets. Throws ConfigError with all problems.
template <class Read>
PretrainConfig checked(const Read& read) {
  PretrainConfig config;
  ConfigReport report;
  read(config, report);
  check(config, report);
  report.throw_if_any();
  return config;
}

/// The fields of a configuration for reading only. fields_of also serves writers and takes no const struct.
ConfigFields fields(const PretrainConfig& config) { return fields_of(const_cast<PretrainConfig&>(config)); }

}  // namespace

PretrainConfig load_pretrain_config(const std::string& path, const std::vector<std::string>& overrides) try {
  return checked([&](PretrainConfig& config, ConfigReport& report) {
    const ConfigFields all = fields_of(config);
    read_config(all, path, overrides, report);
    for (const ConfigField& field : all.leaves) {
      if (report.given(field.pointer)) config.given.insert(field.pointer);
    }
    check_required(config, report);
  });
} catch (const ConfigError&) {
  if (!names_task(path, overrides)) throw;
  throw ConfigError(path + ": names a task, as a configuration of bert finetune does; expected one of bert pretrain");
}

PretrainConfig parse_pretrain_config(const std::string& text, const std::string& name) {
  return checked(
      [&](PretrainConfig& config, ConfigReport& report) { read_config_text(fields_of(config), text, name, report); });
}

std::string to_json(const PretrainConfig& config) { return write_config(fields(config)); }

std::string config_sha256(const PretrainConfig& config) { return sha256(to_json(config)); }

std::string pretrain_config_schema() {
  return config_schema(fields(PretrainConfig()), "bert pre-training configuration");
}

std::vector<ConfigDifference> compare(const PretrainConfig& before, const PretrainConfig& after) {
  return compare_configs(fields(before), fields(after));
}

std::vector<ConfigDifference> compare_for_resume(const PretrainConfig& before, const PretrainConfig& after) {
  return compare_configs(fixed_fields(fields(before)), fixed_fields(fields(after)));
}

Objective objective_of(const PretrainConfig& config, Objective made_for) { return config.objective.value_or(made_for); }

std::vector<std::string> training_paths(const DataSourcesConfig& data) {
  std::vector<std::string> paths = data.train;
  for (const DataSourceConfig& source : data.sources) paths.push_back(source.path);
  return paths;
}

std::string source_name(const DataSourceConfig& source) {
  if (!source.name.empty()) return source.name;
  const std::filesystem::path path(source.path);
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

}  // namespace bert
