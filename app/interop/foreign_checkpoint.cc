#include "app/interop/foreign_checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "app/parse/bounded_json.h"
#include "cuda_ext/window_pooling.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "data/io/mapping_guard.h"
#include "data/tasks/task_definition.h"

namespace bert {
namespace {

constexpr const char* kDecoderWeight = "cls.predictions.decoder.weight";
constexpr const char* kDecoderBias = "cls.predictions.decoder.bias";
// Rows that a vocabulary may be padded by: one less than the largest multiple that programs round up to.
constexpr int64_t kMostPadding = 1023;

using TensorsByName = std::map<std::string, TensorSource>;

constexpr const char* kClassifier = "classifier";
constexpr const char* kAnswers = "qa_outputs";

void replace_end(std::string& name, std::string_view old_end, std::string_view new_end) {
  if (name.ends_with(old_end)) name.replace(name.size() - old_end.size(), old_end.size(), new_end);
}

/// The name in today's transformers of a tensor with an older name, of a bare encoder, or of Google's head of a task.
std::string modern_name(std::string name) {
  replace_end(name, "LayerNorm.gamma", "LayerNorm.weight");
  replace_end(name, "LayerNorm.beta", "LayerNorm.bias");
  constexpr std::pair<std::string_view, std::string_view> kHeads[] = {{"output_weights", "classifier.weight"},
                                                                      {"output_bias", "classifier.bias"},
                                                                      {"cls.squad.weight", "qa_outputs.weight"},
                                                                      {"cls.squad.bias", "qa_outputs.bias"}};
  for (const auto& [google, modern] : kHeads) {
    if (name == google) return std::string(modern);
  }
  for (const char* part : {"embeddings.", "encoder.", "pooler."}) {
    if (name.starts_with(part)) return "bert." + name;
  }
  return name;
}

/// The text before BERT's own names, such as "module."; "" if there is none.
std::string prefix_of(const std::vector<TensorSource>& found) {
  constexpr std::string_view kWords = "embeddings.word_embeddings.weight", kEncoder = "bert.";
  std::string prefix;
  for (const TensorSource& tensor : found) {
    if (!tensor.name.ends_with(kWords)) continue;
    prefix = tensor.name.substr(0, tensor.name.size() - kWords.size());
    replace_end(prefix, kEncoder, "");
    if (prefix.empty()) return prefix;
  }
  return prefix;
}

/// True for what DistributedDataParallel, torch.compile and Lightning put before the names of a model.
bool is_of_wrappers(std::string_view prefix) {
  while (!prefix.empty()) {
    const size_t before = prefix.size();
    for (const std::string_view wrapper : {"module.", "_orig_mod.", "model."}) {
      if (prefix.starts_with(wrapper)) prefix.remove_prefix(wrapper.size());
    }
    if (prefix.size() == before) return false;
  }
  return true;
}

/// True for buffers that old versions of transformers saved beside the weights.
bool is_buffer(const std::string& name) {
  return name == "bert.embeddings.position_ids" || name == "bert.embeddings.token_type_ids";
}

TensorsByName by_name(const std::string& path, std::vector<TensorSource> found) {
  TensorsByName tensors;
  for (TensorSource& tensor : found) {
    const std::string name = tensor.name;
    if (!tensors.emplace(name, std::move(tensor)).second) {
      throw DataError(
          fmt::format("{}: tensor {}: is there twice, also under another name; expected one value", path, name));
    }
  }
  return tensors;
}

std::string checksum_of(const TensorSource& tensor) {
  const std::string_view bytes = tensor.bytes();
  return checksum(bytes.data(), bytes.size());
}

/// Removes the tensor `copy`, which must repeat `original`. If `original` is absent, the copy takes its name.
void tie(ForeignCheckpoint& checkpoint, TensorsByName& tensors, const char* copy, const char* original) {
  auto repeated = tensors.extract(copy);
  if (repeated.empty()) return;
  const auto first = tensors.find(original);
  if (first == tensors.end()) {
    repeated.key() = repeated.mapped().name = original;
    tensors.insert(std::move(repeated));
    return;
  }
  const TensorSource &a = repeated.mapped(), &b = first->second;
  if (a.dtype != b.dtype || a.shape != b.shape || checksum_of(a) != checksum_of(b)) {
    throw DataError(fmt::format(
        "{}: tensor {}: differs from {}; expected the same values, because BERT's decoder is tied to its embeddings",
        checkpoint.path, copy, original));
  }
  checkpoint.report.ignored.emplace_back(copy);
}

void check_dtype(const std::string& path, const TensorSource& tensor) {
  for (const char* dtype : {"F32", "F16", "BF16", "F64"}) {
    if (tensor.dtype == dtype) return;
  }
  throw DataError(fmt::format("{}: tensor {}: has dtype {}; expected weights in F32, F16, BF16 or F64", path,
                              tensor.name, tensor.dtype));
}

int64_t bytes_of(const TensorSource& tensor) {
  int64_t bytes = element_bytes(tensor.dtype);
  for (const int64_t size : tensor.shape) bytes *= size;
  return bytes;
}

/// Gives the tensor `rows` rows; new rows are zeros. Returns false if that is more than padding.
bool pad_or_cut(TensorSource& tensor, int64_t rows) {
  const int64_t before = tensor.shape.front();
  if (before - rows > kMostPadding || rows - before > kMostPadding) return false;
  tensor.shape.front() = rows;
  const auto bytes = static_cast<size_t>(bytes_of(tensor));
  if (rows < before) {
    tensor.bytes = [whole = std::move(tensor.bytes), bytes] { return whole().substr(0, bytes); };
  } else {
    tensor.mapping = nullptr;
    tensor.bytes = [part = std::move(tensor.bytes), bytes, padded = std::make_shared<std::string>()] {
      const std::string_view mapped = part();
      padded->assign(mapped);
      expect_whole_mapping(mapped.data());
      padded->resize(bytes, '\0');
      return std::string_view(*padded);
    };
  }
  return true;
}

std::string shape_text(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

/// Gives a tensor the shape of its parameter: pads or cuts rows of the vocabulary. Throws DataError for other shapes.
void fit_shape(ForeignCheckpoint& checkpoint, TensorSource& tensor, const BertParameter& parameter) {
  if (tensor.shape == parameter.shape) return;
  const std::vector<int64_t> before = tensor.shape;
  const bool other_rows_alone = parameter.has_vocabulary_rows && before.size() == parameter.shape.size() &&
                                std::equal(before.begin() + 1, before.end(), parameter.shape.begin() + 1);
  if (!other_rows_alone || !pad_or_cut(tensor, parameter.shape.front())) {
    throw DataError(fmt::format("{}: tensor {}: has shape {}; expected {} by the configuration", checkpoint.path,
                                tensor.name, shape_text(before), shape_text(parameter.shape)));
  }
  if (before.front() < static_cast<int64_t>(checkpoint.model.vocabulary.size())) {
    throw DataError(fmt::format("{}: tensor {}: has {} rows; expected one for each of the {} tokens of the vocabulary",
                                checkpoint.path, tensor.name, before.front(), checkpoint.model.vocabulary.size()));
  }
  checkpoint.report.reshaped.push_back(
      fmt::format("{}: {}, now {}", tensor.name, shape_text(before), shape_text(tensor.shape)));
}

/// Throws DataError if some parameters of a part are there and others are not, or if the encoder is incomplete.
void check_parts(const std::string& path, const std::vector<BertParameter>& parameters, const TensorsByName& tensors) {
  std::map<BertPart, std::vector<std::string>> missing;
  std::set<BertPart> present = {BertPart::kEncoder};
  for (const BertParameter& parameter : parameters) {
    if (tensors.contains(parameter.name)) {
      present.insert(parameter.part);
    } else {
      missing[parameter.part].push_back(parameter.name);
    }
  }
  for (const auto& [part, names] : missing) {
    if (!present.contains(part)) continue;
    constexpr size_t kShown = 5;
    const std::vector<std::string> shown(names.begin(),
                                         names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), kShown)));
    throw DataError(fmt::format(
        "{}: lacks {} tensors of BERT: {}{}; expected {}", path, names.size(), fmt::join(shown, ", "),
        names.size() > kShown ? ", ..." : "",
        part == BertPart::kEncoder ? "all of the encoder that config.json describes" : "all of a head, or none"));
  }
  if (present.contains(BertPart::kSentencePairHead) && !present.contains(BertPart::kPooler))
    throw DataError(path + ": has cls.seq_relationship without bert.pooler, which feeds that head");
}

}  // namespace

