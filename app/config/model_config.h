// The configuration of a model alone, as Hugging Face's config.json has it.
#pragma once

#include <string>

#include "model/config.h"

namespace bert {

/// Sets the fields of `config` that the JSON object `text` has; other keys are left alone. `name` stands in messages.
/// Throws ConfigError, with file, line and field, for wrong types, values out of range and contradictions.
void read_model_config(const std::string& text, const std::string& name, BertConfig& config);

}  // namespace bert
