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
#include "data/io/error.h"
#include "data/io/files.h"
#include "data/io/mapping_guard.h"
#include "data/tasks/task_definition.h"

namespace bert {
namespace {

constexpr const char* kWordEmbeddings = "bert.embeddings.word_embeddings.weight";
constexpr const char* kPredictionBias = "cls.predictions.bias";
constexpr const char* kDecoderWeight = "cls.predictions.decoder.weight";
constexpr const char* kDecoderBias = "cls.predictions.decoder.bias";
// Rows that a vocabulary may be padded by: one less than the largest multiple that programs round up to.
constexpr int64_t kMostPadding = 1023;

using TensorsByName = std::map<std::string, TensorSource>;

/// The name in today's transformers of a tensor with an older name, or of a bare encoder.
std::string modern_name(std::string name) {
  const auto replace_end = [&](std::string_view old_end, std::string_view new_end) {
    if (name.ends_with(old_end)) name.replace(name.size() - old_end.size(), old_end.size(), new_end);
  };
  replace_end("LayerNorm.gamma", "LayerNorm.weight");
  replace_end("LayerNorm.beta", "LayerNorm.bias");
  for (const char* part : {"embeddings.", "encoder.", "pooler."}) {
    if (name.starts_with(part)) return "bert." + name;
  }
  return name;
}

/// True for buffers that old versions of transformers saved beside the weights.
bool is_buffer(const std::string& name) {
  return name == "bert.embeddings.position_ids" || name == "bert.embeddings.token_type_ids";
}

TensorsByName by_modern_name(const std::string& path, std::vector<TensorSource> found) {
  TensorsByName tensors;
  for (TensorSource& tensor : found) {
    const std::string before = tensor.name;
    tensor.name = modern_name(before);
    const std::string name = tensor.name;
    if (!tensors.emplace(name, std::move(tensor)).second) {
      throw DataError(fmt::format("{}: tensor {}: is there twice, also under another name of {}; expected one value",
                                  path, before, name));
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
  TensorsByName tensors = by_modern_name(checkpoint.path, std::move(found));
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

void take_head(ForeignCheckpoint& checkpoint, const std::vector<TensorSource>& found) {
  const TaskKind kind = task_definition(checkpoint.model.task).kind;
  const bool answers = kind == TaskKind::kQuestionAnswering;
  const bool pooler = !answers && kind != TaskKind::kTokenClassification;
  ImportReport& report = checkpoint.report;
  const auto unfit = [&](const std::string& name) {
    const BertPart part = part_of(name);
    return part != BertPart::kEncoder && !(part == BertPart::kPooler && pooler);
  };
  std::erase_if(checkpoint.tensors, [&](const TensorSource& tensor) { return unfit(tensor.name); });
  std::copy_if(report.loaded.begin(), report.loaded.end(), std::back_inserter(report.unexpected), unfit);
  std::erase_if(report.loaded, unfit);
  report.missing.clear();  // the heads of pre-training
  checkpoint.model.masked_token_head = false;
  if (pooler && !checkpoint.has(BertPart::kPooler))
    throw DataError(checkpoint.path + ": lacks bert.pooler, which feeds the head of task " + checkpoint.model.task);

  const auto labels = static_cast<int64_t>(checkpoint.model.labels.size());
  const int64_t rows = answers ? 2 : labels > 0 ? labels : 1, hidden = checkpoint.model.config.hidden_size;
  const std::string head = answers ? "qa_outputs" : "classifier";
  const auto take = [&](const std::string& name, const std::vector<int64_t>& shape) {
    const auto tensor =
        std::find_if(found.begin(), found.end(), [&](const TensorSource& each) { return each.name == name; });
    if (tensor == found.end())
      throw DataError(
          fmt::format("{}: lacks tensor {}, the head of task {}", checkpoint.path, name, checkpoint.model.task));
    check_dtype(checkpoint.path, *tensor);
    if (tensor->shape != shape) {
      throw DataError(fmt::format("{}: tensor {}: has shape {}; expected {} by hidden_size and the labels",
                                  checkpoint.path, name, shape_text(tensor->shape), shape_text(shape)));
    }
    checkpoint.tensors.push_back(*tensor);
    report.loaded.push_back(name);
    std::erase(report.unexpected, name);
  };
  take(head + ".weight", {rows, hidden});
  take(head + ".bias", {rows});
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
