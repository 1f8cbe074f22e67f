#include "app/tasks/answer_decoding.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_set>

#include "app/tasks/answer_text.h"

namespace bert {
namespace {

/// The numbers of the `count` largest logits in one of the two columns, best first; equal ones in order.
std::vector<size_t> best_indexes(std::span<const float> logits, size_t column, int64_t count) {
  std::vector<size_t> order(logits.size() / 2);
  std::iota(order.begin(), order.end(), size_t{0});
  const auto kept = std::min(order.size(), static_cast<size_t>(count));
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept), order.end(),
                    [&](size_t a, size_t b) {
                      const float x = logits[2 * a + column], y = logits[2 * b + column];
                      return x > y || (x == y && a < b);
                    });
  order.resize(kept);
  return order;
}

/// Tokens `start` to `end` of sequence `sequence`; 0 and 0 stand for no answer.
struct Candidate {
  size_t sequence = 0, start = 0, end = 0;
  double start_logit = 0, end_logit = 0;
};

class QuestionDecoder {
 public:
  QuestionDecoder(const TaskExamples& examples, const TaskFeatures& features, std::span<const float> logits,
                  const Tokenizer& tokenizer, const TaskDataConfig& config, WithoutCandidate without)
      : examples_(examples),
        features_(features),
        logits_(logits),
        offsets_(features.logit_offsets()),
        tokenizer_(tokenizer),
        config_(config),
        without_(without),
        no_answers_(examples.task.no_answers) {}

