#include "app/inference/task_predictor.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "app/inference/input_wishes.h"
#include "app/tasks/answer_decoding.h"
#include "data/io/error.h"
#include "data/loader/task_loader.h"
#include "data/tasks/text_windows.h"
#include "data/text/unicode.h"
#include "model/windows.h"

namespace bert {
namespace {

std::vector<double> softmax(std::span<const float> logits) {
  const auto largest = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  std::vector<double> result;
  for (const float logit : logits) result.push_back(std::exp(static_cast<double>(logit) - largest));
  const double sum = std::accumulate(result.begin(), result.end(), 0.0);
  for (double& value : result) value /= sum;
  return result;
}

/// The number of characters of UTF-8.
int64_t characters_of(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](unsigned char c) { return (c & 0xC0U) != 0x80U; });
}

/// The definition of the model's task, with its labels.
TaskDefinition definition_of(const Pretrained& pretrained) {
  TaskDefinition task = task_definition(pretrained.model.task);
  task.labels = pretrained.model.labels;
  return task;
}

/// The input as the only example of the task.
TaskExamples example_of(const TaskDefinition& task, const TaskInput& input) {
  TaskExamples examples;
  examples.task = task;
  if (task.kind == TaskKind::kTokenClassification) {
    examples.sentences.emplace_back().text = input.text;
  } else if (task.kind == TaskKind::kQuestionAnswering) {
    SquadParagraph& paragraph = examples.squad.paragraphs.emplace_back();
    paragraph.context = input.text;
    paragraph.words = split_squad_words(input.text);
    if (paragraph.words.empty()) throw DataError("question-answering: a context has no words");
    examples.squad.questions.emplace_back().text = input.second;
  } else {
    TextExample& example = examples.texts.emplace_back();
    example.text = input.text;
    example.text_pair = input.second;
  }
  return examples;
}

/// Gives the words their parts of the text.
void put_words(std::string_view text, std::vector<WordLabel>& words) {
  size_t byte = 0;
  int64_t character = 0;
  const auto go_to = [&](int64_t wanted) {
    for (; character < wanted; ++character) byte += static_cast<size_t>(decode_utf8(text.substr(byte)).bytes);
    return byte;
  };
  for (WordLabel& word : words) {
    const size_t begin = go_to(word.begin), end = go_to(word.end);
    word.word = text.substr(begin, end - begin);
  }
}

/// The features of all inputs.
TaskFeatures joined(const TaskDefinition& task, std::span<const EncodedInput> inputs) {
  TaskFeatures all;
  all.kind = task.kind;
  all.num_outputs = task.num_outputs();
  all.start_markers = !inputs.empty() && inputs.front().features.start_markers;
  const bool any_windows =
      std::ranges::any_of(inputs, [](const EncodedInput& input) { return !input.features.text_ends.empty(); });
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TaskFeatures& one = inputs[i].features;
    for (const TaskSequence& sequence : one.sequences)
      all.sequences.emplace_back(sequence).example = static_cast<int32_t>(i);
    all.windows.insert(all.windows.end(), one.windows.begin(), one.windows.end());
    if (any_windows) all.text_ends.push_back(std::ssize(all.sequences));
  }
  return all;
}

}  // namespace

int64_t EncodedInput::tokens() const {
  int64_t sum = 0;
  for (const TaskSequence& sequence : features.sequences) sum += std::ssize(sequence.input_ids);
  return sum;
}

namespace {

/// Calls visit(first, batch) for batches of `options`, of the sequences from `first` on. `group` in a row stay together.
template <class Visit>
void for_each_batch(const TaskFeatures& features, int64_t group, const PredictorOptions& options, const Visit& visit) {
  const auto all = std::ssize(features.sequences);
  int64_t end = 0;
  for (int64_t begin = 0; begin < all; begin = end) {
    std::vector<NumberedTaskSequence> members;
    int64_t tokens = 0;
    for (end = begin; end < all && end - begin < options.batch_size * group; end += group) {
      const size_t before = members.size();
      for (int64_t i = end; i < end + group; ++i) {
        members.push_back({i, &features.sequences[static_cast<size_t>(i)]});
        tokens += std::ssize(members.back().sequence->input_ids);
      }
      if (end > begin && tokens > options.batch_tokens) {
        members.resize(before);
        break;
      }
    }
    visit(begin, pack_sequences(features, members).to(options.device));
  }
}

torch::Tensor on_cpu(const torch::Tensor& values) { return values.to(torch::kCPU, torch::kFloat).contiguous(); }

/// The logits of texts. Windows are computed as sequences of their own, so a text may have any number of them.
std::vector<float> text_logits(const TaskInference& model, const TaskFeatures& features, WindowPooling pooling,
                               const PredictorOptions& options) {
  std::vector<torch::Tensor> logits, scores;
  for_each_batch(features, /*group=*/1, options, [&](int64_t, const PackedBatch& batch) {
    const TaskInference::WindowLogits computed = model.of_windows(batch);
    logits.push_back(on_cpu(computed.logits));
    if (computed.scores.defined()) scores.push_back(on_cpu(computed.scores));
  });
  if (pooling == WindowPooling::kAttention && scores.empty())
    throw DataError("window_pooling: is attention, and the model has no weights window_attention");
  const torch::Tensor all = torch::cat(logits), weights = scores.empty() ? torch::Tensor() : torch::cat(scores);
  std::vector<float> flat;
  for (int64_t text = 0; text < features.units(1); ++text) {
    const auto [begin, end] = features.unit(text, 1);
    const torch::Tensor joined =
        join_windows(pooling, all, torch::arange(begin, end, torch::kLong).unsqueeze(0), weights);
    flat.insert(flat.end(), joined.const_data_ptr<float>(), joined.const_data_ptr<float>() + joined.numel());
  }
  return flat;
}

}  // namespace

