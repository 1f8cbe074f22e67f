#include "app/verbs/model/evaluate_embedding.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <utility>

#include "app/cli/percentage.h"
#include "app/retrieval/pair_metrics.h"
#include "app/retrieval/ranking_metrics.h"
#include "app/retrieval/trec_run.h"
#include "app/retrieval/vector_search.h"
#include "app/system/errors.h"
#include "app/system/machine/memory.h"
#include "app/tasks/text_metrics.h"
#include "app/verbs/output_paths.h"

namespace bert {
namespace {

constexpr Similarity kSimilarities[] = {Similarity::kCosine, Similarity::kDot, Similarity::kEuclidean,
                                        Similarity::kManhattan};

std::string prefix_of(Similarity kind) { return std::string(names_of(kind)[static_cast<size_t>(kind)]) + "_"; }

template <class Number>
std::vector<Number> numbers_of(const torch::Tensor& values) {
  const torch::Tensor all = values.to(c10::CppTypeToScalarType<Number>::value).contiguous();
  return {all.const_data_ptr<Number>(), all.const_data_ptr<Number>() + all.numel()};
}

/// The vectors of the first and of the second texts, [N, D] each.
std::pair<torch::Tensor, torch::Tensor> vectors_of_pairs(TextVectors& vectors, const std::vector<ScoredPair>& pairs) {
  std::vector<std::string> texts;
  for (const ScoredPair& pair : pairs) texts.insert(texts.end(), {pair.first, pair.second});
  const torch::Tensor all = vectors.of(texts).view({std::ssize(pairs), 2, -1});
  return {all.select(1, 0), all.select(1, 1)};
}

void say_cut(std::initializer_list<const TextVectors*> all) {
  int64_t cut = 0, texts = 0;
  for (const TextVectors* vectors : all) {
    cut += vectors->cut();
    texts += vectors->texts();
  }
  if (cut == 0) return;
  fmt::print(stderr,
             "bert evaluate: {} of {} texts have more tokens than the model reads, and were cut; --long refuse refuses "
             "them\n",
             cut, texts);
}

PairKind kind_of(const EvaluateOptions& options, const std::string& path) {
  const std::string& name = options.embedding.kind;
  if (name.empty()) return kind_of_pairs(path);
  return static_cast<PairKind>(std::find(std::begin(kPairKinds), std::end(kPairKinds), name) - std::begin(kPairKinds));
}

/// The table of pairs, whose columns may have other names by data.text_column and the like.
std::vector<ScoredPair> pairs_of(const EvaluateOptions& options, const std::string& path, PairKind kind) {
  PairColumns columns;
  columns.classes = kind == PairKind::kClassification;
  TaskDataConfig names;
  names.text_column = columns.first;
  names.text_pair_column = columns.second;
  names.label_column = columns.classes ? "label" : columns.value;
  names = options.changed(names);
  columns.first = names.text_column;
  columns.second = names.text_pair_column;
  columns.value = names.label_column;
  return read_scored_pairs(path, columns);
}

/// Prints the metrics of retrieval of a directory of BEIR's layout.
void evaluate_beir(const EvaluateOptions& options, const Predictor& predictor, c10::Device device) {
  const EmbeddingEvaluation& wishes = options.embedding;
  const std::string corpus = wishes.beir + "/corpus.jsonl", file = judgments_path(wishes.beir, wishes.split);
  check_outputs({{"--run", wishes.run}}, {{"--beir", corpus}, {"--beir", file}});
  const Judgments judgments = read_judgments(file);
  std::vector<NamedText> queries = read_queries(wishes.beir + "/queries.jsonl");
  std::erase_if(queries, [&](const NamedText& query) { return judgments.of(query.id) == nullptr; });
  if (queries.empty()) throw DataError(fmt::format("{}: no query of it is in {}/queries.jsonl", file, wishes.beir));
  if (queries.size() < judgments.queries.size()) {
    fmt::print(stderr, "bert evaluate: {} of {} judged queries are not in queries.jsonl; they do not count\n",
               judgments.queries.size() - queries.size(), judgments.queries.size());
  }
  const SentenceEncoder& encoder = predictor.sentence_encoder();
  RetrievalModel model{.queries = TextVectors(predictor, query_options(encoder, wishes.prompts)),
                       .documents = TextVectors(predictor, corpus_options(encoder, wishes.prompts)),
                       .similarity = encoder.similarity,
                       .device = device};
  std::vector<Ranking> rankings;
  {
    Percentage percentage;
    rankings = rank_documents(model, queries, judgments, corpus, RankingCutoffs().largest(),
                              [&](double share) { percentage.update("reading the corpus", share); });
  }
  say_cut({&model.queries, &model.documents});
  if (!wishes.run.empty()) write_trec_run(wishes.run, rankings, "bert");
  print_metrics(score_rankings(rankings, judgments, prefix_of(encoder.similarity)));
}

}  // namespace

std::vector<TaskMetric> score_similarities(TextVectors& vectors, const std::vector<ScoredPair>& pairs) {
  const auto [a, b] = vectors_of_pairs(vectors, pairs);
  std::vector<double> scores;
  for (const ScoredPair& pair : pairs) scores.push_back(pair.value);
  std::vector<TaskMetric> metrics;
  for (const Similarity kind : kSimilarities) {
    const std::vector<double> similarities = numbers_of<double>(pairwise_similarity(kind, a, b));
    metrics.push_back({prefix_of(kind) + "pearson", pearson(scores, similarities)});
    metrics.push_back({prefix_of(kind) + "spearman", spearman(scores, similarities)});
  }
  return metrics;
}

std::vector<TaskMetric> score_classes(TextVectors& vectors, const std::vector<ScoredPair>& pairs) {
  const auto [a, b] = vectors_of_pairs(vectors, pairs);
  std::vector<int32_t> labels;
  for (const ScoredPair& pair : pairs) labels.push_back(static_cast<int32_t>(pair.value));
  std::vector<TaskMetric> metrics, largest;
  for (const Similarity kind : kSimilarities) {
    const bool distance = kind == Similarity::kEuclidean || kind == Similarity::kManhattan;
    const torch::Tensor similarities = pairwise_similarity(kind, a, b);
    const ThresholdMetrics best = best_thresholds(numbers_of<float>(distance ? -similarities : similarities), labels,
                                                  /*similar_is_greater=*/!distance);
    const std::vector<TaskMetric> own = named(best, prefix_of(kind));
    metrics.insert(metrics.end(), own.begin(), own.end());
    const std::vector<TaskMetric> plain = named(best, "max_");
    if (largest.empty()) largest = plain;
    for (size_t i = 0; i < plain.size(); ++i) largest[i].value = std::max(largest[i].value, plain[i].value);
  }
  metrics.insert(metrics.end(), largest.begin(), largest.end());
  return metrics;
}

std::vector<TaskMetric> score_reranking(TextVectors& queries, TextVectors& documents,
                                        const std::vector<RerankingSample>& samples) {
  std::vector<std::string> questions, texts;
  for (const RerankingSample& sample : samples) {
    questions.push_back(sample.query);
    texts.insert(texts.end(), sample.positive.begin(), sample.positive.end());
    texts.insert(texts.end(), sample.negative.begin(), sample.negative.end());
  }
  const torch::Tensor of_queries = queries.of(questions), of_texts = documents.of(texts);
  RerankingMetrics metrics;
  int64_t row = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    const int64_t count = std::ssize(samples[i].positive) + std::ssize(samples[i].negative);
    const torch::Tensor query = of_queries[static_cast<int64_t>(i)].unsqueeze(0);
    metrics.add(numbers_of<float>(similarity_matrix(Similarity::kCosine, query, of_texts.narrow(0, row, count))),
                samples[i].positive.size());
    row += count;
  }
  return metrics.means();
}

