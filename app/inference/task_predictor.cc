#include "app/inference/task_predictor.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <span>
#include <sstream>
#include <string_view>
#include <utility>

#include "app/tasks/answer_decoding.h"
#include "data/io/error.h"
#include "data/loader/task_loader.h"

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

/// The characters of `text` where each of its words begins.
std::vector<int64_t> begins_of(std::string_view text, const std::vector<std::string>& words) {
  std::vector<int64_t> begins;
  int64_t characters = 0;
  size_t byte = 0;
  for (const std::string& word : words) {
    const size_t begin = text.find(word, byte);
    characters += characters_of(text.substr(byte, begin - byte));
    begins.push_back(characters);
    characters += characters_of(word);
    byte = begin + word.size();
  }
  return begins;
}

/// The definition of the model's task, with its labels.
TaskDefinition definition_of(const Pretrained& pretrained) {
  TaskDefinition task = task_definition(pretrained.model.task);
  task.labels = pretrained.model.labels;
  return task;
}

/// The words of a text of token classification.
std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), std::istream_iterator<std::string>()};
}

TaskExamples examples_of(const TaskDefinition& task, std::span<const TaskInput> inputs) {
  TaskExamples examples;
  examples.task = task;
  for (const TaskInput& input : inputs) {
    if (task.kind == TaskKind::kTokenClassification) {
      examples.sentences.emplace_back().words = words_of(input.text);
    } else if (task.kind == TaskKind::kQuestionAnswering) {
      SquadParagraph& paragraph = examples.squad.paragraphs.emplace_back();
      paragraph.context = input.text;
      paragraph.words = split_squad_words(input.text);
      if (paragraph.words.empty()) throw DataError("question-answering: a context has no words");
      SquadQuestion& question = examples.squad.questions.emplace_back();
      question.id = std::to_string(examples.squad.questions.size());
      question.text = input.second;
      question.paragraph = static_cast<int32_t>(examples.squad.paragraphs.size() - 1);
    } else {
      TextExample& example = examples.texts.emplace_back();
      example.text = input.text;
      example.text_pair = input.second;
    }
  }
  return examples;
}

/// The features of all inputs.
TaskFeatures joined(const TaskDefinition& task, std::span<const EncodedInput> inputs) {
  TaskFeatures all;
  all.kind = task.kind;
  all.num_outputs = task.num_outputs();
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TaskFeatures& one = inputs[i].features;
    for (const TaskSequence& sequence : one.sequences)
      all.sequences.emplace_back(sequence).example = static_cast<int32_t>(i);
    all.windows.insert(all.windows.end(), one.windows.begin(), one.windows.end());
  }
  return all;
}

}  // namespace

int64_t EncodedInput::tokens() const {
  int64_t sum = 0;
  for (const TaskSequence& sequence : features.sequences) sum += std::ssize(sequence.input_ids);
  return sum;
}

std::vector<float> task_logits(const TaskInference& model, const TaskFeatures& features, int64_t choices,
                               const PredictorOptions& options) {
  const torch::NoGradGuard no_grad;
  const std::vector<int64_t> offsets = features.logit_offsets();
  std::vector<float> flat(static_cast<size_t>(offsets.back()));
  const int64_t units = std::ssize(features.sequences) / choices;
  int64_t end = 0;
  for (int64_t begin = 0; begin < units; begin = end) {
    int64_t tokens = 0;
    for (end = begin; end < units && end - begin < options.batch_size; ++end) {
      for (int64_t i = end * choices; i < (end + 1) * choices; ++i)
        tokens += std::ssize(features.sequences[static_cast<size_t>(i)].input_ids);
      if (end > begin && tokens > options.batch_tokens) break;
    }
    std::vector<int64_t> members(static_cast<size_t>(end - begin));
    std::iota(members.begin(), members.end(), begin);
    const PackedBatch batch = pack_task_sequences(features, choices, members, members).to(options.device);
    const torch::Tensor logits = model.forward(batch, choices).to(torch::kCPU, torch::kFloat).contiguous();
    const int64_t first = offsets[static_cast<size_t>(begin * choices)];
    std::copy_n(logits.const_data_ptr<float>(), logits.numel(), flat.begin() + first);
  }
  return flat;
}

TaskPredictor::TaskPredictor(const Pretrained& pretrained, const PredictorOptions& options)
    : options_(options),
      config_(text_settings(pretrained.model)),
      tokenizer_(pretrained.tokenizer),
      model_(pretrained, options) {
  task_ = definition_of(pretrained);
}

EncodedInput TaskPredictor::encode(TaskInput input) const {
  try {
    TaskFeatures features =
        make_features(examples_of(task_, {&input, 1}), *tokenizer_, config_, /*for_training=*/false);
    return {.input = std::move(input), .features = std::move(features)};
  } catch (const DataError& error) {
    throw TextError(0, error.what());
  }
}

std::vector<EncodedInput> TaskPredictor::encode_all(const std::vector<TaskInput>& inputs) const {
  std::vector<EncodedInput> all;
  for (const TaskInput& input : inputs) {
    try {
      all.push_back(encode(input));
    } catch (const TextError& error) {
      throw TextError(all.size(), error.reason);
    }
  }
  return all;
}

