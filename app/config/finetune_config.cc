#include "app/config/finetune_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "app/config/fields_impl.h"
#include "app/config/pretrain_config.h"
#include "app/parse/json_tree.h"
#include "app/system/crypto.h"
#include "app/system/errors.h"
#include "data/io/error.h"

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

/// Checks that a field of `distillation` which has no effect is at its default.
void check_distillation(const FinetuneConfig& config, ConfigReport& report) {
  const DistillationConfig &distillation = config.distillation, unused;
  const auto expect_unused = [&](const char* field, const auto& value, const auto& unused_value, const char* want,
                                 const std::vector<std::string>& unless) {
    if (value == unused_value) return;
    report.add(std::string("/distillation/") + field,
               fmt::format("want {}, or {} here, got {}", want, unused_value, value), unless);
  };
  if (distillation.teacher.empty()) {
    const auto needs_teacher = [&](const char* field, const auto& value, const auto& unused_value) {
      expect_unused(field, value, unused_value, "distillation.teacher", {"/distillation/teacher"});
    };
    needs_teacher("labels_weight", distillation.labels_weight, unused.labels_weight);
    needs_teacher("logits_weight", distillation.logits_weight, unused.logits_weight);
    needs_teacher("temperature", distillation.temperature, unused.temperature);
    needs_teacher("hidden_weight", distillation.hidden_weight, unused.hidden_weight);
    needs_teacher("attention_weight", distillation.attention_weight, unused.attention_weight);
    return;
  }
  if (distillation.labels_weight == 0 && distillation.logits_weight == 0) {
    report.add("/distillation/logits_weight",
               "want a logits_weight or a labels_weight above 0: no other loss trains the head",
               {"/distillation/labels_weight"});
  }
  if (distillation.logits_weight == 0) {
    expect_unused("temperature", distillation.temperature, unused.temperature, "logits_weight above 0",
                  {"/distillation/logits_weight"});
  }
  if (config.micro_batch_size == RunConfig::kFromMemory) {
    report.add("/micro_batch_size", "want a number with distillation.teacher, whose memory auto does not count",
               {"/distillation/teacher"});
  }
}

void check(const FinetuneConfig& config, ConfigReport& report) {
  check_run(config, report);
  if (config.reports("samples")) report.add("/report", "want no samples, which pre-training alone has");
  check_distillation(config, report);
  const auto needs_evaluations = [&](const char* pointer, bool used) {
    if (used && config.evaluate_every == 0)
      report.add(pointer, "want evaluate_every above 0, which sets the evaluations to choose from",
                 {"/evaluate_every"});
  };
  needs_evaluations("/early_stopping_patience", config.early_stopping_patience > 0);
  needs_evaluations("/keep_best", config.keep_best);
}

/// The fields of a configuration for reading only.
ConfigFields fields(const FinetuneConfig& config) { return fields_of(const_cast<FinetuneConfig&>(config)); }

constexpr const char* kSweep = "sweep";

/// A field and the values that a sweep gives it.
struct SweptField {
  std::string key;
  JsonPlace place;
  std::vector<JsonNode> values;
};

/// Reads the members of a sweep. An object stands for the keys in it.
void read_sweep(const JsonNode& object, const std::string& prefix, std::vector<SweptField>& fields,
                ConfigReport::Impl& report) {
  for (const JsonMember& member : object.members) {
    const std::string key = prefix + member.key, pointer = std::string("/") + kSweep + "/" + pointer_part(key);
    if (member.value.kind == JsonNode::Kind::kObject) {
      read_sweep(member.value, key + ".", fields, report);
    } else if (key == "task" || key == "run_directory") {
      report.add(member.place, pointer, "is the same for all runs of a sweep; leave it out of the sweep");
    } else if (split_keys(key).size() > kMaxJsonDepth) {
      report.add(member.place, pointer, fmt::format("nested deeper than {} levels", kMaxJsonDepth));
    } else if (std::any_of(fields.begin(), fields.end(), [&](const SweptField& other) { return other.key == key; })) {
      report.add(member.place, pointer, "is there twice");
    } else if (member.value.kind != JsonNode::Kind::kArray || member.value.items.empty()) {
      report.add(member.value.place, pointer, "want a list of values, as [2e-5, 3e-5], got " + member.value.got());
    } else {
      fields.push_back({key, member.place, member.value.items});
    }
  }
}

/// Takes the sweep out of the tree.
std::vector<SweptField> take_sweep(JsonNode& tree, ConfigReport::Impl& report) {
  const JsonNode* const found = tree.find(kSweep);
  if (found == nullptr) return {};
  const JsonNode sweep = *found;
  std::erase_if(tree.members, [](const JsonMember& member) { return member.key == kSweep; });
  std::vector<SweptField> fields;
  if (sweep.kind == JsonNode::Kind::kObject) read_sweep(sweep, "", fields, report);
  if (sweep.kind != JsonNode::Kind::kObject || sweep.members.empty()) {
    report.add(sweep.place, std::string("/") + kSweep,
               "want an object, as {\"optimizer.lr\": [2e-5, 3e-5]}, got " + sweep.got());
  }
  constexpr size_t kMostRuns = 10000;
  size_t runs = 1;
  for (const SweptField& field : fields) runs = std::min(runs * field.values.size(), kMostRuns + 1);
  if (runs > kMostRuns) {
    report.add(sweep.place, std::string("/") + kSweep, fmt::format("want at most {} runs, got more", kMostRuns));
    fields.clear();
  }
  return fields;
}

