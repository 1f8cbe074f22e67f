// `bert evaluate embedding`: how well the similarities of vectors agree with the scores of people.
#pragma once

#include "app/inference/predictor.h"
#include "app/inference/pretrained.h"
#include "app/verbs/model/evaluate.h"

namespace bert {

/// Pearson's and Spearman's correlation of the scores of the pairs with the cosine, dot product, and negative Euclidean
/// and Manhattan distance of their vectors, as EmbeddingSimilarityEvaluator of sentence-transformers computes them.
std::vector<TaskMetric> score_similarities(const Predictor& predictor, const TaskExamples& pairs);

/// Reads the pairs of `path`, and prints their scores. Says how many texts were cut.
void evaluate_embedding(const EvaluateOptions& options, const std::string& path, const Pretrained& pretrained,
                        PredictorOptions how);

}  // namespace bert
