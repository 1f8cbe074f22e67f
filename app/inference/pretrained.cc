#include "app/inference/pretrained.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "app/checkpoint/files.h"
#include "app/checkpoint/script_archive.h"
#include "app/config/finetune_config.h"
#include "app/inference/export_config.h"
#include "app/interop/formats.h"
#include "app/tasks/label_set_scoring.h"
#include "cuda_ext/window_pooling.h"
#include "data/io/error.h"
#include "data/tasks/entity_markers.h"
#include "data/tasks/task_definition.h"

namespace bert {
namespace {

/// The settings of the published recipes for questions, for a model that no run of this program has made.
std::optional<TaskDataConfig> published_task_data(const ModelDescription& model) {
  if (kind_of_task(model.task) != TaskKind::kQuestionAnswering) return std::nullopt;
  constexpr int64_t kMaxSequenceLength = 384;  // of Google's and transformers' recipes for SQuAD
  TaskDataConfig data;
  data.max_seq_length = std::min(kMaxSequenceLength, most_tokens(model));
  const int64_t third = std::max<int64_t>(1, data.max_seq_length / 3);
  data.doc_stride = std::min(data.doc_stride, third);
  data.max_query_length = std::min(data.max_query_length, third);
  return data;
}

/// Adds the tokenizer, and what the description lacks. Puts the weights of a sentence encoder apart.
Pretrained complete(Pretrained result) {
  ModelDescription& model = result.model;
  StateDict weights;
  for (const auto& item : result.weights) {
    StateDict& taken = item.key().starts_with(kSentencePrefix) ? result.sentence_weights : weights;
    taken.insert(item.key(), item.value());
  }
  result.weights = std::move(weights);
  const std::vector<std::string> names = result.weights.keys();
  model.masked_token_head = std::any_of(
      names.begin(), names.end(), [](const std::string& weight) { return weight.starts_with("cls.predictions."); });
  if (!model.task_data) model.task_data = published_task_data(model);
  const at::Tensor* classifier = result.weights.find("classifier.weight");
  model.start_markers = kind_of_task(model.task) == TaskKind::kClassification && classifier != nullptr &&
                        classifier->size(1) == 2 * model.config.hidden_size;
  model.window_attention = result.weights.contains(kWindowAttention);
  if (model.null_threshold && model.task_data) {
    model.task_data->null_score_diff_threshold = *std::exchange(model.null_threshold, std::nullopt);
    model.task_data->search_null_threshold = false;
  }
  if (!model.label_thresholds.empty() && model.label_thresholds.size() != model.labels.size()) {
    throw DataError(fmt::format("{}: has {} label_thresholds; expected one for each of {} labels", result.name,
                                model.label_thresholds.size(), model.labels.size()));
  }
  if (!model.tokenizer_model.empty()) {
    model.tokenizer = TokenizerConfig();
    result.tokenizer = std::make_shared<SentencePieceTokenizer>(model.tokenizer_model, result.name);
  } else {
    model.tokenizer.match_special_tokens = true;
    result.tokenizer = std::make_shared<WordPieceTokenizer>(
        Vocabulary(model.vocabulary, result.name, model.added_tokens), model.tokenizer);
  }
  return result;
}

/// Leaves out the classifier of a run of embeddings, which belongs to a loss.
void erase_classifier(StateDict& weights) {
  for (const char* const name : {"classifier.weight", "classifier.bias"}) {
    if (weights.contains(name)) weights.erase(name);
  }
}

Pretrained load_checkpoint(const std::string& path, WeightsKind weights,
                           const std::function<void(const std::string& message)>& note,
                           const std::function<void(double share)>& progress) {
  Checkpoint checkpoint = load_model(path, weights, note, progress);
  ModelDescription& model = checkpoint.state.model;
  read_trained_model(checkpoint.state.config, model, checkpoint.directory + "/" + kStateFile);
  if (take_sentence_encoder(model)) erase_classifier(checkpoint.model);
  take_thresholds(checkpoint.state.metrics, model);
  if (model.task_data) model.task_data->search_label_threshold = ThresholdSearch::kNone;
  return complete({.name = checkpoint.directory,
                   .model = std::move(model),
                   .weights = std::move(checkpoint.model),
                   .averaged = checkpoint.averaged});
}

/// True if the answers of `task` depend on a parameter of this name.
bool needs(Task task, const std::string& parameter) {
  switch (part_of(parameter)) {
    case BertPart::kPooler:
      return task == Task::kFeatures;
    case BertPart::kMaskedTokenHead:
      return task == Task::kFillMask;
    case BertPart::kSentencePairHead:
      return false;
    case BertPart::kEncoder:
      break;
  }
  return true;
}

Pretrained load_foreign(const ForeignFormat& format, const ModelSource& model,
                        const std::function<void(const std::string& message)>& note) {
  ForeignCheckpoint source = format.read(model.path.string(), {.trust = model.trust, .config = {}, .task_head = true});
  if (model.task)
    std::erase_if(source.report.missing, [&](const std::string& name) { return !needs(*model.task, name); });
  if (!source.report.plain()) note(source.path + ": " + source.report.text());
  if (source.model.vocabulary.empty()) {
    throw DataError(
        source.path +
        ": has no tokenizer: neither vocab.txt nor tokenizer.json; `bert convert --vocab` adds a vocabulary");
  }
  return complete({.name = source.path,
                   .model = std::move(source.model),
                   .weights = read_tensors(source.tensors),
                   .unread = std::move(source.report.unexpected)});
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

/// The parameters under their names in a model with heads: those of an encoder alone get its prefix.
StateDict with_encoder_prefix(StateDict parameters) {
  for (const std::string& name : parameters.keys())
    if (name.starts_with(kEncoderPrefix)) return parameters;
  StateDict named;
  for (const auto& item : parameters) named.insert(kEncoderPrefix + item.key(), item.value());
  return named;
}

Pretrained load_export(const std::string& file) {
  ScriptArchive archive = read_script_archive(file);
  std::map<std::string, std::string>& inside = archive.files;
  if (inside[kExportConfigFile].empty() || inside[kExportVocabularyFile].empty()) {
    throw DataError(file +
                    ": has no config.json and vocab.txt inside; `bert export` writes such files. Export the checkpoint "
                    "again");
  }
  auto [model, hash] = read_export_config(inside[kExportConfigFile], file + ": " + kExportConfigFile);
  model.vocabulary = lines_of(inside[kExportVocabularyFile]);
  model.tokenizer_model = std::move(inside[kTokenizerFile]);
  Pretrained result =
      complete({.name = file, .model = std::move(model), .weights = with_encoder_prefix(std::move(archive.tensors))});
  if (!hash.empty() && result.tokenizer->vocabulary().hash() != hash) {
    throw DataError(file + ": the vocabulary inside is not that of which config.json has the vocabulary_hash");
  }
  return result;
}

}  // namespace

TaskDataConfig text_settings(const ModelDescription& model) {
  const int64_t most = most_tokens(model);
  std::optional<TaskDataConfig> given = model.task_data ? model.task_data : published_task_data(model);
  TaskDataConfig settings = given.value_or(TaskDataConfig());
  if (!given) settings.max_seq_length = most;
  settings.max_seq_length = std::min(settings.max_seq_length, most);
  settings.cut_at_begin = model.cut_at_begin;
  settings.odd_token_to_longer = !model.task_data;
  const bool classes = kind_of_task(model.task) == TaskKind::kClassification;
  const bool marked = classes && std::ranges::all_of(kEntityMarkers, [&](const char* marker) {
                        return std::ranges::find(model.vocabulary, marker) != model.vocabulary.end();
                      });
  if (!given && marked) settings.entity_markers = EntityMarkers::kCls;
  if (model.start_markers) settings.entity_markers = EntityMarkers::kStartMarkers;
  if (model.window_attention) settings.window_pooling = WindowPooling::kAttention;
  return settings;
}

Pretrained load_pretrained(const ModelSource& source, WeightsKind weights,
                           const std::function<void(const std::string& message)>& note,
                           const std::function<void(double share)>& progress) {
  const std::string name = source.path.string();
  std::error_code unseen;  // load_export() says what is wrong with such a path
  const ForeignFormat* const format = foreign_format_of(name);
  if (format == nullptr) refuse_other_weights(name);
  Pretrained result = format != nullptr ? load_foreign(*format, source, note)
                      : std::filesystem::is_directory(source.path, unseen)
                          ? load_checkpoint(name, weights, note, progress)
                          : load_export(name);
  result.name = name;
  const int64_t tokens = result.tokenizer->vocabulary().size(), rows = result.model.config.vocab_size;
  if (tokens > rows) {
    throw DataError(name + ": its tokenizer has " + std::to_string(tokens) + " tokens, and its model has " +
                    std::to_string(rows) + " (vocab_size); expected at most as many");
  }
  return result;
}

}  // namespace bert
