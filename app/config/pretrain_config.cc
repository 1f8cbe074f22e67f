#include "app/config/pretrain_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

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
  if (data.masking == "dynamic") return;
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

/// Checks the fields that divide a step into micro-batches.
void check_division(const PretrainConfig& config, ConfigReport& report) {
  if (config.micro_batch_tokens == 0) {
    if (config.global_batch_size % config.micro_batch_size == 0) return;
    report.add("/micro_batch_size",
               fmt::format("want a divisor of global_batch_size {}, got {}", config.global_batch_size,
                           config.micro_batch_size),
               {"/global_batch_size"});
    return;
  }
  if (config.optimizer.average != "masked_tokens") {
    report.add(
        "/optimizer/average",
        fmt::format("want masked_tokens with micro_batch_tokens, as micro-batches then differ in their numbers of "
                    "sequences, got {}",
                    config.optimizer.average),
        {"/micro_batch_tokens"});
  }
  if (config.data.length_bin_size > 0) {
    report.add("/data/length_bin_size",
               fmt::format("want 0 with micro_batch_tokens, which mixes lengths to fill micro-batches, got {}",
                           config.data.length_bin_size),
               {"/micro_batch_tokens"});
  }
}

/// Checks the rules that the range of a single field cannot express.
void check(const PretrainConfig& config, ConfigReport& report) {
  const auto required = [&](const char* pointer, bool empty, const char* example) {
    if (empty) report.add(pointer, fmt::format("required, but not given; for example {}", example));
  };
  required("/run_directory", config.run_directory.empty(), "\"runs/first\"");
  required("/data/train", config.data.train.empty() && config.data.sources.empty(), "[\"train.shard\"]");
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
  check_sources(config.data, report);
  check_masking(config.data, report);
  check_division(config, report);
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

void check_micro_batches(const PretrainConfig& config, int64_t ranks) {
  if (config.micro_batch_tokens > 0) {
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