std::vector<float> TaskPredictor::logits_of(const TaskFeatures& features) const {
  return task_logits(model_, features, /*choices=*/1, options_);
}

std::vector<std::vector<LabelScore>> TaskPredictor::classify(const std::vector<TaskInput>& inputs,
                                                             int64_t top_k) const {
  return classes_of(encode_all(inputs), top_k);
}

std::vector<std::vector<WordLabel>> TaskPredictor::tag(const std::vector<TaskInput>& inputs) const {
  return tags_of(encode_all(inputs));
}

std::vector<std::vector<ExtractedAnswer>> TaskPredictor::answer(const std::vector<TaskInput>& inputs,
                                                                int64_t top_k) const {
  return answers_of(encode_all(inputs), top_k);
}

std::vector<std::vector<LabelScore>> TaskPredictor::classes_of(std::span<const EncodedInput> inputs,
                                                               int64_t top_k) const {
  const std::vector<float> logits = logits_of(joined(task_, inputs));
  const size_t columns = logits.size() / std::max<size_t>(1, inputs.size());
  std::vector<std::vector<LabelScore>> answers;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto row = std::span(logits).subspan(i * columns, columns);
    std::vector<LabelScore>& scores = answers.emplace_back();
    if (task_.kind == TaskKind::kRegression) {
      scores.push_back({.label = {}, .score = static_cast<double>(row[0])});
      continue;
    }
    const std::vector<double> probabilities = softmax(row);
    for (size_t label = 0; label < columns; ++label)
      scores.push_back({.label = task_.labels.at(label), .score = probabilities[label]});
    std::stable_sort(scores.begin(), scores.end(), [](const auto& x, const auto& y) { return x.score > y.score; });
    scores.resize(std::min(scores.size(), static_cast<size_t>(top_k)));
  }
  return answers;
}

std::vector<std::vector<WordLabel>> TaskPredictor::tags_of(std::span<const EncodedInput> inputs) const {
  const TaskFeatures features = joined(task_, inputs);
  const std::vector<float> logits = logits_of(features);
  const std::vector<int64_t> offsets = features.logit_offsets();
  const size_t columns = task_.labels.size();
  std::vector<std::vector<WordLabel>> answers(inputs.size());
  std::vector<std::vector<std::string>> words;
  std::vector<std::vector<int64_t>> begins;
  for (const EncodedInput& each : inputs) {
    words.push_back(words_of(each.input.text));
    begins.push_back(begins_of(each.input.text, words.back()));
  }
  for (size_t i = 0; i < features.sequences.size(); ++i) {
    const TaskSequence& sequence = features.sequences[i];
    const auto example = static_cast<size_t>(sequence.example);
    for (size_t token = 0; token < sequence.token_words.size(); ++token) {
      if (sequence.token_words[token] < 0) continue;
      const auto word = static_cast<size_t>(sequence.token_words[token]);
      const size_t first = static_cast<size_t>(offsets[i]) + token * columns;
      const std::vector<double> probabilities = softmax(std::span(logits).subspan(first, columns));
      const auto best = std::max_element(probabilities.begin(), probabilities.end());
      const std::string& text = words[example][word];
      answers[example].push_back({.word = text,
                                  .label = task_.labels.at(static_cast<size_t>(best - probabilities.begin())),
                                  .score = *best,
                                  .begin = begins[example][word],
                                  .end = begins[example][word] + characters_of(text)});
    }
  }
  return answers;
}

std::vector<std::vector<ExtractedAnswer>> TaskPredictor::answers_of(std::span<const EncodedInput> inputs,
                                                                    int64_t top_k) const {
  std::vector<TaskInput> asked;
  for (const EncodedInput& each : inputs) asked.push_back(each.input);
  const TaskExamples examples = examples_of(task_, asked);
  const TaskFeatures features = joined(task_, inputs);
  TaskDataConfig config = config_;
  config.n_best_size = std::max(config.n_best_size, top_k);
  std::vector<std::vector<ExtractedAnswer>> answers;
  for (const QuestionAnswers& found : decode_answers(examples, features, logits_of(features), *tokenizer_, config)) {
    const std::string& text = found.at_threshold(config.null_score_diff_threshold);
    const std::string_view context = asked[answers.size()].text;
    std::vector<ExtractedAnswer>& best = answers.emplace_back();
    best.push_back({.answer = text});
    for (const ScoredSpan& span : found.n_best) {
      const ExtractedAnswer answer = {.answer = span.text,
                                      .score = span.probability,
                                      .begin = characters_of(context.substr(0, static_cast<size_t>(span.begin))),
                                      .end = characters_of(context.substr(0, static_cast<size_t>(span.end)))};
      if (span.text == text) {
        best[0] = answer;
      } else {
        best.push_back(answer);
      }
    }
    best.resize(std::min(best.size(), static_cast<size_t>(top_k)));
  }
  return answers;
}

}  // namespace bert
