// Errors for checkpoints whose tensors do not fit this run.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "app/config/fields.h"

namespace bert {

/// Runs `load`, which copies a checkpoint's tensors into the model and the optimizer of this run. If they do not fit,
/// throws ConfigError with the cause: the `differences` of the checkpoint's configuration that are under `prefixes` (such
/// as "/model/"), and the first tensors. `what` stands in the message.
void fit_checkpoint(const std::string& what, const std::vector<ConfigDifference>& differences,
                    const std::vector<std::string>& prefixes, const std::function<void()>& load);

}  // namespace bert
