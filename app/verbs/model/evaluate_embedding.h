// `bert evaluate embedding`: how well the vectors of texts do what they are for. The figures have the names and values
// of sentence-transformers' evaluators.
#pragma once

#include <vector>

#include "app/inference/predictor.h"
#include "app/inference/pretrained.h"
#include "app/retrieval/retrieval_files.h"
#include "app/retrieval/text_vectors.h"
#include "app/verbs/model/evaluate.h"

namespace bert {

/// Pearson's and Spearman's correlation of the values of the pairs with the cosine, dot product, and negative Euclidean
/// and Manhattan distance of their vectors, as EmbeddingSimilarityEvaluator computes them.
std::vector<TaskMetric> score_similarities(TextVectors& vectors, const std::vector<ScoredPair>& pairs);

/// The best thresholds between the pairs with the value 1 and the others, for the same four, as
/// BinaryClassificationEvaluator finds them; those of distances are positive. max_NAME is the largest figure of the
/// four.
std::vector<TaskMetric> score_classes(TextVectors& vectors, const std::vector<ScoredPair>& pairs);

/// map, mrr@10 and ndcg@10 by the cosine, as RerankingEvaluator computes them.
std::vector<TaskMetric> score_reranking(TextVectors& queries, TextVectors& documents,
                                        const std::vector<RerankingSample>& samples);

/// Reads `path`, a table of pairs or of samples, or a directory of BEIR's layout, and prints the figures. Says how many
/// texts were cut.
void evaluate_embedding(const EvaluateOptions& options, const std::string& path, const Pretrained& pretrained,
                        PredictorOptions how);

}  // namespace bert