std::string ImportReport::text() const {
  std::string text = fmt::format("{} tensors loaded, {} missing, {} unexpected, {} reshaped, {} ignored", loaded.size(),
                                 missing.size(), unexpected.size(), reshaped.size(), ignored.size());
  const auto list = [&](const char* kind, const std::vector<std::string>& names) {
    for (const std::string& name : names) text += fmt::format("\n  {}: {}", kind, name);
  };
  list("missing", missing);
  list("unexpected", unexpected);
  list("reshaped", reshaped);
  list("ignored", ignored);
  list("note", notes);
  return text;
}

bool ImportReport::plain() const { return missing.empty() && unexpected.empty() && reshaped.empty() && notes.empty(); }

bool ForeignCheckpoint::has(BertPart part) const {
  return std::any_of(tensors.begin(), tensors.end(),
                     [&](const TensorSource& tensor) { return part_of(tensor.name) == part; });
}

void take_tensors(ForeignCheckpoint& checkpoint, std::vector<TensorSource> found) {
  TensorsByName tensors = by_name(checkpoint.path, std::move(found));
  tie(checkpoint, tensors, kDecoderWeight, kWordEmbeddings);
  tie(checkpoint, tensors, kDecoderBias, kPredictionBias);
  const std::vector<BertParameter> parameters = bert_parameters(checkpoint.model.config);
  check_parts(checkpoint.path, parameters, tensors);
  const bool masked_tokens = tensors.contains(kPredictionBias);
  const bool pairs = tensors.contains("cls.seq_relationship.weight");
  const bool pooler = tensors.contains("bert.pooler.dense.weight") && (pairs || !masked_tokens);
  checkpoint.model.objective = pooler ? Objective::kNsp : Objective::kMlm;
  checkpoint.model.masked_token_head = masked_tokens;
  for (const BertParameter& parameter : parameters) {
    const auto tensor = tensors.find(parameter.name);
    if (tensor == tensors.end() || (parameter.part == BertPart::kPooler && !pooler)) {
      if (tensor == tensors.end()) checkpoint.report.missing.push_back(parameter.name);
      continue;
    }
    check_dtype(checkpoint.path, tensor->second);
    fit_shape(checkpoint, tensor->second, parameter);
    checkpoint.report.loaded.push_back(parameter.name);
    checkpoint.tensors.push_back(std::move(tensor->second));
    tensors.erase(tensor);
  }
  for (const auto& [name, tensor] : tensors)
    (is_buffer(name) ? checkpoint.report.ignored : checkpoint.report.unexpected).push_back(name);
}

