#include "app/inference/pretrained.h"

#include <algorithm>
#include <map>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "app/checkpoint/files.h"
#include "app/checkpoint/script_archive.h"
#include "app/config/finetune_config.h"
#include "app/inference/export_config.h"
#include "app/interop/formats.h"
#include "app/system/errors.h"
#include "app/tasks/task_scoring.h"
#include "data/io/error.h"
#include "data/tasks/task_definition.h"

namespace bert {
namespace {

/// The tokenizer of a SentencePiece model, or of WordPiece tokens if `model` is empty.
std::shared_ptr<const Tokenizer> tokenizer_of(std::string model, std::vector<std::string> tokens,
                                              TokenizerConfig config, const std::string& name) {
  if (!model.empty()) return std::make_shared<SentencePieceTokenizer>(std::move(model), name);
  config.match_special_tokens = true;
  return std::make_shared<WordPieceTokenizer>(Vocabulary(std::move(tokens), name), config);
}

/// The settings of the published recipes for questions, for a model that no run of this program has made.
std::optional<TaskDataConfig> published_task_data(const std::string& task, const BertConfig& model) {
  const std::vector<std::string>& known = task_names();
  if (std::find(known.begin(), known.end(), task) == known.end()) return std::nullopt;
  if (task_definition(task).kind != TaskKind::kQuestionAnswering) return std::nullopt;
  constexpr int64_t kMaxSequenceLength = 384;  // of Google's and transformers' recipes for SQuAD
  TaskDataConfig data;
  data.max_seq_length = std::min(kMaxSequenceLength, model.max_position_embeddings);
  data.doc_stride = std::min(data.doc_stride, data.max_seq_length / 3);
  data.max_query_length = std::min(data.max_query_length, data.max_seq_length / 3);
  return data;
}

Pretrained load_checkpoint(const std::string& path, WeightsKind weights,
                           const std::function<void(const std::string& message)>& note,
                           const std::function<void(double share)>& progress) {
  Checkpoint checkpoint = load_model(path, weights, note, progress);
  const std::string& directory = checkpoint.directory;
  TrainedModelConfig config;
  try {
    config = read_trained_model(checkpoint.state.config, checkpoint.state.task, directory + "/" + kStateFile);
  } catch (const ConfigError& error) {
    throw DataError(error.what());
  }
  if (!config.task_data) config.task_data = published_task_data(checkpoint.state.task, config.model);
  const std::map<std::string, double>& figures = checkpoint.state.metrics;
  if (const auto threshold = figures.find(kNullThresholdFigure); config.task_data && threshold != figures.end()) {
    config.task_data->null_score_diff_threshold = threshold->second;
    config.task_data->search_null_threshold = false;
  }
  return {.name = {},
          .config = config.model,
          .objective = checkpoint.state.objective,
          .weights = std::move(checkpoint.model),
          .tokenizer = tokenizer_of(std::move(checkpoint.tokenizer_model), std::move(checkpoint.state.vocabulary),
                                    config.tokenizer, directory),
          .averaged = checkpoint.averaged,
          .task = std::move(checkpoint.state.task),
          .labels = std::move(checkpoint.state.labels),
          .task_data = std::move(config.task_data)};
}

Pretrained load_foreign(const ForeignFormat& format, const ModelSource& model,
                        const std::function<void(const std::string& message)>& note) {
  ForeignCheckpoint source = format.read(model.path.string(), {.trust = model.trust, .config = {}, .task_head = true});
  if (!source.report.plain()) note(source.path + ": " + source.report.text());
  if (source.vocabulary.empty()) {
    throw DataError(
        source.path +
        ": has no tokenizer: neither vocab.txt nor tokenizer.json; `bert convert --vocab` adds a vocabulary");
  }
  std::optional<TaskDataConfig> task_data = published_task_data(source.task, source.config);
  return {.name = {},
          .config = source.config,
          .objective = source.objective,
          .weights = read_tensors(source.tensors),
          .tokenizer = tokenizer_of({}, std::move(source.vocabulary), source.tokenizer, source.path),
          .task = std::move(source.task),
          .labels = std::move(source.labels),
          .task_data = std::move(task_data)};
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
  const ExportConfig config = read_export_config(inside[kExportConfigFile], file + ": " + kExportConfigFile);
  Pretrained result{.config = config.model,
                    .objective = config.objective,
                    .weights = with_encoder_prefix(std::move(archive.tensors)),
                    .tokenizer = tokenizer_of(std::move(inside[kTokenizerFile]),
                                              lines_of(inside[kExportVocabularyFile]), config.tokenizer, file),
                    .task = config.task,
                    .labels = config.labels,
                    .task_data = config.task_data};
  if (!config.vocabulary_hash.empty() && result.tokenizer->vocabulary().hash() != config.vocabulary_hash) {
    throw DataError(file + ": the vocabulary inside is not that of which config.json has the vocabulary_hash");
  }
  return result;
}

}  // namespace

bool Pretrained::has_masked_token_head() const {
  const std::vector<std::string> names = weights.keys();
  return std::any_of(names.begin(), names.end(),
                     [](const std::string& weight) { return weight.starts_with("cls.predictions."); });
}

Pretrained load_pretrained(const ModelSource& source, WeightsKind weights,
                           const std::function<void(const std::string& message)>& note,
                           const std::function<void(double share)>& progress) {
  const std::string name = source.path.string();
  std::error_code unseen;  // load_export() says what is wrong with such a path
  const ForeignFormat* const format = foreign_format_of(name);
  Pretrained result = format != nullptr ? load_foreign(*format, source, note)
                      : std::filesystem::is_directory(source.path, unseen)
                          ? load_checkpoint(name, weights, note, progress)
                          : load_export(name);
  result.name = name;
  const int64_t tokens = result.tokenizer->vocabulary().size(), rows = result.config.vocab_size;
  if (tokens > rows) {
    throw DataError(name + ": its tokenizer has " + std::to_string(tokens) + " tokens, and its model has " +
                    std::to_string(rows) + " (vocab_size); expected at most as many");
  }
  return result;
}

}  // namespace bert
