// The weights with which a run of pre-training begins.
#pragma once

#include "app/distributed/process_group.h"
#include "app/train/log/run_log.h"
#include "app/train/pretraining_inputs.h"
#include "app/train/step/training_step.h"

namespace bert {

/// Gives `step` the weights of config.initial_checkpoint: a run, a checkpoint or an export of this program, or a model
/// of another program. What they lack stays as `step` has initialised it. Every rank
/// must call it. Throws ConfigError if they do not fit the run, DataError, InputMissing, IoError, PeerError.
void start_from_initial_checkpoint(const PretrainingInputs& inputs, const ProcessGroupPtr& group, TrainingStep& step,
                                   RunLog& log);

}  // namespace bert
