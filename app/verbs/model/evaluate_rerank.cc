#include "app/verbs/model/evaluate_rerank.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "app/inference/task_predictor.h"
#include "app/retrieval/ranking_metrics.h"
#include "app/retrieval/retrieval_files.h"
#include "app/system/errors.h"
#include "app/system/machine/memory.h"
#include "data/io/error.h"

namespace bert {

void evaluate_rerank(const EvaluateOptions& options, const std::string& path, Pretrained pretrained,
                     PredictorOptions how) {
  if (!options.output_directory.empty())
    throw UsageError("lists of passages have no predictions: no --output-directory");
  const std::vector<RerankingSample> samples = read_reranking_samples(path, /*keep_incomplete=*/true);
  pretrained.model.task_data = options.changed(text_settings(pretrained.model));
  how.long_texts = options.long_texts;
  const TaskPredictor reranker(pretrained, how);
  keep_large_blocks();
  std::vector<EncodedInput> pairs;
  int64_t cut = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    for (const auto* passages : {&samples[i].positive, &samples[i].negative}) {
      for (const std::string& passage : *passages) {
        try {
          pairs.push_back(reranker.encode({.text = samples[i].query, .second = passage, .pair = true}));
        } catch (const TextError& error) {
          throw DataError(fmt::format("{}:{}: {}", path, i + 1, error.reason));
        }
        cut += pairs.back().cut ? 1 : 0;
      }
    }
  }
  if (cut > 0) {
    fmt::print(
        stderr,
        "bert evaluate: {} of {} pairs have more tokens than the model reads, and were cut; --long refuse refuses "
        "them\n",
        cut, pairs.size());
  }
  const std::vector<double> scores = reranker.scores(pairs);
  RerankingMetrics metrics(TiedDocuments::kReversed);
  auto next = scores.begin();
  for (const RerankingSample& sample : samples) {
    const auto begin = std::exchange(next, next + std::ssize(sample.positive) + std::ssize(sample.negative));
    metrics.add({begin, next}, sample.positive.size());
  }
  print_metrics(metrics.means());
}

}  // namespace bert
