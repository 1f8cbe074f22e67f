// Memory of an optimizer's state, and loading one run's state into another run.
#pragma once

#include <c10/core/ScalarType.h>

#include <string>
#include <vector>

#include "optim/optimizer.h"

namespace bert {

/// Bytes of one parameter of `dtype` in training.
///
///                          fp32   bf16, fp16   fp64
///   weight                    4            2      8
///   gradient                  4            4      8    DataParallel's buffer
///   exp_avg, exp_avg_sq       8            8     16
///   master                    0            4      0
///   ema (ema_decay > 0)       4            4      8
///
/// The same for lamb, adamw, adam and bert_adam. In addition: each gradient's place in the buffer is rounded up to 64
/// bytes; the optimizer has three scalars (16 bytes); low-precision gradients outside of DataParallel's buffer are
/// converted, which takes 4 more bytes each; a step over fp64 parameters uses temporary tensors, other steps do not.
struct TrainingBytes {
  int64_t weight = 0, gradient = 0;
  int64_t moments = 0, master = 0, ema = 0;
  /// The optimizer's part: moments, master and moving average.
  [[nodiscard]] int64_t state() const { return moments + master + ema; }
};
[[nodiscard]] TrainingBytes bytes_per_parameter(const OptimizerConfig& config, c10::ScalarType dtype);

/// A complete state for `parameters`, made of the fitting entries of another state.
struct FittedState {
  StateDict state;                      // for load_state_dict(); new tensors, or those of the other state
  std::vector<std::string> loaded;      // entries taken from the other state
  std::vector<std::string> missing;     // entries that the other state lacks
  std::vector<std::string> reshaped;    // "<entry>: expected [..], got [..]"
  std::vector<std::string> unexpected;  // entries of the other state that these parameters do not need

  [[nodiscard]] bool complete() const { return missing.empty() && reshaped.empty() && unexpected.empty(); }
  /// The counts, and the names of all entries but the loaded ones, one a line.
  [[nodiscard]] std::string report() const;
};

/// Loads in part: takes from `state` (BertOptimizer::state_dict() of another run) every entry with the name and shape
/// that the optimizer of `config` has for `parameters`, in the dtype of the optimizer. For the rest, moments are zeros,
/// masters and moving averages are the current parameters, and the step is 0. The two moments of a parameter are taken
/// together or not at all.
///   optimizer.load_state_dict(fit_state(config, parameters, state).state);
[[nodiscard]] FittedState fit_state(const OptimizerConfig& config, const std::vector<NamedParameter>& parameters,
                                    const StateDict& state);

/// The start of a phase.
struct EarlierRun {
  StateDict weights;          // by parameter name
  StateDict optimizer_state;  // BertOptimizer::state_dict()
  bool keep_moments = true;   // false: moments are zeros, as in continued training from the weights alone
};

struct NextPhase {
  StateDict weights;          // for the model
  StateDict optimizer_state;  // for load_state_dict() of the optimizer, after the model has its weights
};

/// The transition from phase 1 to phase 2 for `parameters` (their names, shapes and dtypes are read). Weights and
/// moments are kept. The step is 0, so that the schedule and the moving average start again. The loss scale is not part
/// of the state. The phases may differ in precision and in ema_decay: masters stay masters, or become the weights of an
/// fp32 phase; fp32 weights become the masters of a low-precision phase.
/// Weights that do not belong to the parameters, or have another shape, are passed on: the model's load_state_dict()
/// refuses them with a list. Throws c10::Error with a list if moments are to be kept and do not fit the parameters.
/// Source: NVIDIA's run_pretraining.py with --init_checkpoint or --phase2.
[[nodiscard]] NextPhase next_phase(const OptimizerConfig& config, const std::vector<NamedParameter>& parameters,
                                   const EarlierRun& earlier);

}  // namespace bert
