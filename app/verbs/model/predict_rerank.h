// Passages by their relevance to a query, in `bert predict`.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "app/inference/answer_options.h"
#include "app/inference/task_predictor.h"
#include "app/verbs/model/predict_input.h"

namespace bert {

/// Adds --query and --raw-scores.
void add_rerank_options(CLI::App& app, std::string& query, AnswerOptions& answers);

/// The query and its passage, in the order of a reranker: `query` and the text; the field `pair_field` of the text's
/// JSON line and the text; or the two columns of the text, with a tab between them. Throws DataError for a text without
/// these.
TaskInput rerank_pair(const InputText& text, const std::string& query, const std::string& pair_field);

/// {"query", "text", "score"} for each pair, or the JSON line of the pair with "score": the passages of a query best
/// first, the `top_k` best ones of the options or all; queries in their order. `scores`: of each pair.
std::vector<nlohmann::ordered_json> ranked(const std::vector<InputText>& texts, std::span<const EncodedInput> pairs,
                                           const std::vector<double>& scores);

}  // namespace bert
