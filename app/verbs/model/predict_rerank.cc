#include "app/verbs/model/predict_rerank.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "app/verbs/model/predict_task.h"
#include "data/io/error.h"

namespace bert {

void add_rerank_options(CLI::App& app, std::string& query, AnswerOptions& answers) {
  app.add_option("--query", query,
                 "rerank: the query of every TEXT, a passage; without it lines are QUERY<tab>PASSAGE");
  app.add_flag_callback(
      "--raw-scores", [&answers] { answers.function_to_apply = FunctionToApply::kNone; },
      "rerank: logits instead of scores");
}

TaskInput rerank_pair(const InputText& text, const std::string& query, const std::string& pair_field) {
  TaskInput pair{.text = query, .second = text.text};
  if (!pair_field.empty()) {
    pair.text = task_input(text, "", pair_field).second;
  } else if (query.empty()) {
    const size_t tab = text.text.find('\t');
    if (tab == std::string::npos || text.text.find('\t', tab + 1) != std::string::npos)
      throw DataError("want QUERY<tab>PASSAGE, or --query with a passage a line");
    pair = {.text = text.text.substr(0, tab), .second = text.text.substr(tab + 1)};
  }
  if (pair.text.empty()) throw DataError("the query is empty");
  if (pair.second.empty()) throw DataError("the passage is empty");
  pair.pair = true;
  return pair;
}

std::vector<nlohmann::ordered_json> ranked(const std::vector<InputText>& texts, std::span<const EncodedInput> pairs,
                                           const std::vector<double>& scores) {
  std::map<std::string, size_t> numbers;  // of the queries
  std::vector<size_t> query;              // of each pair
  for (const EncodedInput& pair : pairs)
    query.push_back(numbers.emplace(pair.input.text, numbers.size()).first->second);
  std::vector<size_t> order(pairs.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t x, size_t y) {
    return query[x] != query[y] ? query[x] < query[y] : scores[x] > scores[y];
  });
  std::vector<nlohmann::ordered_json> answers;
  std::vector<int64_t> given(numbers.size(), 0);  // passages of each query
  for (const size_t i : order) {
    const EncodedInput& pair = pairs[i];
    if (pair.options.top_k && given[query[i]] == *pair.options.top_k) continue;
    ++given[query[i]];
    nlohmann::ordered_json& answer = answers.emplace_back(texts[i].object);
    if (answer.is_null()) answer = {{"query", pair.input.text}, {"text", pair.input.second}};
    answer["score"] = scores[i];
  }
  return answers;
}

}  // namespace bert