  /// Decodes a question, whose sequences are those from `begin` to `end`.
  QuestionAnswers decode(const SquadQuestion& question, size_t begin, size_t end) const {
    std::vector<Candidate> candidates;
    Candidate null;
    double null_score = 0;
    for (size_t sequence = begin; sequence < end; ++sequence) {
      const std::span<const float> logits = logits_of(sequence);
      const double score = static_cast<double>(logits[0]) + static_cast<double>(logits[1]);
      if (sequence == begin || score < null_score) {
        null_score = score;
        null = {.sequence = sequence, .start_logit = logits[0], .end_logit = logits[1]};
      }
      add_candidates(sequence, logits, config_.n_best_size, candidates);
    }
    if (candidates.empty() && without_ == WithoutCandidate::kAnySpan) {
      for (size_t sequence = begin; sequence < end; ++sequence)
        add_candidates(sequence, logits_of(sequence), INT64_MAX, candidates);
    }
    if (no_answers_) candidates.push_back(null);
    std::stable_sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
      return a.start_logit + a.end_logit > b.start_logit + b.end_logit;
    });
    return choose(question, candidates, null);
  }

 private:
  [[nodiscard]] std::span<const float> logits_of(size_t sequence) const {
    return logits_.subspan(static_cast<size_t>(offsets_[sequence]),
                           static_cast<size_t>(offsets_[sequence + 1] - offsets_[sequence]));
  }

  /// Adds the spans whose start and end are among the `count` best.
  void add_candidates(size_t sequence, std::span<const float> logits, int64_t count,
                      std::vector<Candidate>& candidates) const {
    const SquadWindow& window = features_.windows[sequence];
    const auto first = static_cast<size_t>(window.first_token), last = first + window.words.size() - 1;
    const std::vector<size_t> ends = best_indexes(logits, 1, count);
    for (const size_t start : best_indexes(logits, 0, count)) {
      if (start < first || start > last || !window.max_context[start - first]) continue;
      for (const size_t end : ends) {
        if (end < start || end > last || static_cast<int64_t>(end - start) >= config_.max_answer_length) continue;
        candidates.push_back({sequence, start, end, logits[2 * start], logits[2 * end + 1]});
      }
    }
  }

  /// The probability of token `place` as start (column 0) or end (1) among the context's tokens and [CLS].
  [[nodiscard]] double probability_of(size_t sequence, size_t place, size_t column) const {
    const std::span<const float> logits = logits_of(sequence);
    const auto first = static_cast<size_t>(features_.windows[sequence].first_token);
    const auto value = [&](size_t token) { return static_cast<double>(logits[2 * token + column]); };
    double sum = std::exp(value(0) - value(place));
    for (size_t token = first; token < first + features_.windows[sequence].words.size(); ++token)
      sum += std::exp(value(token) - value(place));
    return 1 / sum;
  }

  /// The answer of a candidate, without its logits.
  [[nodiscard]] ScoredSpan answer_of(const SquadQuestion& question, const Candidate& candidate) const {
    const SquadWindow& window = features_.windows[candidate.sequence];
    const SquadParagraph& paragraph = examples_.squad.paragraphs[static_cast<size_t>(question.paragraph)];
    const std::vector<int32_t>& ids = features_.sequences[candidate.sequence].input_ids;
    std::vector<std::string> tokens;
    for (size_t i = candidate.start; i <= candidate.end; ++i) tokens.push_back(tokenizer_.vocabulary().token(ids[i]));
    const auto first = static_cast<size_t>(window.first_token);
    const int32_t first_word = window.words[candidate.start - first], last_word = window.words[candidate.end - first];
    std::string original;
    std::vector<int64_t> places;  // in the context, of each byte of `original`
    for (int32_t i = first_word; i <= last_word; ++i) {
      const SquadWord& word = paragraph.words[static_cast<size_t>(i)];
      if (i > first_word) {
        original += ' ';
        places.push_back(word.begin - 1);
      }
      original.append(paragraph.context, static_cast<size_t>(word.begin), static_cast<size_t>(word.end - word.begin));
      for (int64_t place = word.begin; place < word.end; ++place) places.push_back(place);
    }
    ScoredSpan answer{.text = answer_text(tokens, original, tokenizer_)};
    if (answer.text.empty()) return answer;
    const size_t begin = std::min(original.find(answer.text), original.size() - answer.text.size());
    answer.begin = places[begin];
    answer.end = places[begin + answer.text.size() - 1] + 1;
    return answer;
  }

  [[nodiscard]] QuestionAnswers choose(const SquadQuestion& question, const std::vector<Candidate>& candidates,
                                       const Candidate& null) const {
    constexpr int64_t kMostTries = 50;  // for an answer that a caller waits for: a context may repeat one word
    QuestionAnswers answers;
    std::unordered_set<std::string> seen;
    int64_t tried = 0;
    for (const Candidate& candidate : candidates) {
      if (static_cast<int64_t>(answers.n_best.size()) >= config_.n_best_size) break;
      if (without_ == WithoutCandidate::kAnySpan && tried++ >= kMostTries * config_.n_best_size) break;
      ScoredSpan answer = candidate.start > 0 ? answer_of(question, candidate) : ScoredSpan();
      if (!seen.insert(answer.text).second) continue;
      answer.start_logit = candidate.start_logit;
      answer.end_logit = candidate.end_logit;
      if (candidate.start > 0)
        answer.span_probability = probability_of(candidate.sequence, candidate.start, 0) *
                                  probability_of(candidate.sequence, candidate.end, 1);
      answers.n_best.push_back(std::move(answer));
    }
    if (no_answers_ && !seen.contains(""))
      answers.n_best.push_back({.text = "", .start_logit = null.start_logit, .end_logit = null.end_logit});
    if (answers.n_best.empty())
      answers.n_best.push_back({.text = without_ == WithoutCandidate::kOfGoogle ? "empty" : ""});
    put_probabilities(answers.n_best);
    const auto best = std::find_if(answers.n_best.begin(), answers.n_best.end(),
                                   [](const ScoredSpan& span) { return !span.text.empty(); });
    if (no_answers_) answers.null_score_diff = null.start_logit + null.end_logit;
    if (best == answers.n_best.end()) return answers;
    answers.best = best->text;
    if (no_answers_) answers.null_score_diff -= best->start_logit + best->end_logit;
    return answers;
  }

  static void put_probabilities(std::vector<ScoredSpan>& n_best) {
    double highest = n_best.front().score(), sum = 0;
    for (const ScoredSpan& span : n_best) highest = std::max(highest, span.score());
    for (ScoredSpan& span : n_best) sum += span.probability = std::exp(span.score() - highest);
    for (ScoredSpan& span : n_best) span.probability /= sum;
  }

  const TaskExamples& examples_;
  const TaskFeatures& features_;
  const std::span<const float> logits_;
  const std::vector<int64_t> offsets_;
  const Tokenizer& tokenizer_;
  const TaskDataConfig& config_;
  const WithoutCandidate without_;
  const bool no_answers_;
};

}  // namespace

const std::string& QuestionAnswers::at_threshold(double threshold) const {
  static const std::string kNone;
  return null_score_diff > threshold ? kNone : best;
}

std::vector<QuestionAnswers> decode_answers(const TaskExamples& examples, const TaskFeatures& features,
                                            std::span<const float> logits, const Tokenizer& tokenizer,
                                            const TaskDataConfig& config, WithoutCandidate without) {
  const QuestionDecoder decoder(examples, features, logits, tokenizer, config, without);
  std::vector<QuestionAnswers> answers;
  size_t begin = 0;
  for (size_t i = 0; i < examples.squad.questions.size(); ++i) {
    size_t end = begin;
    while (end < features.sequences.size() && features.sequences[end].example == static_cast<int32_t>(i)) ++end;
    answers.push_back(decoder.decode(examples.squad.questions[i], begin, end));
    begin = end;
  }
  return answers;
}

}  // namespace bert
