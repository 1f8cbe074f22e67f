// The tokenizer's settings in the config.json of a TorchScript export.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "data/config.h"

namespace bert {

/// Adds a member for each setting to `object`, in the order of TokenizerConfig::visit_fields. `match_special_tokens` is
/// left out: every predictor matches [MASK].
void write_tokenizer_settings(const TokenizerConfig& settings, nlohmann::ordered_json& object);

/// The settings that write_tokenizer_settings() wrote into `object`. A setting that is missing keeps its default.
/// Throws DataError, which names `file` and the key, for a value of another type.
TokenizerConfig read_tokenizer_settings(const nlohmann::json& object, const std::string& file);

}  // namespace bert
