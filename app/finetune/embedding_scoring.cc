#include "app/finetune/embedding_scoring.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <unordered_map>
#include <utility>

#include "app/inference/sentence_pooling.h"
#include "app/retrieval/ranking_metrics.h"
#include "app/tasks/text_metrics.h"
#include "data/tasks/embedding_data.h"

namespace bert {
namespace {

TaskScores score_pairs(const TaskExamples& rows, const at::Tensor& unit) {
  const at::Tensor cosines = (unit.select(1, 0) * unit.select(1, 1)).sum(-1).to(torch::kDouble).contiguous();
  const double* const first = cosines.const_data_ptr<double>();
  const std::vector<double> predicted(first, first + cosines.numel());
  std::vector<double> labels;
  std::string table = "index\tprediction\n";
  for (size_t i = 0; i < rows.texts.size(); ++i) {
    labels.push_back(rows.texts[i].value);
    fmt::format_to(std::back_inserter(table), "{}\t{:.6f}\n", rows.texts[i].id, predicted[i]);
  }
  return {.metrics = {{"cosine_spearman", spearman(labels, predicted)}, {"cosine_pearson", pearson(labels, predicted)}},
          .outputs = {{rows.source.output, std::move(table)}}};
}

/// The texts of a file, each once, and the anchors with their positives.
struct Search {
  std::vector<int64_t> documents;  // places among the vectors of the file, of each distinct text behind an anchor
  std::vector<int64_t> queries;    // the same of each distinct anchor
  std::vector<std::set<int64_t>> relevant;  // of each query, numbers of documents
};

Search search_of(const TaskExamples& rows) {
  Search search;
  std::unordered_map<std::string, int64_t> documents, queries;
  const int64_t columns = texts_in_row(rows);
  const auto number_of_text = [](auto& numbers, std::vector<int64_t>& places, const std::string& text, int64_t place) {
    const auto [found, is_new] = numbers.emplace(text, std::ssize(places));
    if (is_new) places.push_back(place);
    return found->second;
  };
  for (size_t i = 0; i < rows.texts.size(); ++i) {
    const TextExample& row = rows.texts[i];
    const int64_t place = static_cast<int64_t>(i) * columns;
    const int64_t query = number_of_text(queries, search.queries, row.text, place);
    search.relevant.resize(search.queries.size());
    search.relevant[static_cast<size_t>(query)].insert(
        number_of_text(documents, search.documents, row.text_pair, place + 1));
    for (size_t c = 0; c < row.choices.size(); ++c)
      number_of_text(documents, search.documents, row.choices[c], place + 2 + static_cast<int64_t>(c));
  }
  return search;
}

TaskScores score_search(const TaskExamples& rows, const at::Tensor& unit) {
  constexpr int64_t kBlock = 256, kDeepest = 10;
  const Search search = search_of(rows);
  const at::Tensor all = unit.flatten(0, 1);
  const at::Tensor documents = all.index_select(0, torch::tensor(search.documents));
  const at::Tensor queries = all.index_select(0, torch::tensor(search.queries));
  const int64_t deepest = std::min<int64_t>(kDeepest, documents.size(0));
  RankingMetrics metrics({.accuracy = {1}, .precision_recall = {}, .ndcg = {kDeepest}, .mrr = {kDeepest}, .map = {}});
  for (int64_t begin = 0; begin < queries.size(0); begin += kBlock) {
    const at::Tensor block = queries.narrow(0, begin, std::min(kBlock, queries.size(0) - begin));
    const at::Tensor best = std::get<1>(block.mm(documents.t()).topk(deepest, 1)).contiguous();
    for (int64_t i = 0; i < best.size(0); ++i) {
      const std::set<int64_t>& relevant = search.relevant[static_cast<size_t>(begin + i)];
      std::vector<bool> hits;
      for (int64_t k = 0; k < deepest; ++k)
        hits.push_back(relevant.contains(best.const_data_ptr<int64_t>()[i * deepest + k]));
      metrics.add(hits, std::ssize(relevant));
    }
  }
  TaskScores scores;
  const std::vector<TaskMetric> found = metrics.means("cosine_");
  for (const std::string& name : embedding_metrics(/*has_labels=*/false))
    scores.metrics.push_back(*std::ranges::find(found, name, &TaskMetric::name));
  return scores;
}

}  // namespace

TaskScores score_embeddings(const TaskExamples& rows, const at::Tensor& vectors) {
  const torch::NoGradGuard no_grad;
  const at::Tensor unit = normalized(vectors);
  return rows.has_labels ? score_pairs(rows, unit) : score_search(rows, unit);
}

std::vector<std::string> embedding_metrics(bool has_labels) {
  return has_labels ? std::vector<std::string>{"cosine_spearman", "cosine_pearson"}
                    : std::vector<std::string>{"cosine_ndcg@10", "cosine_mrr@10", "cosine_accuracy@1"};
}

}  // namespace bert
