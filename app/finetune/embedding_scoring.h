// Metrics of sentence embeddings on a development file.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "app/tasks/task_scoring.h"
#include "data/tasks/task_data.h"

namespace bert {

/// The metrics of rows of vectors, [rows, C, D] fp32 on the CPU, the main one first.
///   rows with a label: cosine_spearman, cosine_pearson of the first two texts, as EmbeddingSimilarityEvaluator; and a
///     table of the cosines as output
///   rows without: cosine_ndcg@10, cosine_mrr@10, cosine_accuracy@1. Anchors search among all distinct other texts of
///     the file, in which their own positives are relevant, as InformationRetrievalEvaluator does
TaskScores score_embeddings(const TaskExamples& rows, const at::Tensor& vectors);

/// The names of these metrics.
std::vector<std::string> embedding_metrics(bool has_labels);

}  // namespace bert
