// What an optimizer keeps for its parameters: how much memory it takes, and how the state of one run serves another.
#pragma once

#include <c10/core/ScalarType.h>

#include <string>
#include <vector>

#include "optim/optimizer.h"

namespace bert {

/// Bytes of one parameter of `dtype` while it is trained.
///
///                          fp32   bf16, fp16   fp64
///   weight                    4            2      8
///   gradient                  4            4      8    DataParallel's buffer
///   exp_avg, exp_avg_sq       8            8     16
///   master                    0            4      0
///   ema (ema_decay > 0)       4            4      8
///
/// The same for lamb, adamw, adam and bert_adam. Beside these: each gradient's place in the buffer is rounded up to 64
/// bytes; the optimizer has three scalars (16 bytes); low-precision gradients outside of DataParallel's buffer are
/// converted, which takes 4 more bytes each; fp64 takes temporary tensors in a step, the others none.
struct TrainingBytes {
  int64_t weight = 0, gradient = 0;
  int64_t moments = 0, master = 0, ema = 0;
  /// What the optimizer keeps: moments, master and moving average.
  [[nodiscard]] int64_t state() const { return moments + master + ema; }
};
[[nodiscard]] TrainingBytes bytes_per_parameter(const OptimizerConfig& config, c10::ScalarType dtype);

/// A whole state for `parameters`, made of what fits in another one.
struct FittedState {
  StateDict state;                      // for load_state_dict(); new tensors or those of the other state
  std::vector<std::string> loaded;      // entries that were taken
  std::vector<std::string> missing;     // not in the other state
  std::vector<std::string> reshaped;    // "<entry>: expected [..], got [..]"
  std::vector<std::string> unexpected;  // in the other state, and not of these parameters

  [[nodiscard]] bool complete() const { return missing.empty() && reshaped.empty() && unexpected.empty(); }
  /// How many of each, and the names but for those that were taken, a line each.
  [[nodiscard]] std::string report() const;
};

/// Loading in part: takes from `state` (BertOptimizer::state_dict() of another run) every entry that the optimizer of
/// `config` has for `parameters` with the same name and shape, in the optimizer's dtype. Where there is none, moments
/// are zeros, masters and averages are the parameters as they are now, and the step is 0. The two moments of a
/// parameter are taken together or not at all.
///   optimizer.load_state_dict(fit_state(config, parameters, state).state);
[[nodiscard]] FittedState fit_state(const OptimizerConfig& config, const std::vector<NamedParameter>& parameters,
                                    const StateDict& state);

/// What a phase begins from.
struct EarlierRun {
  StateDict weights;          // by parameter name
  StateDict optimizer_state;  // BertOptimizer::state_dict()
  bool keep_moments = true;   // false: they are zeros, which is continued training from the weights alone
};

struct NextPhase {
  StateDict weights;          // for the model
  StateDict optimizer_state;  // for load_state_dict() of the optimizer, after the model has its weights
};

/// The phase 1 to phase 2 transition of `parameters` (of which names, shapes and dtype are read). Weights and moments
/// go on; the step is 0, so that the schedule starts anew, and with it the moving average; the loss scale is not part
/// of the state. The phases may differ in precision and in ema_decay: masters go on as masters, and become the weights
/// of an fp32 phase; fp32 weights become the masters of a low-precision phase. Weights that are none of the parameters,
/// or of another shape, are passed on: the model's load_state_dict() refuses them with the list. Throws c10::Error with
/// the list where moments that are to be kept are not those of the parameters. Source: NVIDIA's run_pretraining.py with
/// --init_checkpoint or --phase2.
[[nodiscard]] NextPhase next_phase(const OptimizerConfig& config, const std::vector<NamedParameter>& parameters,
                                   const EarlierRun& earlier);

}  // namespace bert