void use_modern_names(const std::string& path, std::vector<TensorSource>& found) {
  const std::string prefix = prefix_of(found);
  if (!is_of_wrappers(prefix)) {
    throw DataError(fmt::format(
        "{}: the names of its tensors begin with {}, as in {}bert.embeddings.word_embeddings.weight; expected names of "
        "BERT, or the prefixes module., _orig_mod. and model. of wrappers. Save the BERT that is inside",
        path, prefix, prefix));
  }
  for (TensorSource& tensor : found) {
    if (tensor.name.starts_with(prefix)) tensor.name.erase(0, prefix.size());
    tensor.name = modern_name(std::move(tensor.name));
  }
}

namespace {

const TensorSource* find_tensor(const std::vector<TensorSource>& found, const std::string& name) {
  const auto tensor =
      std::find_if(found.begin(), found.end(), [&](const TensorSource& each) { return each.name == name; });
  return tensor == found.end() ? nullptr : &*tensor;
}

/// True for labels such as B-PER and I-PER.
bool are_of_entities(const std::vector<std::string>& labels) {
  return std::any_of(labels.begin(), labels.end(),
                     [](const std::string& label) { return label.starts_with("B-") || label.starts_with("I-"); });
}

/// The task whose head is among the tensors; "" if none is.
std::string task_in(const ForeignCheckpoint& checkpoint, const std::vector<TensorSource>& found) {
  if (find_tensor(found, std::string(kAnswers) + ".weight") != nullptr) return "squad-v1";
  if (find_tensor(found, std::string(kClassifier) + ".weight") == nullptr) return "";
  const bool words = are_of_entities(checkpoint.model.labels) || !checkpoint.has(BertPart::kPooler);
  return words ? "ner" : "text-classification";
}

/// Adds a tensor of a task's model. Throws DataError for another dtype or shape.
void take_task_tensor(ForeignCheckpoint& checkpoint, const TensorSource& tensor, const std::vector<int64_t>& shape) {
  check_dtype(checkpoint.path, tensor);
  if (tensor.shape != shape) {
    throw DataError(fmt::format("{}: tensor {}: has shape {}; expected {} by hidden_size", checkpoint.path, tensor.name,
                                shape_text(tensor.shape), shape_text(shape)));
  }
  checkpoint.tensors.push_back(tensor);
  checkpoint.report.loaded.push_back(tensor.name);
  std::erase(checkpoint.report.unexpected, tensor.name);
}

/// Adds the head `name` of the task. Returns the number of its outputs.
int64_t take_head(ForeignCheckpoint& checkpoint, const std::vector<TensorSource>& found, const std::string& name) {
  int64_t rows = 0;
  for (const char* part : {".weight", ".bias"}) {
    const TensorSource* tensor = find_tensor(found, name + part);
    if (tensor == nullptr)
      throw DataError(fmt::format("{}: lacks tensor {}{}, the head of task {}", checkpoint.path, name, part,
                                  checkpoint.model.task));
    if (rows == 0) rows = tensor->shape.empty() ? 0 : tensor->shape.front();
    std::vector<int64_t> shape = {rows};
    const int64_t inputs = (checkpoint.model.start_markers ? 2 : 1) * checkpoint.model.config.hidden_size;
    if (tensor->name.ends_with("weight")) shape.push_back(inputs);
    take_task_tensor(checkpoint, *tensor, shape);
  }
  return rows;
}

/// Gives the outputs of the head their names, as transformers' pipelines do.
void name_outputs(ForeignCheckpoint& checkpoint, TaskKind kind, int64_t outputs) {
  ModelDescription& model = checkpoint.model;
  const auto labels = std::ssize(model.labels);
  const bool answers = kind == TaskKind::kQuestionAnswering, choices = kind == TaskKind::kMultipleChoice;
  if (answers || choices || (kind == TaskKind::kRegression && outputs == 1)) model.labels.clear();
  const int64_t expected = answers ? 2 : choices ? 1 : model.labels.empty() ? outputs : labels;
  if (outputs != expected)
    throw DataError(fmt::format("{}: the head of task {} has {} outputs; expected {}, as the labels say",
                                checkpoint.path, model.task, outputs, expected));
  if (answers || choices || !model.labels.empty() || (kind == TaskKind::kRegression && outputs == 1)) return;
  for (int64_t i = 0; i < outputs; ++i) model.labels.push_back(fmt::format("LABEL_{}", i));
}

}  // namespace