std::vector<float> task_logits(const TaskInference& model, const TaskFeatures& features, int64_t choices,
                               WindowPooling pooling, const PredictorOptions& options) {
  const torch::NoGradGuard no_grad;
  if (!features.text_ends.empty()) return text_logits(model, features, pooling, options);
  const std::vector<int64_t> offsets = features.logit_offsets();
  std::vector<float> flat(static_cast<size_t>(offsets.back()));
  for_each_batch(features, choices, options, [&](int64_t begin, const PackedBatch& batch) {
    const torch::Tensor logits = on_cpu(model.forward(batch, choices));
    std::copy_n(logits.const_data_ptr<float>(), logits.numel(), flat.begin() + offsets[static_cast<size_t>(begin)]);
  });
  return flat;
}

TaskPredictor::TaskPredictor(const Pretrained& pretrained, const PredictorOptions& options)
    : options_(options),
      multi_label_(pretrained.model.multi_label),
      logit_scores_(pretrained.model.logit_scores),
      config_(text_settings(pretrained.model)),
      tokenizer_(pretrained.tokenizer),
      model_(pretrained, options) {
  task_ = definition_of(pretrained);
  if (kind() == TaskKind::kQuestionAnswering) config_.long_texts = LongTexts::kTruncate;  // contexts have windows
  config_.doc_stride = options.stride.value_or(config_.doc_stride);
  config_.window_pooling = options.window_pooling.value_or(config_.window_pooling);
}

EncodedInput TaskPredictor::encode(TaskInput input, const AnswerOptions& options) const {
  EncodedInput encoded;
  TaskFeatures& features = encoded.features;
  const std::optional<LongTexts> wish = options.long_texts ? options.long_texts : options_.long_texts;
  TaskDataConfig config = config_;
  config.long_texts = wish.value_or(config.long_texts);
  config.cut_at_begin = options.cut_at_begin.value_or(config.cut_at_begin);
  config.most_window_tokens = options.most_window_tokens;
  if (options.max_second_tokens > 0)
    input.second = first_tokens(*tokenizer_, std::move(input.second), options.max_second_tokens);
  try {
    set_windows(kind(), input.second, options, *tokenizer_, config);
    features = make_features(example_of(task_, input), *tokenizer_, config, /*for_training=*/false);
  } catch (const TooManyTokens&) {
    throw;
  } catch (const DataError& error) {
    throw TextError(0, error.what());
  }
  if (input.pair) {
    for (TaskSequence& sequence : features.sequences)
      features.cut += end_pair(sequence, tokenizer_->vocabulary().sep_id(), config.max_seq_length);
  }
  const bool too_long = features.cut > 0 || features.sequences.size() > 1;
  if (too_long && config.long_texts == LongTexts::kRefuse) {
    const bool question = features.cut > 0 && kind() == TaskKind::kQuestionAnswering;
    throw TextError(
        0, fmt::format("the {} has more than {} tokens, which the model reads{}; shorten it",
                       question ? "question" : "text", question ? config.max_query_length : config.max_seq_length,
                       question ? "" : " at once"));
  }
  if (wish == LongTexts::kTruncate) {
    features.sequences.resize(std::min<size_t>(features.sequences.size(), 1));
    features.windows.resize(std::min<size_t>(features.windows.size(), 1));
    encoded.cut = too_long;
  } else {
    encoded.cut = features.cut > 0;
  }
  encoded.input = std::move(input);
  encoded.options = options;
  return encoded;
}

