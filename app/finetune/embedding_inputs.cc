#include "app/finetune/embedding_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "app/system/errors.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "data/tasks/table_reader.h"

namespace bert {
namespace {

/// Throws DataError if the rows do not fit the loss of the set.
void check_rows(const TaskExamples& rows, const EmbeddingSetConfig& set, int64_t columns) {
  const char* const loss = name_of_value(set.loss);
  const auto [least, most] = texts_of(set.loss);
  if (columns < least || columns > most) {
    throw DataError(fmt::format("{}: a row has {} texts, and the loss {} takes {}; embedding.sets has text_columns",
                                rows.file, columns, loss,
                                least == most ? std::to_string(least) : fmt::format("{} or more", least)));
  }
  if (needs_label(set.loss) && !rows.has_labels) {
    throw DataError(fmt::format(
        "{}: the loss {} reads a score or a label, and there is no column score or label; embedding.sets has "
        "label_column",
        rows.file, loss));
  }
  if (set.loss != EmbeddingLoss::kContrastive && set.loss != EmbeddingLoss::kOnlineContrastive) return;
  for (size_t i = 0; i < rows.texts.size(); ++i) {
    if (const double label = rows.texts[i].value; label != 0 && label != 1)
      throw DataError(
          fmt::format("{}: row {} has the label {}, and the loss {} takes 0 and 1", rows.file, i, label, loss));
  }
}

std::vector<EmbeddingSetConfig> sets_of(const EmbeddingConfig& config) {
  return config.sets.empty() ? std::vector<EmbeddingSetConfig>(1) : config.sets;
}

}  // namespace

DataIdentity file_identity(const std::string& path, int64_t examples) {
  const MappedFile file(path);
  DataIdentity identity{.content_checksum = checksum(file.data(), static_cast<size_t>(file.size())),
                        .examples = examples};
  file.expect_whole();
  return identity;
}

SentenceEncoder sentence_encoder_for(const EmbeddingConfig& config, const ModelDescription& start) {
  SentenceEncoder encoder = start.sentence.value_or(SentenceEncoder());
  if (config.pooling != TrainedPooling::kOfCheckpoint) {
    const auto mode = static_cast<SentencePooling>(static_cast<uint8_t>(config.pooling) - 1);
    if (!encoder.dense.empty() && encoder.pooling != std::vector{mode}) {
      throw ConfigError(
          "embedding.pooling: initial_checkpoint has dense layers behind its own pooling; set it to auto");
    }
    encoder.pooling = {mode};
  }
  encoder.normalize |= config.normalize;
  if (const std::vector<std::string> prompts = row_prompts(config); !prompts.empty()) {
    encoder.prompts["query"] = prompts.front();
    encoder.prompts["document"] = prompts[std::min<size_t>(1, prompts.size() - 1)];
  }
  return encoder;
}

TaskExamples read_evaluation_rows(const std::string& path, const EmbeddingConfig& config) {
  const EmbeddingSetConfig first = sets_of(config).front();
  RowColumns columns{.texts = first.text_columns, .label = first.label_column};
  if (columns.texts.size() == 1) columns = {};  // of texts without pairs, which evaluations need
  if (first.loss == EmbeddingLoss::kSoftmax) columns.label.clear();
  TaskExamples rows = read_text_rows(path, columns);
  if (texts_in_row(rows) < 2)
    throw DataError(path + ": a row has one text; expected two, whose similarity is evaluated");
  if (first.loss == EmbeddingLoss::kSoftmax && rows.has_labels) {
    const std::vector<std::string> names = table_columns(path);
    if (std::ranges::find(names, "score") == names.end())
      throw DataError(path +
                      ": its labels are classes, as those of the first set; evaluations compare similarities with "
                      "numbers: expected a column score, or none");
  }
  if (texts_in_row(rows) > 2) rows.has_labels = false;  // a label of three texts is no similarity of two
  return rows;
}

std::vector<std::string> row_prompts(const EmbeddingConfig& config) { return sets_of(config).front().prompts; }

std::vector<std::vector<int64_t>> unread_prompts(const SentenceEncoder& encoder, const EmbeddingConfig& config,
                                                 const Tokenizer& tokenizer) {
  std::vector<std::vector<int64_t>> beginnings;
  if (encoder.include_prompt) return beginnings;
  std::set<std::string> prompts;
  for (const auto& [name, prompt] : encoder.prompts) prompts.insert(prompt);
  for (const EmbeddingSetConfig& set : config.sets) prompts.insert(set.prompts.begin(), set.prompts.end());
  for (const std::string& prompt : prompts) {
    const std::vector<int32_t> ids = tokenizer.encode(prompt);
    if (ids.empty()) continue;
    std::vector<int64_t>& beginning = beginnings.emplace_back(ids.begin(), ids.end());
    beginning.insert(beginning.begin(), tokenizer.vocabulary().cls_id());
  }
  return beginnings;
}

EmbeddingInputs read_embedding_sets(const FinetuneConfig& config, const std::string& default_file,
                                    const Tokenizer& tokenizer, std::map<std::string, DataIdentity>& identities,
                                    const std::function<void(const std::string& message)>& note) {
  EmbeddingInputs inputs;
  const std::vector<EmbeddingSetConfig> sets = sets_of(config.embedding);
  for (size_t i = 0; i < sets.size(); ++i) {
    const EmbeddingSetConfig& set = sets[i];
    const std::string path = set.file.empty() ? default_file : set.file;
    const bool classes = set.loss == EmbeddingLoss::kSoftmax;
    const TaskExamples rows = read_text_rows(path, {.texts = set.text_columns, .label = set.label_column},
                                             classes                 ? RowLabels::kClasses
                                             : needs_label(set.loss) ? RowLabels::kNumbers
                                                                     : RowLabels::kUnread);
    int64_t columns = texts_in_row(rows), repeats = 1;
    if (columns == 1 && set.loss == EmbeddingLoss::kMultipleNegativesRanking) columns = repeats = 2;
    check_rows(rows, set, columns);
    if (set.prompts.size() > 1 && std::ssize(set.prompts) != columns)
      throw ConfigError(
          fmt::format("embedding.sets: {} prompts, and {} has {} columns of texts", set.prompts.size(), path, columns));
    if (rows.has_labels && !needs_label(set.loss))
      note(fmt::format("{}: the loss {} does not read the labels", path, name_of_value(set.loss)));
    if (classes) {
      if (!inputs.classes.empty() && inputs.classes != rows.task.labels)
        throw DataError(path + ": has other labels than the set before, and one classifier learns both");
      inputs.classes = rows.task.labels;
    }
    auto features =
        std::make_shared<TaskFeatures>(make_row_features(rows, tokenizer, config.data.task, set.prompts, repeats));
    if (features->cut > 0) {
      const std::string cut = fmt::format("{}: {}", path, features->cut_of(rows.size(), config.data.task));
      if (config.data.task.long_texts == LongTexts::kRefuse)
        throw DataError(cut + "; data.long_texts=truncate cuts them");
      note(cut + " and are cut");
    }
    identities[i == 0 ? "train" : fmt::format("embedding.sets.{}", i)] = file_identity(path, rows.size());
    inputs.rows += rows.size();
    inputs.shapes.push_back({.config = set, .columns = columns});
    inputs.sets.push_back({.features = std::move(features), .columns = columns});
  }
  return inputs;
}

Pretrained read_embedding_teacher(const FinetuneConfig& config, const Tokenizer& tokenizer, int64_t size,
                                  const std::function<void(const std::string& message)>& note) {
  Pretrained teacher = load_pretrained({config.distillation.teacher}, WeightsKind::kAveraged,
                                       [&](const std::string& message) { note("distillation.teacher: " + message); });
  const auto refuse = [&](const std::string& message) {
    throw ConfigError(fmt::format("distillation.teacher: {} {}", teacher.name, message));
  };
  if (teacher.tokenizer->vocabulary().hash() != tokenizer.vocabulary().hash())
    refuse("has another vocabulary than initial_checkpoint; the teacher reads the student's tokens");
  const int64_t positions = teacher.model.config.max_position_embeddings;
  if (config.data.task.max_seq_length > positions)
    refuse(fmt::format("has {} positions, and data.max_seq_length is {}", positions, config.data.task.max_seq_length));
  const int64_t teachers =
      vector_size(teacher.model.sentence.value_or(SentenceEncoder()), teacher.model.config.hidden_size);
  if (teachers != size) refuse(fmt::format("has vectors of {} dimensions, and the model of {}", teachers, size));
  return teacher;
}

}  // namespace bert