void take_task(ForeignCheckpoint& checkpoint, const std::vector<TensorSource>& found) {
  ModelDescription& model = checkpoint.model;
  if (model.task.empty()) model.task = task_in(checkpoint, found);
  if (model.task.empty()) return model.labels.clear();
  const TaskKind kind = task_definition(model.task).kind;
  const bool answers = kind == TaskKind::kQuestionAnswering;
  const TensorSource* classifier = find_tensor(found, std::string(kClassifier) + ".weight");
  model.start_markers = kind == TaskKind::kClassification && classifier != nullptr && classifier->shape.size() == 2 &&
                        classifier->shape[1] == 2 * model.config.hidden_size;
  const bool pooler = !answers && kind != TaskKind::kTokenClassification && !model.start_markers;
  ImportReport& report = checkpoint.report;
  const auto unfit = [&](const std::string& name) {
    const BertPart part = part_of(name);
    return part != BertPart::kEncoder && !(part == BertPart::kPooler && pooler);
  };
  std::erase_if(checkpoint.tensors, [&](const TensorSource& tensor) { return unfit(tensor.name); });
  std::copy_if(report.loaded.begin(), report.loaded.end(), std::back_inserter(report.unexpected), unfit);
  std::erase_if(report.loaded, unfit);
  report.missing.clear();  // the heads of pre-training
  model.masked_token_head = false;
  if (pooler && !checkpoint.has(BertPart::kPooler))
    throw DataError(checkpoint.path + ": lacks bert.pooler, which feeds the head of task " + model.task);
  const int64_t outputs = take_head(checkpoint, found, answers ? kAnswers : kClassifier);
  name_outputs(checkpoint, kind, outputs);
  const TensorSource* attention = find_tensor(found, kWindowAttention);
  if (attention != nullptr && pooler && kind != TaskKind::kMultipleChoice)
    take_task_tensor(checkpoint, *attention, {model.config.hidden_size});
  // A single output without a problem_type is the logit of a yes, as in transformers' pipeline.
  if (kind == TaskKind::kClassification && outputs == 1) model.multi_label = true;
}

