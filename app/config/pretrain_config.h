// The configuration of a pre-training run: its fields, how they are loaded, and the comparison on resume.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "app/config/run_config.h"
#include "data/config.h"

namespace bert {

/// Shards that get a share of the sequences.
struct DataSourceConfig {
  std::string path;
  double weight = 1;
  std::string name;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit("path", self.path, "a shard or a directory of shards", kPath);
    visit("weight", self.weight, "share of the sequences, in relation to the other sources", 1e-9, 1e9);
    visit("name", self.name, "name in the log; empty = the last part of the path");
  }
};

/// The masks of a run: those in the shards, or others in every epoch.
enum class Masking : uint8_t { kStatic, kDynamic };
inline std::span<const char* const> names_of(Masking /*type*/) {
  static constexpr std::array<const char*, 2> kNames = {"static", "dynamic"};
  return kNames;
}

/// The consequence of a damaged row of the training data: the end of the run, or the next good row.
enum class CorruptedRows : uint8_t { kFail, kSkip };
inline std::span<const char* const> names_of(CorruptedRows /*type*/) {
  static constexpr std::array<const char*, 2> kNames = {"fail", "skip"};
  return kNames;
}

/// Steps as CUDA graphs: none; all, or the run ends with an error; or all if that works.
enum class CudaGraphs : uint8_t { kOff, kOn, kIfEqual };
inline std::span<const char* const> names_of(CudaGraphs /*type*/) {
  static constexpr std::array<const char*, 3> kNames = {"off", "on", "auto"};
  return kNames;
}

struct DataSourcesConfig {
  std::vector<std::string> train;
  std::vector<DataSourceConfig> sources;
  std::vector<std::string> validation;
  std::string vocab_file;
  TokenizerConfig tokenizer;  // its fields are fields of `data`, not of an object in it
  Masking masking = Masking::kStatic;
  MaskingConfig masks{.max_predictions_per_seq = 0};  // its fields are fields of `data` too; 0: no bound
  int64_t length_bin_size = 0;
  CorruptedRows corrupted_rows = CorruptedRows::kFail;
  int64_t max_eval_examples = 10000;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit("train", self.train, "shards to train on: files or directories", kPath);
    visit("sources", self.sources, "in place of train: several corpora, mixed by weight");
    visit("validation", self.validation, "shards held out for evaluation", kPath);
    visit("vocab_file", self.vocab_file,
          "vocab.txt, SentencePiece *.model, or tokenizer.json of transformers, that the shards were made with", kPath);
    TokenizerConfig::visit_fields(self.tokenizer, visit);
    visit("masking", self.masking,
          "static: the masks in the shards; dynamic: other masks in every epoch, drawn from seed, epoch and example");
    visit("masked_lm_prob", self.masks.masked_lm_prob, "dynamic masking: share of a sequence's tokens", 0.0, 1.0);
    visit("max_predictions_per_seq", self.masks.max_predictions_per_seq,
          "dynamic masking: masked tokens of a sequence at most; 0 = as many as the share gives", 0, 65535);
    visit("do_whole_word_mask", self.masks.do_whole_word_mask, "dynamic masking: all pieces of a word together");
    visit("max_ngram", self.masks.max_ngram,
          "dynamic masking: spans of up to so many tokens, or words with do_whole_word_mask; 10: as SpanBERT", 1, 100);
    visit(
        "length_bin_size", self.length_bin_size,
        "tokens; micro-batches take sequences of one bin of lengths (LDDL: --bin-size); 0 = of all lengths, with even "
        "sums",
        0, 65535, kMayChange);
    visit("corrupted_rows", self.corrupted_rows,
          "fail: a damaged row ends the run; skip: the next good row takes its place, and the log has the number",
          kMayChange);
    visit("max_eval_examples", self.max_eval_examples, "held-out examples that one evaluation reads; 0 = all", 0,
          int64_t{1} << 40);
  }
};

/// All settings of a pre-training run.
struct PretrainConfig : RunConfig {
  PretrainConfig() { max_steps = 1000000; }

