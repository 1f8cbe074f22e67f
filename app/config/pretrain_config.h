// The configuration of a pre-training run: its fields, how they are loaded, and the comparison on resume.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/config/fields.h"
#include "app/system/threads.h"
#include "data/config.h"
#include "model/config.h"
#include "optim/config.h"

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

struct DataSourcesConfig {
  std::vector<std::string> train;
  std::vector<DataSourceConfig> sources;
  std::vector<std::string> validation;
  std::string vocab_file;
  TokenizerConfig tokenizer;  // its fields are fields of `data`, not of an object in it
  std::string masking = "static";
  MaskingConfig masks{.max_predictions_per_seq = 0};  // its fields are fields of `data` too; 0: no bound
  int64_t length_bin_size = 0;
  std::string corrupted_rows = "fail";
  int64_t max_eval_examples = 10000;
  bool log_sample_ids = false;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit("train", self.train, "shards to train on: files or directories", kPath);
    visit("sources", self.sources, "in place of train: several corpora, mixed by weight");
    visit("validation", self.validation, "shards held out for evaluation", kPath);
    visit("vocab_file", self.vocab_file, "vocab.txt or SentencePiece *.model that the shards were made with", kPath);
    TokenizerConfig::visit_fields(self.tokenizer, visit);
    visit("masking", self.masking,
          "static: the masks in the shards; dynamic: other masks in every epoch, drawn from seed, epoch and example",
          OneOf{"static", "dynamic"});
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
          OneOf{"fail", "skip"}, kMayChange);
    visit("max_eval_examples", self.max_eval_examples, "held-out examples that one evaluation reads; 0 = all", 0,
          int64_t{1} << 40);
    visit("log_sample_ids", self.log_sample_ids,
          "each rank writes the examples of its steps to run_directory/samples-rank-00000.jsonl, 00001 and so on",
          kMayChange);
  }
};

struct DistributedConfig {
  std::string backend = "auto";
  std::string init_method = "env://";
  int64_t timeout_seconds = 600;  // torch.distributed's default for NCCL
  int64_t bucket_mb = 25;         // as in torch's DistributedDataParallel
  std::string compression = "none";
  bool shard_optimizer_state = false;
  bool debug = false;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit("backend", self.backend, "auto: nccl on GPUs, gloo on CPUs", OneOf{"auto", "gloo", "nccl"});
    visit("init_method", self.init_method,
          "meeting place of the ranks: env:// (MASTER_ADDR, MASTER_PORT), tcp://HOST:PORT or file:///PATH");
    visit("timeout_seconds", self.timeout_seconds, "a collective that takes longer ends the run", 1, 86400);
    visit("bucket_mb", self.bucket_mb, "gradients are reduced in parts of this many MiB, during backward", 1, 4096);
    visit("compression", self.compression, "gradients are sent in fp32 (none), fp16 or bf16",
          OneOf{"none", "fp16", "bf16"});
    visit("shard_optimizer_state", self.shard_optimizer_state,
          "each rank keeps moments, masters and averages of its share of the tensors only (ZeRO 1)");
    visit("debug", self.debug, "check before every collective that all ranks issue the same one; slow");
  }
};

