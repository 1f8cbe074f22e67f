// The parts of a run that checkpoints are made of, and restore. The base of PretrainingRun and FinetuningRun: Note [Kinds
// of runs] in optimizer_step.h.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "app/checkpoint/checkpoint.h"
#include "app/config/run_config.h"
#include "app/distributed/process_group.h"
#include "app/train/log/run_log.h"
#include "app/train/run_lock.h"
#include "app/train/step/optimizer_step.h"
#include "data/loader/look_ahead_loader.h"
#include "data/tokenizer/tokenizer.h"

namespace bert {

/// Each rank of a run has one. The constructor of a kind of run reads its inputs, meets the other ranks, and makes the
/// model.
class RunState {
 public:
  virtual ~RunState() = default;
  RunState(const RunState&) = delete;
  RunState& operator=(const RunState&) = delete;

  [[nodiscard]] virtual const RunConfig& config() const = 0;
  [[nodiscard]] virtual std::string config_json() const = 0;  // the resolved configuration
  [[nodiscard]] virtual const Tokenizer& tokenizer() const = 0;
  [[nodiscard]] virtual const ProcessGroupPtr& group() const = 0;  // nullptr for one process
  [[nodiscard]] virtual OptimizerStep& step() = 0;
  [[nodiscard]] virtual RunLog& log() = 0;
  /// Its position is that of a checkpoint.
  [[nodiscard]] virtual LookAheadLoader& loader() = 0;
  /// The identities of the examples, by their key in `data`; the same on all ranks.
  [[nodiscard]] virtual const std::map<std::string, DataIdentity>& data() const = 0;
  /// Number of examples in one epoch.
  [[nodiscard]] virtual int64_t examples() const = 0;
  /// Number of examples of one evaluation; 0: the run does not evaluate.
  [[nodiscard]] virtual int64_t evaluation_examples() const = 0;
  /// The most tokens that an example may have.
  [[nodiscard]] virtual int64_t max_sequence_length() const = 0;
  /// The step of the run config.initial_checkpoint from which this run branches; 0: it does not.
  [[nodiscard]] virtual int64_t from_step() const { return 0; }
  /// Number of sequences of the first `steps` steps.
  [[nodiscard]] virtual double sequences(int64_t steps) const {
    return static_cast<double>(steps) * static_cast<double>(config().global_batch_size);
  }
  /// True if the evaluation of the checkpoint's step is still to be made: CheckpointState::evaluation_due.
  [[nodiscard]] bool evaluation_due() const { return evaluation_due_; }
  void set_evaluation_due(bool due) { evaluation_due_ = due; }
  /// True if each rank logs the examples of its steps (SequenceLog).
  [[nodiscard]] virtual bool logs_examples() const { return false; }

  /// Restores the newest valid checkpoint of the run directory. Without one, branches at from_step() or takes the
  /// weights of config.initial_checkpoint; without that the run stays as it is. Returns the step of the checkpoint, -1 if
  /// the run begins. Every rank must call it; rank 0 alone reads the tensors, compares them with their checksums and sends them
  /// to the others. Throws ConfigError if its tensors do not fit, or if its configuration or examples differ in what must
  /// stay the same (unless `allow_config_change`); DataError, InputMissing, IoError.
  int64_t restore(bool allow_config_change);

  /// The clock of the checkpoint from which the run goes on; the same on all ranks.
  [[nodiscard]] const RunClock& clock() const { return clock_; }
  /// The time of all processes of the run until now; each rank has its own.
  [[nodiscard]] double seconds() const {
    return clock_.seconds + std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }
  /// Ends the warm-up at this step, now and after a resumption.
  void set_warmup(int64_t end);
  /// Ends the run with a decay of these steps, now and after a resumption.
  void set_decay(int64_t begin, int64_t end);

  /// `lock` is held as long as the run writes. check_directory() then throws IoError if the run directory was removed or
  /// moved.
  void set_lock(const RunLock& lock) { lock_ = &lock; }
  void check_directory() const {
    if (lock_ != nullptr) lock_->check();
  }

