#include "app/verbs/model/evaluate_embedding.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <utility>

#include "app/inference/sentence_pooling.h"
#include "app/system/machine/memory.h"
#include "app/tasks/text_metrics.h"

namespace bert {
namespace {

std::vector<double> doubles_of(const torch::Tensor& values) {
  const torch::Tensor all = values.to(torch::kDouble).contiguous();
  return {all.const_data_ptr<double>(), all.const_data_ptr<double>() + all.numel()};
}

}  // namespace

std::vector<TaskMetric> score_similarities(const Predictor& predictor, const TaskExamples& pairs) {
  std::vector<EncodedText> texts;
  std::vector<double> scores;
  for (const TextExample& pair : pairs.texts) {
    texts.push_back(predictor.encode(Task::kEmbedding, pair.text));
    texts.push_back(predictor.encode(Task::kEmbedding, pair.text_pair));
    scores.push_back(pair.value);
  }
  const auto cut = std::count_if(texts.begin(), texts.end(), [](const EncodedText& text) { return text.cut; });
  if (cut > 0) {
    fmt::print(stderr,
               "bert evaluate: {} of {} texts have more tokens than the model reads, and were cut; --long refuse "
               "refuses them\n",
               cut, texts.size());
  }
  const torch::Tensor all = torch::stack(predictor.sentence_embeddings(texts)).view({std::ssize(scores), 2, -1});
  const torch::Tensor a = all.select(1, 0), b = all.select(1, 1);
  const std::pair<const char*, torch::Tensor> kinds[] = {{"cosine", (normalized(a) * normalized(b)).sum(-1)},
                                                         {"dot", (a * b).sum(-1)},
                                                         {"euclidean", -(a - b).norm(2, -1)},
                                                         {"manhattan", -(a - b).abs().sum(-1)}};
  std::vector<TaskMetric> metrics;
  for (const auto& [name, values] : kinds) {
    const std::vector<double> similarities = doubles_of(values);
    metrics.push_back({fmt::format("{}_pearson", name), pearson(scores, similarities)});
    metrics.push_back({fmt::format("{}_spearman", name), spearman(scores, similarities)});
  }
  return metrics;
}

void evaluate_embedding(const EvaluateOptions& options, const std::string& path, const Pretrained& pretrained,
                        PredictorOptions how) {
  how.long_texts = options.long_texts.value_or(LongTexts::kTruncate);
  const TaskExamples pairs = read_examples(definition_of(options), path, options.changed({}), TaskUse::kScoring);
  const Predictor predictor(pretrained, how);
  keep_large_blocks();
  print_metrics(score_similarities(predictor, pairs));
}

}  // namespace bert
