// Position tables that are longer than those of the checkpoint that a run starts from.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "app/config/run_config.h"
#include "cuda_ext/state_dict.h"

namespace bert {

inline constexpr const char* kPositionTable = "bert.embeddings.position_embeddings.weight";

/// The table [P, H] with more rows, in its dtype. `initial` [W, H], W > P, are the rows of a new model.
///   kRepeat       row i is row i % P. Source: Longformer's convert_model_to_long.ipynb, without RoBERTa's first two rows
///   kInterpolate  row i lies at i (P - 1) / (W - 1) between two of the table. Source: torch.nn.functional.interpolate with
///                 mode="linear", align_corners=True
///   kRandom       rows of `initial` from P on
at::Tensor longer_positions(const at::Tensor& table, const at::Tensor& initial, PositionRows rows);

/// Gives the position table of `weights` as many rows as `initial` has, and the optimizer's masters and moving averages
/// likewise; moments begin with zeros where a row is new. Does nothing if it has as many or more, or if there is none.
/// Returns a sentence for the log, or nothing.
std::string lengthen_positions(StateDict& weights, StateDict& optimizer, const at::Tensor& initial, PositionRows rows);

}  // namespace bert