std::vector<EncodedInput> TaskPredictor::encode_all(const std::vector<TaskInput>& inputs,
                                                    const AnswerOptions& options) const {
  std::vector<EncodedInput> all;
  for (const TaskInput& input : inputs) {
    try {
      all.push_back(encode(input, options));
    } catch (const TextError& error) {
      throw TextError(all.size(), error.reason);
    }
  }
  return all;
}

std::vector<float> TaskPredictor::logits_of(const TaskFeatures& features) const {
  return task_logits(model_, features, /*choices=*/1, config_.window_pooling, options_);
}

std::vector<TextScores> TaskPredictor::classify(const std::vector<TaskInput>& inputs,
                                                const AnswerOptions& options) const {
  return classes_of(encode_all(inputs, options));
}

std::vector<TaggedText> TaskPredictor::tag(const std::vector<TaskInput>& inputs, const AnswerOptions& options) const {
  return tags_of(encode_all(inputs, options));
}

std::vector<std::vector<ExtractedAnswer>> TaskPredictor::answer(const std::vector<TaskInput>& inputs,
                                                                const AnswerOptions& options) const {
  return answers_of(encode_all(inputs, options));
}

/// The scores of one text. Source: transformers' text_classification.py (TextClassificationPipeline.postprocess).
TextScores TaskPredictor::scores_of(std::span<const float> logits, const AnswerOptions& options) const {
  FunctionToApply function = options.function_to_apply;
  const bool numbers = task_.kind == TaskKind::kRegression;
  if (function == FunctionToApply::kDefault) {
    function = numbers ? FunctionToApply::kNone : multi_label_ ? FunctionToApply::kSigmoid : FunctionToApply::kSoftmax;
  }
  std::vector<double> values(logits.begin(), logits.end());
  if (function == FunctionToApply::kSoftmax) values = softmax(logits);
  if (function == FunctionToApply::kSigmoid) {
    for (double& value : values) value = 1 / (1 + std::exp(-value));
  }
  TextScores result;
  for (size_t i = 0; i < values.size(); ++i)
    result.scores.push_back({.label = task_.labels.empty() ? "" : task_.labels.at(i), .score = values[i]});
  if (numbers) {
    result.form = TextScores::Form::kNumbers;
    return result;
  }
  std::stable_sort(result.scores.begin(), result.scores.end(),
                   [](const auto& x, const auto& y) { return x.score > y.score; });
  const auto all = std::ssize(result.scores);
  const int64_t top_k = options.top_k.value_or(multi_label_ ? all : 1);
  result.form = top_k > 1 || multi_label_ ? TextScores::Form::kList : TextScores::Form::kBest;
  result.scores.resize(static_cast<size_t>(std::min(all, top_k)));
  return result;
}

std::vector<TextScores> TaskPredictor::classes_of(std::span<const EncodedInput> inputs) const {
  const std::vector<float> logits = logits_of(joined(task_, inputs));
  const size_t columns = logits.size() / std::max<size_t>(1, inputs.size());
  std::vector<TextScores> answers;
  for (size_t i = 0; i < inputs.size(); ++i)
    answers.push_back(scores_of(std::span(logits).subspan(i * columns, columns), inputs[i].options));
  return answers;
}

bool TaskPredictor::is_reranker() const {
  return has_pooler(kind()) && kind() != TaskKind::kMultipleChoice && task_.num_outputs() == 1;
}

std::vector<double> TaskPredictor::scores(std::span<const EncodedInput> pairs) const {
  TORCH_CHECK(is_reranker(), "scores: a reranker has one output, this model has ", task_.num_outputs(), ".");
  const std::vector<float> logits = logits_of(joined(task_, pairs));
  std::vector<double> scores;
  for (size_t i = 0; i < pairs.size(); ++i) {
    const auto logit = static_cast<double>(logits[i]);
    const FunctionToApply wish = pairs[i].options.function_to_apply;
    const bool raw = wish == FunctionToApply::kNone || (wish == FunctionToApply::kDefault && logit_scores_);
    scores.push_back(raw ? logit : 1 / (1 + std::exp(-logit)));
  }
  return scores;
}

std::vector<RankedPassage> TaskPredictor::rerank(const std::string& query, const std::vector<std::string>& passages,
                                                 const AnswerOptions& options) const {
  std::vector<TaskInput> pairs;
  for (const std::string& passage : passages) pairs.push_back({.text = query, .second = passage, .pair = true});
  std::vector<RankedPassage> ranked;
  for (const double score : scores(encode_all(pairs, options))) ranked.push_back({ranked.size(), score});
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& x, const auto& y) { return x.score > y.score; });
  ranked.resize(std::min(ranked.size(), static_cast<size_t>(options.top_k.value_or(std::ssize(ranked)))));
  return ranked;
}

