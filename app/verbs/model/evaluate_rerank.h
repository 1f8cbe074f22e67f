// `bert evaluate rerank` of queries with lists of passages. The figures have the names and values of
// sentence-transformers' CrossEncoderRerankingEvaluator.
#pragma once

#include <string>

#include "app/inference/predictor.h"
#include "app/inference/pretrained.h"
#include "app/verbs/model/evaluate.h"

namespace bert {

/// Scores the passages of each sample in `path` (read_reranking_samples()), prints map, mrr@10 and ndcg@10, and says how
/// many pairs were cut. `pretrained` is a reranker. Throws DataError with the line of a pair that is too long, if
/// options.long_texts refuses it.
void evaluate_rerank(const EvaluateOptions& options, const std::string& path, Pretrained pretrained,
                     PredictorOptions how);

}  // namespace bert