/// A value as a part of the name of a directory.
std::string name_of(const JsonNode& value) {
  if (value.kind == JsonNode::Kind::kNumber) return fmt::format("{}", value.number);
  std::string name = value.text;
  if (value.kind == JsonNode::Kind::kArray) {
    name.clear();
    for (const JsonNode& item : value.items) name += (name.empty() ? "" : "+") + name_of(item);
  }
  for (char& c : name) {
    const bool plain =
        std::isalnum(static_cast<unsigned char>(c)) != 0 || std::string_view("._+-").find(c) != std::string_view::npos;
    if (!plain) c = '_';
  }
  return name;
}

/// The values of run number `index`, one of each field; those of the last field change first.
std::vector<const JsonNode*> values_of(const std::vector<SweptField>& fields, size_t index) {
  std::vector<const JsonNode*> values(fields.size());
  for (size_t i = fields.size(); i-- > 0;) {
    values[i] = &fields[i].values[index % fields[i].values.size()];
    index /= fields[i].values.size();
  }
  return values;
}

/// Sets and checks the configuration of `tree`. Throws ConfigError with all problems, also those that `report` has.
FinetuneConfig bind_checked(const JsonNode& tree, ConfigReport& report) {
  FinetuneConfig config;
  const ConfigFields all = fields_of(config);
  bind_config(all, tree, report);
  for (const ConfigField& field : all.leaves) {
    if (report.given(field.pointer)) config.given.insert(field.pointer);
  }
  check_required(config, report);
  check(config, report);
  report.throw_if_any();
  return config;
}

/// The run of these values.
SweepRun run_of(JsonNode tree, const std::vector<SweptField>& fields, const std::vector<const JsonNode*>& values,
                ConfigReport& report) {
  SweepRun run;
  for (size_t i = 0; i < fields.size(); ++i) {
    merge_json(tree, nested(split_keys(fields[i].key), fields[i].place, *values[i]));
    run.name += fmt::format("{}{}={}", i == 0 ? "" : ",", fields[i].key, name_of(*values[i]));
  }
  run.config = bind_checked(tree, report);
  constexpr size_t kMostBytes = 255;  // of a name on Linux's file systems
  if (run.name.size() > kMostBytes) {
    constexpr size_t kDigits = 16;
    run.name = run.name.substr(0, kMostBytes - kDigits - 1) + "-" + sha256(run.name).substr(0, kDigits);
  }
  return run;
}

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

FinetuneSweep load_finetune_sweep(const std::string& path, const std::vector<std::string>& overrides) {
  ConfigReport report;
  JsonNode tree = read_tree(path, overrides, report);
  const std::vector<SweptField> fields = take_sweep(tree, report.impl());
  FinetuneSweep sweep;
  for (const SweptField& field : fields) sweep.keys.push_back(field.key);
  size_t count = 1;
  for (const SweptField& field : fields) count *= field.values.size();
  std::set<std::string> names;
  for (size_t i = 0; i < count; ++i) {
    ConfigReport later;  // the problems of the sources are in the first
    SweepRun run = run_of(tree, fields, values_of(fields, i), i == 0 ? report : later);
    if (!names.insert(run.name).second) {
      throw ConfigError({{fields.front().place.str(), std::string("/") + kSweep,
                          "want values that differ, got two runs with the name " + run.name}});
    }
    sweep.run_directory = run.config.run_directory;
    if (!fields.empty()) run.config.run_directory += "/" + run.name;
    sweep.runs.push_back(std::move(run));
  }
  return sweep;
}

FinetuneConfig load_finetune_config(const std::string& path, const std::vector<std::string>& overrides) {
  FinetuneSweep sweep = load_finetune_sweep(path, overrides);
  if (sweep.keys.empty()) return std::move(sweep.runs.front().config);
  // A key may have its value from the sweep, so these are not checked alone. Each run was checked above.
  FinetuneConfig config;
  ConfigReport report;
  JsonNode tree = read_tree(path, overrides, report);
  take_sweep(tree, report.impl());
  bind_config(fields_of(config), tree, report);
  report.throw_if_any();
  return config;
}

FinetuneConfig parse_finetune_config(const std::string& text, const std::string& name) {
  FinetuneConfig config;
  ConfigReport report;
  read_config_text(fields_of(config), text, name, report);
  check(config, report);
  report.throw_if_any();
  return config;
}

std::string to_json(const FinetuneConfig& config) { return write_config(fields(config)); }

std::string config_sha256(const FinetuneConfig& config) { return sha256(to_json(config)); }

std::string finetune_config_schema() {
  auto schema = nlohmann::json::parse(config_schema(fields({}), "bert fine-tuning configuration"));
  schema["properties"][kSweep] = {
      {"type", "object"},
      {"description",
       "a grid: lists of values by keys as optimizer.lr; a run for each combination, in run_directory/NAME"},
      {"additionalProperties", {{"type", "array"}, {"minItems", 1}}}};
  return schema.dump(2) + "\n";
}

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

void read_trained_model(const std::string& config, ModelDescription& model, const std::string& name) {
  try {
    if (model.task.empty()) {
      const PretrainConfig run = parse_pretrain_config(config, name);
      model.config = run.model;
      model.tokenizer = run.data.tokenizer;
      return;
    }
    const FinetuneConfig run = parse_finetune_config(config, name);
    model.config = run.model;
    model.tokenizer = run.data.tokenizer;
    if (!run.run_directory.empty()) model.task_data = run.data.task;  // a converted model has none
  } catch (const ConfigError& error) {
    throw DataError(error.what());
  }
}

}  // namespace bert