/// All settings of a pre-training run. Steps are optimizer steps. A value of 0 in a field `*_every` means never.
struct PretrainConfig {
  std::string run_directory;
  int64_t seed = 42;
  std::string objective = "auto";
  std::string device = "auto";
  std::string precision = "fp32";
  int64_t max_steps = 1000000;
  int64_t stop_at_step = 0;
  int64_t micro_batch_size = 8;
  int64_t micro_batch_tokens = 0;
  int64_t global_batch_size = 256;
  int64_t checkpoint_every = 1000;
  int64_t evaluate_every = 0;
  int64_t log_every = 10;
  int64_t keep_checkpoints = 3;
  std::string initial_checkpoint;
  bool initial_optimizer_state = false;
  int64_t num_threads = 0;
  bool gradient_checkpointing = false;
  BertConfig model;
  DataSourcesConfig data;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  AmpConfig amp;
  DistributedConfig distributed;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    constexpr int64_t kSteps = int64_t{1} << 40;
    visit("run_directory", self.run_directory, "directory of the run's checkpoints and metrics", kPath, kMayChange);
    visit("seed", self.seed, "seed of the initialisation, the order of the data and dropout", 0, INT64_MAX);
    visit("objective", self.objective,
          "auto: the objective of the shards (nsp: next sentence, mlm: masked tokens alone, sop: sentence order); mlm "
          "trains on shards of any objective, without their pairs",
          OneOf{"auto", "nsp", "mlm", "sop"});
    visit("device", self.device, "auto: cuda if there is a GPU", OneOf{"auto", "cpu", "cuda"}, kMayChange);
    visit("precision", self.precision,
          "bf16 and fp16 are autocast; bf16-weights and fp16-weights keep the weights in it, with fp32 masters",
          OneOf{"fp32", "tf32", "bf16", "fp16", "bf16-weights", "fp16-weights"});
    visit("max_steps", self.max_steps, "number of applied optimizer steps; the length of the schedule", 1, kSteps);
    visit("stop_at_step", self.stop_at_step, "the run ends early, after this step; 0 = at max_steps", 0, kSteps,
          kMayChange);
    visit("micro_batch_size", self.micro_batch_size, "sequences of one forward and backward on one device", 1, 1 << 20,
          kMayChange);
    visit("micro_batch_tokens", self.micro_batch_tokens,
          "in place of micro_batch_size: a micro-batch holds as many of the step's sequences as have room in so many "
          "tokens; 0 = micro_batch_size sequences",
          0, int64_t{1} << 30, kMayChange);
    visit("global_batch_size", self.global_batch_size, "sequences of one optimizer step, over all devices", 1, 1 << 24);
    visit("checkpoint_every", self.checkpoint_every, "steps between checkpoints; the final one is always written", 0,
          kSteps, kMayChange);
    visit("evaluate_every", self.evaluate_every, "steps between evaluations on data.validation", 0, kSteps, kMayChange);
    visit("log_every", self.log_every, "steps between lines of metrics.jsonl; 0 = one at the end", 0, kSteps,
          kMayChange);
    visit("keep_checkpoints", self.keep_checkpoints, "number of newest checkpoints that are kept", 1, 1 << 20,
          kMayChange);
    visit("initial_checkpoint", self.initial_checkpoint,
          "checkpoint directory whose weights the run starts from; empty = random", kPath);
    visit("initial_optimizer_state", self.initial_optimizer_state,
          "also take the moments of initial_checkpoint (phase 1 to phase 2); step and schedule start at 0");
    visit("num_threads", self.num_threads, "CPU threads; 0 = all that this process may use", 0, kMaxThreads,
          kMayChange);
    visit(
        "gradient_checkpointing", self.gradient_checkpointing,
        "compute each layer's activations again in backward instead of keeping them (NVIDIA: checkpoint_activations): "
        "less memory, the same gradients",
        kMayChange);
    visit("model", self.model, "the network");
    visit("data", self.data, "training data and vocabulary");
    visit("optimizer", self.optimizer, "update of the weights");
    visit("schedule", self.schedule, "learning rate over max_steps");
    visit("amp", self.amp, "loss scaling with fp16");
    visit("distributed", self.distributed, "several processes", kMayChange);
  }
};

/// Reads CONFIG.json with the files that it extends, then the variables BERT_CONFIG_A__B=value, then the overrides
/// "a.b=value". The last source wins. Paths become absolute. Throws ConfigError with all problems at once, InputMissing
/// if `path` is absent.
PretrainConfig load_pretrain_config(const std::string& path, const std::vector<std::string>& overrides = {});

/// Parses a configuration that to_json wrote, without environment and `extends`. `name` stands in messages. Throws
/// ConfigError.
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

/// The objective that config.objective names. If it names none (auto), that of the examples, `made_for`.
Objective objective_of(const PretrainConfig& config, Objective made_for = Objective::kNsp);

/// The paths of the shards to train on: those of data.train, or of data.sources in their order.
std::vector<std::string> training_paths(const DataSourcesConfig& data);

/// The name of a source in the log.
std::string source_name(const DataSourceConfig& source);

/// Throws ConfigError if there are more ranks than micro-batches in a global batch.
void check_micro_batches(const PretrainConfig& config, int64_t ranks);

/// Throws ConfigError if the optimizer state is to be sharded over more ranks than there are parameters.
void check_sharding(int64_t parameters, int64_t ranks);

}  // namespace bert