  /// Writes the checkpoint of step `applied` and returns on every rank when rank 0 has written it. Every rank must call
  /// it. Throws IoError, PeerError if the weights of the ranks differ.
  void save(int64_t applied);

  /// True if the run evaluates at evaluate_every and at its end.
  [[nodiscard]] virtual bool evaluates() const = 0;
  /// True if the run evaluates before its first step, too.
  [[nodiscard]] virtual bool evaluates_at_start() const { return false; }
  /// Evaluates the weights of step `applied`. Every rank must call it and gets the same figures. `stop` is asked from
  /// time to time and may differ between ranks; if it is true on one rank, no rank gets a result. `last` is true after
  /// the last step.
  virtual std::optional<EvaluationReport> evaluate(int64_t applied, bool last, const std::function<bool()>& stop) = 0;
  /// Called after an evaluation, when its figures are written.
  virtual void evaluated(int64_t /*applied*/) {}
  /// The figures of the last evaluation say that more steps are not wanted.
  [[nodiscard]] virtual bool ended_early() { return false; }
  /// Prints the sentences with which the run begins. `applied` is its step.
  virtual void announce(int64_t applied) = 0;

 protected:
  RunState() = default;
  [[nodiscard]] bool is_rank_zero() { return step().rank() == 0; }
  /// on_rank_zero() of this group. `name` says what rank 0 does.
  [[nodiscard]] std::string of_rank_zero(const std::string& name, const std::function<std::string()>& work) const;
  /// Opens a verified checkpoint. Rank 0 alone has the bytes of its tensors: a thousand ranks that read a file of
  /// gigabytes stop a shared file system.
  [[nodiscard]] Checkpoint open(const std::string& directory);
  /// Writes the checkpoint of step `applied` into `directory`, as save(). Every rank must call it.
  void save_to(const std::string& directory, int64_t applied);
  /// Throws the ConfigError of a resumption that would differ from the run of `directory`.
  static void refuse_differences(const std::string& directory, const std::vector<std::string>& differences);

  /// A configuration in state.json, read by the kind of run that has written it.
  struct Earlier {
    int64_t seed = 0, global_batch_size = 1;
    Precision precision = Precision::kFp32;
    std::vector<ConfigDifference> changes;  // in fields that must stay the same
    std::vector<ConfigDifference> all;      // in any field
  };
  /// Reads the configuration of a checkpoint of this run. Throws ConfigError if it differs in what not even
  /// --allow-config-change changes.
  virtual Earlier read_earlier(const CheckpointState& state, const std::string& directory) = 0;
  /// Takes the weights of config().initial_checkpoint. Called if the run directory has no checkpoint.
  virtual void start_from_initial_checkpoint() = 0;
  /// Adds what the kind of run knows of `state` and of the files beside it: objective, labels, Hugging Face's files.
  virtual void describe(Checkpoint& checkpoint) = 0;
  /// The step of the newest valid checkpoint, -1 if there is none. Rank 0 holds the lock of the run directory, so it
  /// alone looks and sets damaged checkpoints aside; the others are told the step.
  virtual int64_t find_newest();

 private:
  void wait_for_rank_zero(const std::string& what);
  /// The consequence if the configuration or the examples differ from the checkpoint's in what must stay the same.
  enum class Differences { kRefuse, kAllow, kSay };
  void resume(const std::string& directory, Differences differences);
  /// Takes the whole state of the checkpoint of from_step() and saves it as the first checkpoint of this run, so that
  /// every later start resumes. Throws InputMissing if the run has no such checkpoint, DataError if it is damaged.
  void branch();
  /// Makes a checkpoint of step `applied`. Rank 0 calls `write` with it, and every rank returns when it is written.
  void save_with(int64_t applied, const std::function<void(const Checkpoint& checkpoint)>& write);

  RunClock clock_ = {};
  bool evaluation_due_ = false;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();  // of this process
  int64_t saves_ = 0;                                                               // calls of save()
  const RunLock* lock_ = nullptr;                                                   // of rank 0
};

/// The name in safetensors of the dtype of weights.
const char* dtype_name(const StateDict& weights);

}  // namespace bert