/// The tokens of the text with their probabilities. `logits`: of the sequences of the input.
std::vector<TaggedToken> TaskPredictor::tokens_of(const EncodedInput& input, std::span<const float> logits) const {
  const std::vector<int64_t> offsets = input.features.logit_offsets();
  const size_t columns = task_.labels.size();
  const std::string_view text = input.input.text;
  std::vector<TaggedToken> tokens;
  std::vector<TextSpan> spans;
  for (size_t i = 0; i < input.features.sequences.size(); ++i) {
    const TaskSequence& sequence = input.features.sequences[i];
    for (size_t token = 1; token + 1 < sequence.input_ids.size(); ++token) {  // without [CLS] and [SEP]
      if (!input.features.windows.empty() && !input.features.windows[i].max_context[token - 1]) continue;
      const int32_t id = sequence.input_ids[token];
      const TextSpan span = sequence.token_spans[token];
      const std::string part(text.substr(static_cast<size_t>(span.begin), static_cast<size_t>(span.end - span.begin)));
      const std::string decoded = tokenizer_->decode({id});
      tokens.push_back({.index = static_cast<int64_t>(token),
                        .piece = id == tokenizer_->vocabulary().unk_id() ? part : tokenizer_->vocabulary().token(id),
                        .text = decoded.empty() ? part : decoded,
                        .begins_word = sequence.token_words[token] >= 0,
                        .scores = softmax(logits.subspan(static_cast<size_t>(offsets[i]) + token * columns, columns))});
      spans.push_back(span);
    }
  }
  const std::vector<TextSpan> characters = character_spans(text, spans);
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i].begin = characters[i].begin;
    tokens[i].end = characters[i].end;
  }
  return tokens;
}

std::vector<TaggedText> TaskPredictor::tags_of(std::span<const EncodedInput> inputs) const {
  const std::vector<float> logits = logits_of(joined(task_, inputs));
  std::vector<TaggedText> answers;
  size_t begin = 0;
  for (const EncodedInput& input : inputs) {
    const auto size = static_cast<size_t>(input.features.logit_offsets().back());
    const std::vector<TaggedToken> tokens = tokens_of(input, std::span(logits).subspan(begin, size));
    begin += size;
    TaggedText& answer = answers.emplace_back();
    answer.entities = group_entities(tokens, task_.labels, input.options.aggregation, input.options.ignore_labels);
    for (const TaggedToken& token : tokens) {
      if (token.begins_word) {
        const size_t best = best_of(token.scores);
        answer.words.push_back(
            {.word = {}, .label = task_.labels[best], .score = token.scores[best], .begin = token.begin});
      }
      answer.words.back().end = token.end;
    }
    put_words(input.input.text, answer.words);
  }
  return answers;
}

std::vector<ExtractedAnswer> TaskPredictor::answers_of(const EncodedInput& input, std::span<const float> logits) const {
  const AnswerOptions& options = input.options;
  const int64_t top_k = options.top_k.value_or(1);
  TaskDataConfig config = config_;
  config.n_best_size = std::max(config.n_best_size, top_k);
  config.max_answer_length = options.max_answer_len.value_or(config.max_answer_length);
  TaskDefinition task = task_;
  task.no_answers = options.handle_impossible_answer.value_or(task.no_answers);
  const QuestionAnswers found = decode_answers(example_of(task, input.input), input.features, logits, *tokenizer_,
                                               config, WithoutCandidate::kAnySpan)
                                    .front();
  const std::string& text = found.at_threshold(config.null_score_diff_threshold);
  const std::string_view context = input.input.text;
  std::vector<ExtractedAnswer> best = {{.answer = ""}};
  for (const ScoredSpan& span : found.n_best) {
    const auto begin = static_cast<size_t>(span.begin), end = static_cast<size_t>(span.end);
    const ExtractedAnswer answer = {.answer = std::string(context.substr(begin, end - begin)),
                                    .score = span.probability,
                                    .span_probability = span.span_probability,
                                    .begin = characters_of(context.substr(0, begin)),
                                    .end = characters_of(context.substr(0, end))};
    if (span.text == text) {
      best[0] = answer;
    } else {
      best.push_back(answer);
    }
  }
  best.resize(std::min(best.size(), static_cast<size_t>(top_k)));
  return best;
}

std::vector<std::vector<ExtractedAnswer>> TaskPredictor::answers_of(std::span<const EncodedInput> inputs) const {
  const std::vector<float> logits = logits_of(joined(task_, inputs));
  std::vector<std::vector<ExtractedAnswer>> answers;
  size_t begin = 0;
  for (const EncodedInput& input : inputs) {
    const auto size = static_cast<size_t>(input.features.logit_offsets().back());
    answers.push_back(answers_of(input, std::span(logits).subspan(begin, size)));
    begin += size;
  }
  return answers;
}

}  // namespace bert