void take_all(ForeignCheckpoint& checkpoint, std::vector<TensorSource> found, const ForeignOptions& options) {
  use_modern_names(checkpoint.path, found);
  take_tensors(checkpoint, found);
  if (options.task_head) return take_task(checkpoint, found);
  checkpoint.model.task.clear();
  checkpoint.model.labels.clear();
}

void resize_vocabulary(ForeignCheckpoint& checkpoint, int64_t rows) {
  if (rows < static_cast<int64_t>(checkpoint.model.vocabulary.size())) {
    throw DataError(fmt::format("{}: has {} tokens; expected at most vocab_size {}", checkpoint.path,
                                checkpoint.model.vocabulary.size(), rows));
  }
  checkpoint.model.config.vocab_size = rows;
  const std::vector<BertParameter> parameters = bert_parameters(checkpoint.model.config);
  for (TensorSource& tensor : checkpoint.tensors) {
    const auto parameter = std::find_if(parameters.begin(), parameters.end(),
                                        [&](const BertParameter& each) { return each.name == tensor.name; });
    if (parameter != parameters.end() && parameter->has_vocabulary_rows) fit_shape(checkpoint, tensor, *parameter);
  }
}

std::string vocabulary_difference(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  const auto quoted = [](const std::vector<std::string>& tokens, size_t id) {
    return id < tokens.size() ? as_text(tokens[id]) : std::string("absent");
  };
  const size_t id = static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
  if (id == a.size() && id == b.size()) return {};
  return fmt::format("token {} is {} there and {} here", id, quoted(a, id), quoted(b, id));
}

}  // namespace bert
