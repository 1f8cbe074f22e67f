// One interface of all places that the numbers of a run go to. Each format has a file of its own beside this one.
//
// Note [One computation, many sinks]
// RunLog (app/train/log/run_log.cc) computes the numbers of an interval, an evaluation and the end once, as one JSON object
// each, and passes the object to every sink. A sink only formats: it chooses keys, renames them, and writes. So two
// formats cannot disagree. Rank 0 alone has sinks. A sink that cannot write throws IoError, and the run stops after a
// checkpoint, as without space for metrics.jsonl.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "app/report/metrics.h"
#include "app/report/tensor_histogram.h"

namespace bert {

/// The facts of a run that do not change in it.
struct RunFacts {
  std::string run_directory;
  std::string host;
  nlohmann::ordered_json config;  // every field of the configuration
  int64_t pid = 0;
  double init_time = 0, begin_time = 0;  // seconds since 1970: this process began to prepare the run; it begins
  int64_t step = 0;                      // at which this process begins to train
  int64_t max_steps = 0, warmup_steps = 0;
  int64_t accumulation_steps = 1;  // micro-batches of a rank in a step
  int64_t training_examples = 0, evaluation_examples = 0;
  int64_t max_sequence_length = 0;  // tokens
  std::string platform;             // devices, in words
};

/// The begin of training.
struct TrainingBegin {
  int64_t step = 0, last_step = 0;
  double time = 0;  // seconds since 1970
};

/// The numbers of a log interval.
struct IntervalReport {
  StepMetrics metrics;          // for a line of progress
  nlohmann::ordered_json line;  // the line of metrics.jsonl, with `step`, `time` and `elapsed_seconds`
};

/// The numbers of an evaluation.
struct EvaluationLine {
  nlohmann::ordered_json line;  // the line of metrics.jsonl: `step`, `evaluation`, `time` and `elapsed_seconds`
  std::string main_figure;      // the name in `evaluation` of the figure by which evaluations are compared
};

/// The distributions of a weight, and of its gradient in the last step, with the name of the weight in checkpoints.
struct TensorDistribution {
  std::string name;
  TensorHistogram weights, gradients;  // gradients.count 0: it has none
};

/// The end of this process's part of a run.
struct RunEnd {
  int64_t step = 0;
  bool finished = false;     // false: a signal has stopped the run, and the same command goes on with it
  double time = 0;           // seconds since 1970
  double seconds = 0;        // since the begin of training, with evaluations and checkpoints
  int64_t steps = 0;         // that this process has tried
  double sequences = 0;      // of all ranks, in these steps
  double mean_loss = 0;      // over these steps
  double last_loss = 0;      // of the last interval
  double train_seconds = 0;  // without evaluations and checkpoints
};

/// A place that numbers go to. The training thread alone calls it. Every function throws IoError.
class Sink {
 public:
  virtual ~Sink() = default;
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;

  /// The run has what it needs, and begins: with an evaluation, or with training.
  virtual void begin(const RunFacts& /*facts*/) {}
  virtual void training_begins(const TrainingBegin& /*begin*/) {}
  virtual void interval(const IntervalReport& /*report*/) {}
  virtual void evaluation_begins(int64_t /*step*/, double /*time*/) {}
  virtual void evaluation(const EvaluationLine& /*evaluation*/) {}
  /// Norms of the weights as an object of layers.jsonl.
  virtual void layers(const nlohmann::ordered_json& /*line*/) {}
  virtual void distributions(int64_t /*step*/, double /*time*/, const std::vector<TensorDistribution>& /*tensors*/) {}
  /// Answers for masked sentences as an object of answers.jsonl.
  virtual void answers(const nlohmann::ordered_json& /*line*/) {}
  virtual void end(const RunEnd& /*end*/) {}

 protected:
  Sink() = default;
};

/// Calls visit(name, value) for every number and boolean of `object`, in its order. The name of a number within another
/// object is that of its path, with `separator` between the parts.
void visit_numbers(const nlohmann::ordered_json& object, char separator,
                   const std::function<void(const std::string& name, double value)>& visit);

/// The line of an interval without its keys that are no figures: step, time and elapsed_seconds, and `steps`, the
/// length of the interval.
nlohmann::ordered_json figures_of(const nlohmann::ordered_json& line);

/// `object` with objects within it replaced by their members, under names with dots: {"optimizer.lr": 0.006}.
nlohmann::ordered_json flat(const nlohmann::ordered_json& object);

}  // namespace bert