  std::optional<Objective> objective;  // empty: that of the shards
  bool initial_optimizer_state = false;
  int64_t from_step = 0;
  int64_t max_tokens = 0;
  double num_train_epochs = 0;
  CudaGraphs cuda_graphs = CudaGraphs::kOff;
  DataSourcesConfig data;
  /// As FinetuneConfig::given; only load_pretrain_config() fills it in.
  std::set<std::string> given;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    RunConfig::visit_fields(self, visit);
    visit("objective", self.objective,
          "auto: the objective of the shards (nsp: next sentence, mlm: masked tokens alone, sop: sentence order); mlm "
          "trains on shards of any objective, without their pairs");
    visit("max_steps", self.max_steps, "number of applied optimizer steps; the length of the schedule", 1, kMostSteps);
    visit("max_tokens", self.max_tokens,
          "the run ends earlier, at the step by which so many tokens are used, by their mean number a sequence; sets "
          "max_steps; 0 = at max_steps",
          0, int64_t{1} << 60);
    visit("num_train_epochs", self.num_train_epochs,
          "the run ends earlier, when each example is used so many times; sets max_steps; 0 = at max_steps", 0.0, 1e9);
    visit(
        "max_hours", self.max_hours,
        "schedule constant or wsd: the run ends earlier, after so many hours of all its processes; wsd decays in their "
        "last decay_proportion; 0 = at max_steps",
        0.0, 1e6, kMayChange);
    visit("batch_size_schedule", self.batch_size_schedule, "larger steps than global_batch_size later in the run");
    visit("evaluate_every", self.evaluate_every, "steps between evaluations on data.validation", 0, kMostSteps,
          kMayChange);
    visit("micro_batch_tokens", self.micro_batch_tokens,
          "in place of micro_batch_size: a micro-batch holds as many of the step's sequences as have room in so many "
          "tokens; 0 = micro_batch_size sequences",
          0, int64_t{1} << 30, kMayChange);
    visit(
        "cuda_graphs", self.cuda_graphs,
        "with micro_batch_tokens on CUDA: on: steps are captured once and replayed, after one step both ways; the run "
        "ends if a bit differs or a capture fails; auto: it goes on without them; off: no graphs",
        kMayChange);
    visit("initial_checkpoint", self.initial_checkpoint,
          "run, checkpoint or model of another program whose weights the run starts from, and whose sizes stand for "
          "fields "
          "of `model` that are not given; empty = random",
          kPath);
    visit("initial_optimizer_state", self.initial_optimizer_state,
          "also take the moments of initial_checkpoint (phase 1 to phase 2); step and schedule start at 0");
    visit("from_step", self.from_step,
          "go on from the checkpoint of this step of the run initial_checkpoint, with its optimizer, its step and its "
          "place in the data; 0 = begin at step 0",
          0, kMostSteps);
    visit("data", self.data, "training data and vocabulary");
  }
};

/// Reads CONFIG.json with the files that it extends, then the variables BERT_CONFIG_A__B=value, then the overrides
/// "a.b=value". The last source wins. Paths become absolute. Throws ConfigError with all problems at once, InputMissing
/// if `path` is absent.
PretrainConfig load_pretrain_config(const std::string& path, const std::vector<std::string>& overrides = {});

/// Parses a configuration that to_json wrote, without environment and `extends`. Run directory and data may be absent, as
/// in the checkpoint of a model that no run here has trained. `name` stands in messages. Throws ConfigError.
PretrainConfig parse_pretrain_config(const std::string& text, const std::string& name);

/// All fields as JSON: keys sorted, two spaces of indentation, final newline. Equal configurations give equal bytes.
std::string to_json(const PretrainConfig& config);

/// SHA-256 of to_json(config), 64 hexadecimal digits.
std::string config_sha256(const PretrainConfig& config);

/// JSON Schema (draft 2020-12) with ranges, defaults and descriptions.
std::string pretrain_config_schema();

/// Every field in which the two configurations differ, by JSON pointer.
std::vector<ConfigDifference> compare(const PretrainConfig& before, const PretrainConfig& after);

/// The differences in fields that may not change when a run resumes: the fields without kMayChange.
std::vector<ConfigDifference> compare_for_resume(const PretrainConfig& before, const PretrainConfig& after);

/// config.objective. If that is empty (auto), that of the examples, `made_for`.
Objective objective_of(const PretrainConfig& config, Objective made_for = Objective::kNsp);

/// The paths of the shards to train on: those of data.train, or of data.sources in their order.
std::vector<std::string> training_paths(const DataSourcesConfig& data);

/// The name of a source in the log.
std::string source_name(const DataSourceConfig& source);

}  // namespace bert
