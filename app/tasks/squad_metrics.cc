#include "app/tasks/squad_metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "data/io/error.h"
#include "data/text/unicode.h"

namespace bert {
namespace {

constexpr double kPercent = 100;

bool is_ascii_punctuation(char c) { return c > 0 && is_bert_punctuation(static_cast<char32_t>(c)); }

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    const size_t space = text.find(' ');
    words.push_back(text.substr(0, space));
    text.remove_prefix(space == std::string_view::npos ? text.size() : space + 1);
  }
  return words;
}

/// F1 of the words, with repetition.
double word_f1(const std::string& wanted, const std::string& got, bool no_answers) {
  std::vector<std::string_view> a = words_of(wanted), b = words_of(got);
  if (no_answers && (a.empty() || b.empty())) return a == b ? 1 : 0;
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  std::vector<std::string_view> common;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(common));
  if (common.empty()) return 0;
  const auto same = static_cast<double>(common.size());
  const double precision = same / static_cast<double>(b.size()), recall = same / static_cast<double>(a.size());
  return 2 * precision * recall / (precision + recall);
}

/// Means over some of the questions.
struct Mean {
  AnswerScore sum;
  double count = 0;
  void add(const AnswerScore& score) {
    sum.exact_match += score.exact_match;
    sum.f1 += score.f1;
    count += 1;
  }
  void put(const std::string& prefix, const char* exact, std::vector<std::pair<std::string, double>>& metrics) const {
    if (count == 0) return;
    metrics.emplace_back(prefix + exact, kPercent * sum.exact_match / count);
    metrics.emplace_back(prefix + "f1", kPercent * sum.f1 / count);
  }
};

/// All that is known of one question.
struct QuestionScore {
  AnswerScore raw;
  bool has_answers = true, is_empty = false;
};

void put_best_thresholds(const std::vector<SquadQuestion>& questions, const std::vector<QuestionScore>& scores,
                         const NullScores& null_scores, std::vector<std::pair<std::string, double>>& metrics) {
  std::unordered_map<std::string_view, size_t> places;
  for (size_t i = 0; i < questions.size(); ++i) places.emplace(questions[i].id, i);
  std::vector<ScoredAnswer> exact, f1;
  for (const auto& [id, null_score] : null_scores) {
    const auto found = places.find(id);
    if (found == places.end()) continue;
    const QuestionScore& score = scores[found->second];
    exact.push_back({null_score, score.raw.exact_match, score.has_answers, score.is_empty});
    f1.push_back({null_score, score.raw.f1, score.has_answers, score.is_empty});
  }
  const BestThreshold best_exact = find_best_threshold(exact, questions.size());
  const BestThreshold best_f1 = find_best_threshold(f1, questions.size());
  metrics.emplace_back("best_exact", best_exact.score);
  metrics.emplace_back("best_exact_thresh", best_exact.threshold);
  metrics.emplace_back("best_f1", best_f1.score);
  metrics.emplace_back("best_f1_thresh", best_f1.threshold);
}

}  // namespace

std::string normalize_answer(const std::string& text) {
  std::string plain = lower_case(text);
  std::erase_if(plain, is_ascii_punctuation);
  std::string kept, word;
  const auto end_word = [&] {
    kept += word == "a" || word == "an" || word == "the" ? " " : word;
    word.clear();
  };
  for (size_t at = 0; at < plain.size();) {
    const DecodedUtf8 next = decode_utf8(std::string_view(plain).substr(at));
    const std::string_view bytes = std::string_view(plain).substr(at, static_cast<size_t>(next.bytes));
    if (is_word_character(next.value)) {
      word += bytes;
    } else {
      end_word();
      kept += bytes;
    }
    at += bytes.size();
  }
  end_word();
  return collapse_space(kept);
}

AnswerScore score_answer(const SquadQuestion& question, const std::string& answer, bool no_answers) {
  const std::string got = normalize_answer(answer);
  std::vector<std::string> wanted;
  for (const SquadAnswer& each : question.answers) {
    wanted.push_back(normalize_answer(each.text));
    if (no_answers && wanted.back().empty()) wanted.pop_back();
  }
  if (no_answers && wanted.empty()) wanted.emplace_back();
  AnswerScore best;
  for (const std::string& each : wanted) {
    best.exact_match = std::max(best.exact_match, each == got ? 1.0 : 0.0);
    best.f1 = std::max(best.f1, word_f1(each, got, no_answers));
  }
  return best;
}

BestThreshold find_best_threshold(std::vector<ScoredAnswer> answers, size_t questions) {
  double score = 0;
  for (const ScoredAnswer& answer : answers) score += answer.has_answers ? 0 : 1;
  BestThreshold best{.score = score};
  std::stable_sort(answers.begin(), answers.end(),
                   [](const ScoredAnswer& a, const ScoredAnswer& b) { return a.null_score < b.null_score; });
  for (const ScoredAnswer& answer : answers) {
    score += answer.has_answers ? answer.score : answer.is_empty ? 0 : -1;
    if (score > best.score) best = {.score = score, .threshold = answer.null_score, .none = false};
  }
  best.score *= kPercent / static_cast<double>(questions);
  return best;
}

SquadEvaluation evaluate_squad(const SquadDataset& data, const SquadPredictions& predictions, bool no_answers,
                               const NullScores& null_scores, double threshold) {
  const std::unordered_map<std::string, double> nulls(null_scores.begin(), null_scores.end());
  SquadEvaluation result;
  std::vector<QuestionScore> scores;
  Mean all, with_answer, without_answer;
  for (const SquadQuestion& question : data.questions) {
    const auto found = predictions.find(question.id);
    if (found == predictions.end() && no_answers)
      throw DataError(fmt::format("no prediction for the question {}", question.id));
    QuestionScore score;
    score.has_answers = !question.answers.empty();
    if (found == predictions.end()) {
      ++result.unanswered;
    } else {
      score.raw = score_answer(question, found->second, no_answers);
      score.is_empty = found->second.empty();
    }
    AnswerScore final = score.raw;
    if (!null_scores.empty()) {
      const auto null_score = nulls.find(question.id);
      if (null_score == nulls.end()) throw DataError(fmt::format("no null score for the question {}", question.id));
      if (null_score->second > threshold) final = score.has_answers ? AnswerScore{} : AnswerScore{1, 1};
    }
    all.add(final);
    (score.has_answers ? with_answer : without_answer).add(final);
    scores.push_back(score);
  }
  if (result.unanswered == static_cast<int64_t>(data.questions.size()))
    throw DataError("no question of the data set has a prediction; the two belong to different data sets");
  all.put("", "exact_match", result.metrics);
  if (!no_answers) return result;
  result.metrics.emplace_back("exact", kPercent * all.sum.exact_match / all.count);
  result.metrics.emplace_back("total", all.count);
  for (const auto& [prefix, mean] : {std::pair{"HasAns_", &with_answer}, std::pair{"NoAns_", &without_answer}}) {
    mean->put(prefix, "exact", result.metrics);
    if (mean->count > 0) result.metrics.emplace_back(std::string(prefix) + "total", mean->count);
  }
  if (!null_scores.empty()) put_best_thresholds(data.questions, scores, null_scores, result.metrics);
  return result;
}

}  // namespace bert
