// The settings that every training run has, of pre-training and of fine-tuning.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "app/config/device_choice.h"
#include "app/config/fields.h"
#include "app/system/machine/threads.h"
#include "model/config.h"
#include "optim/config.h"

namespace bert {

struct DistributedConfig {
  CollectiveBackend backend = CollectiveBackend::kOfDevice;
  std::string init_method = "env://";
  int64_t timeout_seconds = 600;  // torch.distributed's default for NCCL
  GradientCompression compression = GradientCompression::kNone;
  bool shard_optimizer_state = false;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit("backend", self.backend, "auto: nccl on GPUs, gloo on CPUs");
    visit("init_method", self.init_method,
          "meeting place of the ranks: env:// (MASTER_ADDR, MASTER_PORT), tcp://HOST:PORT or file:///PATH");
    visit("timeout_seconds", self.timeout_seconds, "a collective that takes longer ends the run", 1, 86400);
    visit("compression", self.compression, "gradients are sent in fp32 (none), fp16 or bf16");
    visit("shard_optimizer_state", self.shard_optimizer_state,
          "each rank keeps moments, masters and averages of its share of the tensors only (ZeRO 1)");
  }
};

/// A larger number of sequences of a step, from a place of the run on.
struct BatchSizeConfig {
  int64_t after_steps = 0;
  int64_t after_tokens = 0;
  int64_t global_batch_size = 0;
  bool operator==(const BatchSizeConfig&) const = default;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit("after_steps", self.after_steps, "steps before the first larger one, with skipped ones", 0, int64_t{1} << 40);
    visit("after_tokens", self.after_tokens,
          "in place of after_steps: tokens of all sequences before it, by their mean", 0, int64_t{1} << 60);
    visit("global_batch_size", self.global_batch_size, "sequences of a step from there on", 1, 1 << 24);
  }
};
/// The rows of a position table that is longer than that of initial_checkpoint.
enum class PositionRows : uint8_t { kRepeat, kInterpolate, kRandom };
inline std::span<const char* const> names_of(PositionRows /*type*/) {
  static constexpr std::array<const char*, 3> kNames = {"repeat", "interpolate", "random"};
  return kNames;
}

/// Steps, both included.
struct StepRange {
  int64_t first = 0, last = 0;
};

struct ProfileConfig {
  std::string steps;

  /// The steps, or none for an empty text. Not there if the text is no FIRST-LAST with 1 <= FIRST <= LAST.
  [[nodiscard]] std::optional<StepRange> range() const;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit("steps", self.steps,
          "FIRST-LAST, as 10-15: LibTorch's profiler records these steps, in trace.json and profile.json; empty = none",
          kMayChange);
  }
};

/// The rows of the tokens that the vocabulary of initial_checkpoint lacks.
enum class InitialRows : uint8_t {
  kNone,          // there are no such tokens: both vocabularies are the same
  kMeanOfPieces,  // Note [Rows of a new vocabulary] in data/tokenizer/vocabulary_rows.h
  kRandom         // as the run initialises them
};
inline std::span<const char* const> names_of(InitialRows /*type*/) {
  static constexpr std::array<const char*, 3> kNames = {"none", "mean_of_pieces", "random"};
  return kNames;
}

struct InitialVocabularyConfig {
  std::string from;
  InitialRows rows = InitialRows::kNone;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit("from", self.from,
          "vocab.txt or tokenizer.json of initial_checkpoint, if it has no vocabulary of its own; empty = its own",
          kPath);
    visit("rows", self.rows,
          "rows of tokens that it lacks, in the word embeddings and the decoder's bias: mean_of_pieces: means of the "
          "rows of the pieces that its tokenizer makes of them; random; none: its vocabulary must be that of the run. "
          "Rows of tokens that it has stay as they are");
  }
};

/// The base of PretrainConfig and FinetuneConfig. Steps are optimizer steps. A value of 0 in a field `*_every` means
/// never.
struct RunConfig {
  std::string run_directory;
  int64_t seed = 42;
  DeviceChoice device = DeviceChoice::kCudaIfThere;
  Precision precision = Precision::kFp32;
  int64_t max_steps = 0;
  int64_t stop_at_step = 0;
  int64_t micro_batch_size = 8;
  int64_t micro_batch_tokens = 0;
  int64_t global_batch_size = 256;
  std::vector<BatchSizeConfig> batch_size_schedule;
  double max_hours = 0;
  int64_t checkpoint_every = 1000;
  double checkpoint_every_minutes = 30;
  int64_t evaluate_every = 0;
  int64_t log_every = 10;
  int64_t keep_checkpoints = 3;
  std::string initial_checkpoint;
  bool trust_initial_checkpoint = false;
  InitialVocabularyConfig initial_vocabulary;
  PositionRows initial_positions = PositionRows::kRepeat;
  int64_t num_threads = 0;
  bool gradient_checkpointing = false;
  bool first_last_layers_bf16 = false;
  std::vector<std::string> report = {"console", "jsonl", "tensorboard"};
  int64_t report_port = 0;
  ProfileConfig profile;
  BertConfig model;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  AmpConfig amp;
  DistributedConfig distributed;

