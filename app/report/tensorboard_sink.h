// The numbers of a run for TensorBoard.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "app/report/sink.h"

namespace bert {

/// Writes event files into run_directory/report/tensorboard: one file for each process of the run, from its begin on.
/// Tags are those of transformers' TensorBoardCallback, train/KEY and eval/KEY: train/loss, train/learning_rate,
/// eval/loss, and at the end train/train_samples_per_second and its like; other figures of metrics.jsonl have tags of
/// the same form. The configuration is in args/text_summary, and the values of its fields are hyper-parameters of the
/// hparams plugin. `saved` is the step of the checkpoint from which the run goes on, -1 if it begins.
std::unique_ptr<Sink> make_tensorboard_sink(const std::string& run_directory, int64_t saved);

}  // namespace bert
