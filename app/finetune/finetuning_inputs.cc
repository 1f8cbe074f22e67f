#include "app/finetune/finetuning_inputs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "app/checkpoint/files.h"
#include "app/distributed/rank_zero.h"
#include "app/finetune/distillation.h"
#include "app/finetune/embedding_scoring.h"
#include "app/finetune/entity_marker_rows.h"
#include "app/interop/open_tokenizer.h"
#include "app/system/errors.h"
#include "app/train/initial_vocabulary.h"
#include "app/train/micro_batch.h"
#include "app/train/rank_agreement.h"
#include "app/train/run_inputs.h"
#include "data/io/error.h"
#include "data/io/files.h"

namespace bert {
namespace {

int64_t find_newest(const FinetuneConfig& config, const ProcessGroupPtr& group, const RunNote& note) {
  return std::stoll(on_rank_zero(group, "look for a checkpoint", config.distributed.timeout_seconds, [&] {
    const auto found = newest_valid_checkpoint(config.run_directory, note);
    return std::to_string(found ? found->step : -1);
  }));
}

/// Reads the checkpoint that gives the model: the newest of the run, else initial_checkpoint.
Pretrained read_start(const FinetuneConfig& config, int64_t newest, const RunNote& note) {
  if (newest >= 0) return load_pretrained({checkpoint_directory(config.run_directory, newest)}, WeightsKind::kRaw);
  try {
    return load_pretrained({config.initial_checkpoint, config.trust_initial_checkpoint}, WeightsKind::kAveraged,
                           [&](const std::string& message) { note("initial_checkpoint: " + message); });
  } catch (const InputMissing& error) {
    throw InputMissing(std::string("initial_checkpoint: ") + error.what());
  } catch (const DataError& error) {
    throw DataError(std::string("initial_checkpoint: ") + error.what());
  }
}

/// Takes the tokens of data.vocab_file in place of those of `start`, whose weights stay as they are.
void take_vocabulary(FinetuningInputs& inputs, const RunNote& note) {
  Pretrained& start = inputs.start;
  const std::string& file = inputs.config.data.vocab_file;
  if (file.empty() || inputs.newest >= 0) return;
  const std::shared_ptr<const Tokenizer> tokenizer = open_tokenizer(file, start.model.tokenizer);
  inputs.vocabulary_rows = initial_rows(inputs.config, {start.model, start.name}, *tokenizer, file);
  if (!inputs.vocabulary_rows) return;
  note("initial_vocabulary: " + inputs.vocabulary_rows->text());
  const Vocabulary& vocabulary = tokenizer->vocabulary();
  start.model.vocabulary = vocabulary.tokens();
  start.model.added_tokens = vocabulary.added();
  start.model.tokenizer = dynamic_cast<const WordPieceTokenizer&>(*tokenizer).config();
  start.model.config.vocab_size = vocabulary.size();
  start.tokenizer = tokenizer;
}

/// Takes the fields of `from` into `config`. A field that the configuration gives, or that is not at its default, must
/// agree, but for dropout, which fine-tuning may change, and a longer position table of a run that begins.
void take_model(FinetuneConfig& config, const ModelDescription& from, const std::string& name, bool begins) {
  const FinetuneConfig before = config, defaults;
  std::set<std::string> given = config.given;
  for (const ConfigDifference& d : compare(defaults, before)) given.insert(d.pointer);
  config.model = from.config;
  config.data.tokenizer = from.tokenizer;
  config.data.tokenizer.match_special_tokens = before.data.tokenizer.match_special_tokens;
  if (before.data.tokenizer.strip_accents == from.tokenizer.strips_accents())
    config.data.tokenizer.strip_accents = before.data.tokenizer.strip_accents;  // the default, spelled out
  if (given.contains("/model/hidden_dropout_prob")) config.model.hidden_dropout_prob = before.model.hidden_dropout_prob;
  if (given.contains("/model/attention_probs_dropout_prob"))
    config.model.attention_probs_dropout_prob = before.model.attention_probs_dropout_prob;
  if (begins && given.contains("/model/max_position_embeddings")) {
    config.model.max_position_embeddings =
        std::max(before.model.max_position_embeddings, from.config.max_position_embeddings);
  }
  for (const ConfigDifference& d : compare(before, config)) {
    if (!given.contains(d.pointer)) continue;
    throw ConfigError(
        fmt::format("{}: is {}, and initial_checkpoint {} has {}; leave it out: the model and its "
                    "tokenizer come from initial_checkpoint",
                    d.pointer, d.before, name, d.after));
  }
}

std::shared_ptr<const Tokenizer> tokenizer_for(const FinetuneConfig& config, const Pretrained& start) {
  if (dynamic_cast<const WordPieceTokenizer*>(start.tokenizer.get()) == nullptr) return start.tokenizer;
  const Vocabulary& vocabulary = start.tokenizer->vocabulary();
  return std::make_shared<WordPieceTokenizer>(Vocabulary(vocabulary.tokens(), start.name, vocabulary.added()),
                                              config.data.tokenizer);
}

/// A file of the task that is there.
struct FoundFile {
  TaskFile file;
  std::string path;
};

std::string key_of(const TaskFile& file) { return split_name(file.split) + (file.part.empty() ? "" : "_" + file.part); }

/// True if every set of a run of embeddings has its own training file.
bool has_set_files(const FinetuneConfig& config) {
  const std::vector<EmbeddingSetConfig>& sets = config.embedding.sets;
  return !sets.empty() && std::ranges::none_of(sets, [](const auto& set) { return set.file.empty(); });
}

std::vector<FoundFile> find_files(const FinetuneConfig& config, const TaskDefinition& task, TaskSplit split) {
  const TaskFilesConfig& data = config.data;
  const std::string& own = split == TaskSplit::kTrain ? data.train_file
                           : split == TaskSplit::kDev ? data.dev_file
                                                      : data.test_file;
  std::vector<FoundFile> found;
  std::vector<std::string> names;
  for (const TaskFile& file : task.files) {
    if (file.split != split) continue;
    names.insert(names.end(), file.names.begin(), file.names.end());
    const std::string& language = data.task.train_language.empty() ? data.task.language : data.task.train_language;
    const std::string path = !own.empty()             ? own
                             : data.directory.empty() ? ""
                                                      : find_task_file(file, data.directory, language);
    if (!path.empty()) found.push_back({file, path});
    if (!own.empty()) break;  // it stands for all files of the split
  }
  const bool names_training = !data.train_file.empty() || has_set_files(config);
  const bool may_lack = split == TaskSplit::kTest || (split == TaskSplit::kDev && names_training);
  if (found.empty() && !may_lack) {
    throw InputMissing(fmt::format("data.directory: {} has no {} file of task {}; expected {}, or data.{}_file",
                                   data.directory.empty() ? "(not given)" : data.directory, split_name(split),
                                   task.name, fmt::join(names, " or "), split_name(split)));
  }
  return found;
}

/// Throws ConfigError if the model has no room for the sequences.
void check_room(const FinetuneConfig& config, const std::string& name) {
  if (const int64_t most = config.model.max_position_embeddings; config.data.task.max_seq_length > most) {
    throw ConfigError(
        fmt::format("data.max_seq_length: is {}, and the model of {} has {} positions; set it to {} or less",
                    config.data.task.max_seq_length, name, most, most));
  }
}

void check_segments(const FinetuneConfig& config, const TaskFeatures& features, const std::string& file) {
  for (const TaskSequence& sequence : features.sequences) {
    if (sequence.token_type_ids.back() < config.model.type_vocab_size) continue;
    throw ConfigError(
        fmt::format("initial_checkpoint: the model has type_vocab_size {}, and {} has pairs of texts, which "
                    "need 2",
                    config.model.type_vocab_size, file));
  }
}

int64_t steps_of_epochs(const FinetuneConfig& config, int64_t units) {
  const double steps =
      std::ceil(static_cast<double>(units) * config.num_train_epochs / static_cast<double>(config.global_batch_size));
  return std::max<int64_t>(1, std::llround(steps));
}

/// The training data, the modules behind the encoder and the teacher of a run of embeddings.
void read_embedding_training(FinetuningInputs& inputs, const RunNote& note) {
  FinetuneConfig& config = inputs.config;
  const std::string file = has_set_files(config) ? "" : find_files(config, inputs.task, TaskSplit::kTrain).front().path;
  inputs.embedding = read_embedding_sets(config, file, *inputs.tokenizer, inputs.data, note);
  inputs.train_examples = inputs.embedding.rows;
  inputs.head = {.kind = TaskKind::kEmbedding,
                 .num_outputs = std::ssize(inputs.embedding.classes),
                 .class_weights = {},
                 .sentence = sentence_encoder_for(config.embedding, inputs.start.model)};
  const int64_t size = vector_size(inputs.head.sentence, config.model.hidden_size);
  matryoshka_of(config.embedding.matryoshka_dimensions, size);
  if (!config.distillation.teacher.empty())
    inputs.teacher = read_embedding_teacher(config, *inputs.tokenizer, size, note);
  if (config.max_steps == 0) config.max_steps = steps_of_epochs(config, inputs.embedding.rows);
}

/// For each label the number of examples without it by the number with it; 1 for a label without examples.
std::vector<float> weights_of_yes(const TaskFeatures& train) {
  std::vector<double> counts(static_cast<size_t>(train.num_outputs));
  const int64_t texts = train.units(1);
  for (int64_t text = 0; text < texts; ++text) {
    const auto first = static_cast<size_t>(train.unit(text, 1).first);
    for (const int32_t label : train.sequences[first].labels) ++counts[static_cast<size_t>(label)];
  }
  std::vector<float> weights;
  for (const double each : counts)
    weights.push_back(each > 0 ? static_cast<float>((static_cast<double>(texts) - each) / each) : 1);
  return weights;
}

/// The rows of query, positive and negatives in a training file of rerankers: the passages are TextExample::choices.
/// Throws DataError if a row does not fit the loss, and as read_text_rows().
TaskExamples read_passages(const TaskDefinition& task, const std::string& path, const RerankConfig& config) {
  const bool margins = config.loss == RerankLoss::kMarginMse;
  TaskExamples rows = read_text_rows(path, {.texts = config.text_columns, .label = config.label_column},
                                     margins ? RowLabels::kNumbers : RowLabels::kUnread);
  const int64_t texts = texts_in_row(rows);
  if (margins ? texts != 3 || !rows.has_labels : texts < 3) {
    throw DataError(fmt::format(
        "{}: a row has {} texts{}, and the loss {} takes {}; rerank.text_columns and label_column name columns", path,
        texts, rows.has_labels ? " and a label" : "", name_of_value(config.loss),
        margins ? "query, positive, negative and a score or label" : "query, positive and one negative or more"));
  }
  rows.task = task;
  for (TextExample& row : rows.texts) {
    row.choices.insert(row.choices.begin(), std::exchange(row.text_pair, {}));
    row.values = {row.value};
  }
  return rows;
}

/// Throws ConfigError for a reranker that would read queries alone.
void expect_pairs(const TaskDefinition& task, const TaskDataConfig& data, const std::string& path) {
  if (!task.scores || !data.text_pair_column.empty()) return;
  throw ConfigError(
      fmt::format("data.text_pair_column: is empty, and task {} reads pairs from {}; name the column of the passages",
                  task.name, path));
}

/// Says how many examples are cut. Throws DataError if they are refused.
void say_cut(const std::string& path, const TaskFeatures& features, const TaskExamples& examples,
             const TaskDataConfig& config, const RunNote& note) {
  if (features.cut == 0) return;
  const std::string cut = fmt::format("{}: {}", path, features.cut_of(examples.size(), config));
  if (config.long_texts == LongTexts::kRefuse)
    throw DataError(cut + "; data.long_texts=truncate cuts them, windows reads all of them");
  note(cut + " and are cut");
}

void read_training(FinetuningInputs& inputs, const RunNote& note) {
  FinetuneConfig& config = inputs.config;
  const FoundFile found = find_files(config, inputs.task, TaskSplit::kTrain).front();
  if (!config.rerank.reads_passages()) expect_pairs(inputs.task, config.data.task, found.path);
  find_labels(inputs.task, found.path, config.data.task);
  TaskExamples examples = config.rerank.reads_passages()
                              ? read_passages(inputs.task, found.path, config.rerank)
                              : read_task(inputs.task, found.file, found.path, config.data.task);
  if (config.max_train_examples > 0) {
    const auto keep = [&](auto& list) {
      if (std::ssize(list) > config.max_train_examples)
        list.erase(list.begin() + config.max_train_examples, list.end());
    };
    keep(examples.texts);
    keep(examples.sentences);
    keep(examples.squad.questions);
  }
  auto features = std::make_shared<TaskFeatures>(
      make_features(examples, *inputs.tokenizer, config.data.task, /*for_training=*/true));
  if (features->sequences.empty()) throw DataError(found.path + ": has no example to train on");
  check_segments(config, *features, found.path);
  inputs.train_examples = examples.size();
  inputs.data[key_of(found.file)] = file_identity(found.path, examples.size());
  inputs.head = {.kind = inputs.task.kind,
                 .num_outputs = inputs.task.num_outputs(),
                 .choices = choices_of(examples, 0),
                 .class_weights = {},
                 .scores = inputs.task.scores,
                 .multi_label = inputs.task.multi_label,
                 .start_markers = features->start_markers};
  if (config.rerank.reads_passages()) {
    inputs.head.passages = std::ssize(examples.texts.front().choices);
    inputs.head.rerank_loss = config.rerank.loss;
  }
  if (!features->text_ends.empty()) inputs.head.window_pooling = config.data.task.window_pooling;
  if (config.class_weights == ClassWeights::kBalanced) {
    if (inputs.task.labels.empty() || inputs.task.kind == TaskKind::kRegression)
      throw ConfigError("class_weights: is balanced, and task " + inputs.task.name + " has no classes; set it to none");
    inputs.head.class_weights = balanced_class_weights(*features);
  }
  if (!examples.remark.empty()) note(examples.remark);
  if (examples.skipped_rows > 0)
    note(fmt::format("{}: {} rows without all columns are left out", found.path, examples.skipped_rows));
  say_cut(found.path, *features, examples, config.data.task, note);
  if (features->skipped > 0) {
    note(fmt::format("{}: {} questions are left out, whose answer is not in the words of the context", found.path,
                     features->skipped));
  }
  if (config.max_steps == 0) config.max_steps = steps_of_epochs(config, features->units(inputs.head.unit()));
  inputs.train = std::move(features);
}

/// Takes evaluations out of a run without development files, which predicts the test files at its end. Throws
/// ConfigError for settings that need evaluations.
void leave_out_evaluations(FinetuneConfig& config, const RunNote& note) {
  const auto refuse = [](const char* field, bool used) {
    if (used) throw ConfigError(fmt::format("{}: is set, and there is no development file; give data.dev_file", field));
  };
  refuse("keep_best", config.keep_best);
  refuse("early_stopping_patience", config.early_stopping_patience > 0);
  refuse("data.search_label_threshold", config.data.task.search_label_threshold != ThresholdSearch::kNone);
  config.evaluate_every = 0;
  note("no evaluation: there is no development file; data.dev_file names one");
}

/// Checks the settings that depend on the kind of the task, and puts the metric of the best checkpoint first.
void fit_settings(const FinetuneConfig& config, TaskDefinition& task) {
  const bool one_class =
      !task.multi_label && (task.kind == TaskKind::kClassification || task.kind == TaskKind::kTokenClassification ||
                            task.kind == TaskKind::kMultipleChoice);
  if (config.label_smoothing > 0 && !one_class) {
    throw ConfigError(
        fmt::format("label_smoothing: is {}, and the labels of task {} are not one class each; set it to 0",
                    config.label_smoothing, task.name));
  }
  if (config.data.task.long_texts == LongTexts::kWindows) {
    const bool marked = config.data.task.entity_markers != EntityMarkers::kNone;
    if (marked || config.rerank.reads_passages() || task.kind == TaskKind::kMultipleChoice ||
        task.kind == TaskKind::kEmbedding) {
      throw ConfigError(fmt::format("data.long_texts: is windows, and task {}{} cuts its texts; set it to truncate",
                                    task.name, marked ? " with entity markers" : ""));
    }
    if (!config.distillation.teacher.empty())
      throw ConfigError(
          "data.long_texts: is windows, which distillation.teacher has no losses for; set it to truncate");
  }
  const std::string& metric = config.metric_for_best_model;
  if (metric.empty()) return;
  const auto found = std::ranges::find(task.metrics, metric);
  if (found != task.metrics.end()) {
    std::rotate(task.metrics.begin(), found, found + 1);
    return;
  }
  const bool has_loss = task.kind != TaskKind::kQuestionAnswering && task.kind != TaskKind::kEmbedding;
  if (metric != kLossFigure || !has_loss) {
    throw ConfigError(fmt::format("metric_for_best_model: is {}; task {} has {}{}", metric, task.name,
                                  fmt::join(task.metrics, ", "), has_loss ? ", loss" : ""));
  }
  task.metrics.insert(task.metrics.begin(), metric);
}

std::vector<TaskSet> read_sets(FinetuningInputs& inputs, TaskSplit split, const RunNote& note) {
  std::vector<TaskSet> sets;
  for (const FoundFile& found : find_files(inputs.config, inputs.task, split)) {
    TaskSet& set = sets.emplace_back();
    if (inputs.task.kind == TaskKind::kEmbedding) {
      set.examples = read_evaluation_rows(found.path, inputs.config.embedding);
      set.examples.source = found.file;
      set.features = make_row_features(set.examples, *inputs.tokenizer, inputs.config.data.task,
                                       row_prompts(inputs.config.embedding));
      set.features.num_outputs = vector_size(inputs.head.sentence, inputs.config.model.hidden_size);
    } else {
      expect_pairs(inputs.task, inputs.config.data.task, found.path);
      set.examples = read_task(inputs.task, found.file, found.path, inputs.config.data.task, TaskUse::kScoring);
      if (!set.examples.remark.empty()) note(set.examples.remark);
      choices_of(set.examples, inputs.head.choices);
      set.features = make_features(set.examples, *inputs.tokenizer, inputs.config.data.task, /*for_training=*/false);
      say_cut(found.path, set.features, set.examples, inputs.config.data.task, note);
    }
    check_segments(inputs.config, set.features, found.path);
    inputs.data[key_of(found.file)] = file_identity(found.path, set.examples.size());
  }
  return sets;
}

}  // namespace

int64_t longest_unit(const FinetuningInputs& inputs) {
  const auto longest_of = [](const TaskFeatures& features) {
    size_t longest = 0;
    for (const TaskSequence& sequence : features.sequences) longest = std::max(longest, sequence.input_ids.size());
    return static_cast<int64_t>(longest);
  };
  int64_t longest = 0;
  if (inputs.train && !inputs.train->text_ends.empty()) {
    for (int64_t text = 0; text < inputs.train->units(1); ++text)
      longest = std::max(longest, inputs.train->tokens_of(text, 1));
    return longest;
  }
  if (inputs.train) return longest_of(*inputs.train) * inputs.head.unit();
  for (const RowSet& set : inputs.embedding.sets) longest = std::max(longest, longest_of(*set.features) * set.columns);
  return longest;
}

std::vector<float> balanced_class_weights(const TaskFeatures& train) {
  if (train.multi_label) return weights_of_yes(train);
  std::vector<double> counts(static_cast<size_t>(train.num_outputs));
  const auto count = [&](int32_t label) {
    if (label >= 0) ++counts[static_cast<size_t>(label)];
  };
  for (int64_t unit = 0; unit < train.units(1); ++unit) {
    const TaskSequence& sequence = train.sequences[static_cast<size_t>(train.unit(unit, 1).first)];
    if (train.kind == TaskKind::kTokenClassification) {
      for (const int32_t label : sequence.token_labels) count(label);
    } else {
      count(sequence.label);
    }
  }
  double total = 0;
  for (const double each : counts) total += each;
  std::vector<float> weights;
  for (const double each : counts) {
    weights.push_back(each > 0 ? static_cast<float>(total / (static_cast<double>(counts.size()) * each)) : 0.0F);
  }
  return weights;
}

FinetuningInputs read_finetuning_inputs(const FinetuneConfig& config, const RunPlace& place) {
  expect_same_config(place.group, to_json(config), config.distributed.timeout_seconds, [&](const std::string& other) {
    return compare(config, parse_finetune_config(other, "another rank's configuration"));
  });
  check_micro_batches(config, get_world_size(place.group));
  FinetuningInputs inputs;
  const RunNote note = print_and_keep(config, get_rank(place.group), inputs.notes);
  inputs.config = config;
  inputs.task = task_definition(config.task);
  apply_settings(inputs.task, config.data.task);
  inputs.newest = find_newest(config, place.group, note);
  inputs.start = read_start(config, inputs.newest, note);
  take_vocabulary(inputs, note);
  if (config.data.task.entity_markers != EntityMarkers::kNone) {
    if (inputs.vocabulary_rows) expect_entity_markers(inputs.start.model.vocabulary, config.data.vocab_file);
    const int64_t added = add_entity_markers(inputs.start, config.seed);
    if (added > 0) note(fmt::format("{} entity markers are new tokens, with new rows of the word embeddings", added));
    inputs.config.model.vocab_size = inputs.start.model.config.vocab_size;  // with the rows that the run adds
  }
  take_model(inputs.config, inputs.start.model, inputs.start.name, /*begins=*/inputs.newest < 0);
  if (inputs.task.kind == TaskKind::kEmbedding && !inputs.config.given.contains("/data/max_seq_length"))
    inputs.config.data.task.max_seq_length = most_tokens(inputs.start.model);
  check_room(inputs.config, inputs.start.name);
  inputs.tokenizer = tokenizer_for(inputs.config, inputs.start);
  note(fmt::format("reading and tokenizing the files of task {}", config.task));
  const bool embeds = inputs.task.kind == TaskKind::kEmbedding;
  if (embeds) {
    read_embedding_training(inputs, note);
  } else {
    read_training(inputs, note);
  }
  inputs.dev = read_sets(inputs, TaskSplit::kDev, note);
  inputs.test = read_sets(inputs, TaskSplit::kTest, note);
  if (inputs.dev.empty()) {
    leave_out_evaluations(inputs.config, note);
  } else if (embeds) {
    inputs.task.metrics = embedding_metrics(inputs.dev.front().examples.has_labels);
  }
  fit_settings(inputs.config, inputs.task);
  if (!inputs.config.distillation.teacher.empty() && !embeds) {
    inputs.teacher = read_teacher(
        {.config = inputs.config, .task = inputs.task, .tokenizer = *inputs.tokenizer, .train = *inputs.train}, note);
  }
  if (inputs.teacher) inputs.data["distillation.teacher"] = identity_of_teacher(*inputs.teacher);
  const auto earlier = [](const std::string& json, const std::string& name) {
    return parse_finetune_config(json, name).micro_batch_size;
  };
  inputs.config.micro_batch_size =
      choose_micro_batch(inputs.config, parameter_sizes(inputs.config.model),
                         {.tokens = static_cast<double>(longest_unit(inputs))}, place, earlier, note);
  expect_same_data(place.group, inputs.data, config.distributed.timeout_seconds);
  return inputs;
}

}  // namespace bert
