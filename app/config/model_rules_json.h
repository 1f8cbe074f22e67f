// The rules of a model that stand beside its sizes, as JSON with the keys of transformers: added tokens, the length of
// texts, independent labels, the vectors of texts. Checkpoints, exports and model directories hold them.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app/config/model_description.h"

namespace bert {

/// [{"id": 30522, "content": "<drug>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
/// "special": true}]. `tokens` has the contents by id.
nlohmann::ordered_json added_tokens_json(const std::vector<AddedToken>& added, const std::vector<std::string>& tokens);

/// Reads one such object without its id, which stands elsewhere in some files. A flag that is missing or null is false.
/// Throws DataError, which names `place`, for a flag of another type.
AddedToken read_added_token(const nlohmann::json& object, int64_t id, const std::string& place);

/// Reads what added_tokens_json() wrote, without the contents. Throws DataError, which names `place`.
std::vector<AddedToken> read_added_tokens(const nlohmann::json& list, const std::string& place);

/// Calls set(key, value) for each rule of `model` that is not the default: problem_type, model_max_length,
/// label_thresholds (a number for each label), null_score_diff_threshold, sentence_transformers, truncation_side, added_tokens and
/// sentence_encoder.
void write_rules(const ModelDescription& model,
                 const std::function<void(const char* key, nlohmann::ordered_json value)>& set);

/// True if `object`, a configuration of a CrossEncoder of sentence-transformers, says that scores are logits. Throws
/// DataError, which names `place`, for an activation other than the identity and the sigmoid.
bool gives_logits(const nlohmann::json& object, const std::string& place);

/// Reads these keys of `object`; keys that are missing keep the defaults. Throws DataError, which names `place`.
void read_rules(const nlohmann::json& object, const std::string& place, ModelDescription& model);

/// The key label_thresholds; empty where it is missing. Throws DataError, which names `place`.
std::vector<double> read_label_thresholds(const nlohmann::json& object, const std::string& place);

/// The key null_score_diff_threshold; empty where it is missing. Throws DataError, which names `place`.
std::optional<double> read_null_threshold(const nlohmann::json& object, const std::string& place);

/// The key model_max_length, which transformers writes as 1e30 where there is no limit: 0 then, and where it is missing.
int64_t read_max_length(const nlohmann::json& object, const char* key, const std::string& place);

inline constexpr const char* kNullThresholdKey = "null_score_diff_threshold";
inline constexpr const char* kMultiLabelProblem = "multi_label_classification";
/// The activation whose scores are logits, by its name in sentence-transformers.
inline constexpr const char* kIdentityActivation = "torch.nn.modules.linear.Identity";

}  // namespace bert
