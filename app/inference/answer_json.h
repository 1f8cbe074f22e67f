// Answers of a Predictor as JSON: the lines of `bert predict`, and the answers of `bert serve`.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "app/inference/predictor.h"
#include "app/inference/task_predictor.h"

namespace bert {

/// {"text": ..., "fillers": ...}. As in Hugging Face's pipeline, `fillers` is the list of the one mask, best first, or a
/// list of such lists for several masks. A filler has score, token, token_str and sequence.
nlohmann::ordered_json to_json(const MaskFilling& filling);

/// {"text": ..., "tokens": [S strings], "pooler_output": [H numbers], "last_hidden_state": [S lists of H numbers]}.
/// `pooler_output` is absent if the model was trained without sentence pairs.
nlohmann::ordered_json to_json(const std::string& text, const Features& features);

/// {"text": ..., "embedding": ...}, the embedding as nested lists of its shape.
nlohmann::ordered_json embedding_json(const std::string& text, const at::Tensor& embedding);

/// {"text": ..., "tokens": ..., "hidden_states": ...}: [S, H], or [L, S, H] of several layers, as nested lists.
nlohmann::ordered_json hidden_states_json(const std::string& text, const std::vector<std::string>& tokens,
                                          const at::Tensor& hidden_states);

// Answers of fine-tuned models. Places are in characters of the text.

/// text-classification: {"text": ..., "label": ..., "score": ...}, or {"text": ..., "labels": [{"label": ..., "score":
/// ...}]}; of a model of numbers {"text": ..., "value": ...} or {"text": ..., "values": [...]}.
nlohmann::ordered_json to_json(const EncodedInput& input, const TextScores& answer);

/// token-classification: {"text": ..., "words": [{"word": ..., "label": ..., "score": ..., "start": ..., "end": ...}]};
/// with an aggregation {"text": ..., "entities": [{"entity_group": ..., "score": ..., "word": ..., "start": ..., "end":
/// ...}]}.
nlohmann::ordered_json to_json(const EncodedInput& input, const TaggedText& answer);

/// question-answering: {"text": ..., "question": ..., "answer": ..., "score": ..., "span_probability": ..., "start": ...,
/// "end": ...}; with a top_k above 1 the answers are in a list "answers".
nlohmann::ordered_json to_json(const EncodedInput& input, const std::vector<ExtractedAnswer>& answers);

// The same as Hugging Face's pipelines and inference API give them.
nlohmann::ordered_json pipeline_json(const EncodedInput& input, const TextScores& answer);
nlohmann::ordered_json pipeline_json(const EncodedInput& input, const TaggedText& answer);
nlohmann::ordered_json pipeline_json(const EncodedInput& input, const std::vector<ExtractedAnswer>& answers);

}  // namespace bert