  /// True if `report` has the word.
  [[nodiscard]] bool reports(const char* format) const;
  /// The greatest number that divides global_batch_size and all of batch_size_schedule.
  [[nodiscard]] int64_t batch_divisor() const;
  /// Number of encoder layers whose products are in FP8; 0 in other precisions.
  [[nodiscard]] int64_t fp8_layers() const;

  static constexpr int64_t kMostSteps = int64_t{1} << 40;
  static constexpr int64_t kFromMemory = 0;  // value of micro_batch_size that "auto" sets

  /// The fields that all runs share. Derived configurations list theirs beside them, and those of the members above that
  /// have another meaning or range for each kind of run, or none: max_steps, max_hours, batch_size_schedule,
  /// micro_batch_tokens, evaluate_every and initial_checkpoint.
  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit("run_directory", self.run_directory, "directory of the run's checkpoints and metrics", kPath, kMayChange);
    visit("seed", self.seed, "seed of the initialisation, the order of the data and dropout", 0, INT64_MAX);
    visit("device", self.device, "auto: cuda if there is a GPU", kMayChange);
    visit("precision", self.precision,
          "bf16 and fp16 are autocast; bf16-weights and fp16-weights keep the weights in it, with fp32 masters; fp8: "
          "bf16, and in training the encoder's products in FP8 with delayed scaling, from compute capability 8.9 on");
    visit("stop_at_step", self.stop_at_step, "the run ends early, after this step; 0 = at max_steps", 0, kMostSteps,
          kMayChange);
    visit("micro_batch_size", self.micro_batch_size,
          "sequences of one forward and backward on one device; auto: as many as its memory is estimated to hold", 1,
          1 << 20, kAuto, kMayChange);
    visit("global_batch_size", self.global_batch_size, "sequences of one optimizer step, over all devices", 1, 1 << 24);
    visit("checkpoint_every", self.checkpoint_every, "steps between checkpoints; the final one is always written", 0,
          kMostSteps, kMayChange);
    visit("checkpoint_every_minutes", self.checkpoint_every_minutes,
          "a checkpoint is also written when so many minutes have passed since the last; 0 = never", 0.0, 10080.0,
          kMayChange);
    visit("log_every", self.log_every, "steps between lines of metrics.jsonl; 0 = one at the end", 0, kMostSteps,
          kMayChange);
    visit("keep_checkpoints", self.keep_checkpoints, "number of newest checkpoints that are kept", 1, 1 << 20,
          kMayChange);
    visit("trust_initial_checkpoint", self.trust_initial_checkpoint,
          "also read an initial_checkpoint, or a teacher, that is a pickle of PyTorch, a format that can hold code; "
          "none is "
          "executed");
    visit("initial_vocabulary", self.initial_vocabulary, "the vocabulary of initial_checkpoint, where it is another");
    visit(
        "initial_positions", self.initial_positions,
        "rows of a position table that model.max_position_embeddings makes longer than that of initial_checkpoint: "
        "repeat: the old rows again and again, as Longformer; interpolate: linear between them, with the first and the "
        "last in their places (PyTorch's align_corners); random: new rows behind them. A shorter table is refused");
    visit("num_threads", self.num_threads, "CPU threads; 0 = all that this process may use", 0, kMaxThreads,
          kMayChange);
    visit(
        "gradient_checkpointing", self.gradient_checkpointing,
        "compute each layer's activations again in backward instead of keeping them (NVIDIA: checkpoint_activations): "
        "less memory, the same gradients",
        kMayChange);
    visit("first_last_layers_bf16", self.first_last_layers_bf16,
          "fp8 only: the first and the last layer of the encoder stay in bf16 (NVIDIA Megatron's name)");
    visit("report", self.report,
          "where the numbers of the run go; jsonl stays: resumption, bert report and bert watch read metrics.jsonl. At "
          "every evaluation and at the end, layers: norms and trust ratios of the weights in layers.jsonl; histograms: "
          "those of weights and gradients for TensorBoard. samples: the examples of each rank's steps in "
          "samples-rank-00000.jsonl, 00001 and so on (pre-training)",
          OneOf{"console", "jsonl", "tensorboard", "dllogger", "mlperf", "layers", "histograms", "samples"},
          kMayChange);
    visit("report_port", self.report_port,
          "port of 127.0.0.1 with the newest numbers for Prometheus at /metrics; 0 = none", 0, 65535, kMayChange);
    visit("profile", self.profile, "where the time of steps goes", kMayChange);
    visit("model", self.model, "the network");
    visit("optimizer", self.optimizer, "update of the weights");
    visit("schedule", self.schedule, "learning rate over max_steps");
    visit("amp", self.amp, "loss scaling with fp16");
    visit("distributed", self.distributed, "several processes", kMayChange);
  }
};

/// Adds the problems between two of the shared fields to `report`.
void check_run(const RunConfig& config, ConfigReport& report);

/// Throws ConfigError if there are more ranks than micro-batches in a global batch.
void check_micro_batches(const RunConfig& config, int64_t ranks);

/// Throws ConfigError if the optimizer state is to be sharded over more ranks than there are parameters.
void check_sharding(int64_t parameters, int64_t ranks);

}  // namespace bert