void evaluate_embedding(const EvaluateOptions& options, const std::string& path, const Pretrained& pretrained,
                        PredictorOptions how) {
  how.long_texts = options.long_texts.value_or(LongTexts::kTruncate);
  const RetrievalPrompts& prompts = options.embedding.prompts;
  const Predictor predictor(pretrained, how);
  keep_large_blocks();
  if (!options.embedding.beir.empty()) return evaluate_beir(options, predictor, how.device);
  const PairKind kind = kind_of(options, path);
  if (kind == PairKind::kReranking) {
    const std::vector<RerankingSample> samples = read_reranking_samples(path);
    TextVectors queries(predictor, query_options(predictor.sentence_encoder(), prompts));
    TextVectors documents(predictor, corpus_options(predictor.sentence_encoder(), prompts));
    const std::vector<TaskMetric> metrics = score_reranking(queries, documents, samples);
    say_cut({&queries, &documents});
    return print_metrics(metrics);
  }
  if (prompts.given()) throw UsageError("the texts of pairs have no query: no prompts");
  const std::vector<ScoredPair> pairs = pairs_of(options, path, kind);
  TextVectors vectors(predictor, {});
  const std::vector<TaskMetric> metrics =
      kind == PairKind::kClassification ? score_classes(vectors, pairs) : score_similarities(vectors, pairs);
  say_cut({&vectors});
  print_metrics(metrics);
}

}  // namespace bert
