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

// Answers of fine-tuned models. With `top_k` above 1, label and score are in a list "labels", answers in "answers".

/// text-classification: {"text": ..., "label": ..., "score": ...}; of a model of numbers {"text": ..., "value": ...}.
nlohmann::ordered_json to_json(const TaskInput& input, const std::vector<LabelScore>& best, int64_t top_k);

/// token-classification: {"text": ..., "words": [{"word": ..., "label": ..., "score": ...}]}.
nlohmann::ordered_json to_json(const TaskInput& input, const std::vector<WordLabel>& words, int64_t top_k);

/// question-answering: {"text": ..., "question": ..., "answer": ..., "score": ..., "start": ..., "end": ...}, the places in
/// characters of the text.
nlohmann::ordered_json to_json(const TaskInput& input, const std::vector<ExtractedAnswer>& answers, int64_t top_k);

}  // namespace bert
