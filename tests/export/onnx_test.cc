// BERT as a file of ONNX, next to Hugging Face's results.
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "app/export/onnx_bert.h"
#include "app/export/onnx_file.h"
#include "app/interop/bert_parameters.h"
#include "data/io/error.h"
#include "tests/support/onnx_evaluator.h"
#include "tests/support/onnx_file.h"
#include "tests/support/onnx_runtime.h"
#include "tests/testing.h"

namespace bert {
namespace {

using nlohmann::json;
using testing::Array;
using testing::Contains;
using testing::OnnxFile;
using testing::OnnxTensor;
using testing::read_onnx;
using testing::TemporaryDirectory;

const char* const kArchitectures[] = {"BertForPreTraining",         "BertForMaskedLM",
                                      "BertForQuestionAnswering",   "BertForSequenceClassification",
                                      "BertForTokenClassification", "BertForMultipleChoice"};

/// The results of a small BERT by transformers: tests/golden/bert_pretraining.py.
struct Golden {
  json all = json::parse(std::ifstream(testing::golden("bert_pretraining.json")));

  [[nodiscard]] BertConfig config(const std::string& hidden_act) const {
    const json& c = all.at("config");
    return {.vocab_size = c.at("vocab_size"),
            .hidden_size = c.at("hidden_size"),
            .num_hidden_layers = c.at("num_hidden_layers"),
            .num_attention_heads = c.at("num_attention_heads"),
            .intermediate_size = c.at("intermediate_size"),
            .hidden_act = value_named<Activation>(hidden_act).value(),
            .max_position_embeddings = c.at("max_position_embeddings"),
            .type_vocab_size = c.at("type_vocab_size"),
            .layer_norm_eps = c.at("layer_norm_eps")};
  }
};

uint16_t half_bits(double value) {  // by trying: the nearest of all finite numbers
  uint16_t best = 0;
  for (uint32_t bits = 0; bits < 0x7c00; ++bits) {
    const auto candidate = static_cast<uint16_t>(bits);
    const auto distance = [&](uint16_t number) {
      char bytes[2];
      std::memcpy(bytes, &number, 2);
      return std::abs(testing::half_at(bytes) - std::abs(value));
    };
    if (distance(candidate) < distance(best)) best = candidate;
  }
  return static_cast<uint16_t>(value < 0 ? best | 0x8000 : best);
}

TensorSource floats(const std::string& name, const std::vector<int64_t>& shape, const json& values) {
  const auto bytes = std::make_shared<std::string>();
  for (const json& value : values) {
    const float number = value.get<float>();
    bytes->append(reinterpret_cast<const char*>(&number), sizeof number);
  }
  return {.name = name, .dtype = "F32", .shape = shape, .bytes = [bytes] { return std::string_view(*bytes); }};
}

NamedModel golden_model(const Golden& golden, const std::string& architecture, const std::string& hidden_act = "gelu") {
  NamedModel model{.name = "golden", .config = golden.config(hidden_act), .architecture = architecture, .tensors = {}};
  for (const BertParameter& parameter : bert_parameters(model.config))
    model.tensors.push_back(floats(parameter.name, parameter.shape, golden.all.at("weights").at(parameter.name)));
  if (!golden.all.at("heads").contains(architecture)) return model;
  for (const auto& [name, values] : golden.all.at("heads").at(architecture).items()) {
    const auto size = static_cast<int64_t>(values.size()), hidden = model.config.hidden_size;
    model.tensors.push_back(
        floats(name, name.ends_with("weight") ? std::vector{size / hidden, hidden} : std::vector{size}, values));
  }
  return model;
}

/// The same with weights in fp16. Equal numbers are converted once.
void make_half(NamedModel& model) {
  std::map<double, uint16_t> known;
  for (TensorSource& tensor : model.tensors) {
    const auto bytes = std::make_shared<std::string>();
    for (const double value : testing::values_of("F32", tensor.bytes())) {
      const auto [found, is_new] = known.try_emplace(value, uint16_t{0});
      if (is_new) found->second = half_bits(value);
      bytes->append(reinterpret_cast<const char*>(&found->second), sizeof(uint16_t));
    }
    tensor.dtype = "F16";
    tensor.bytes = [bytes] { return std::string_view(*bytes); };
  }
}

OnnxFile written(const NamedModel& model, const std::string& path, int64_t largest = kLargestOnnxFile) {
  write_onnx(
      path, bert_onnx_graph(model), {}, [](size_t) {}, largest);
  return read_onnx(path);
}

/// Sequences of the golden's batch.
struct Rows {
  size_t begin, end, columns;
};
constexpr Rows kAllRows = {0, 4, 9}, kLastRows = {2, 4, 7};  // the longest sequences have 9 and 7 tokens

/// The inputs of a call, as integers in the shape of the model.
json call_of(const Golden& golden, const Rows& rows, bool choices) {
  json call;
  for (const char* name : {"input_ids", "attention_mask", "token_type_ids"}) {
    json matrix = json::array();
    for (size_t row = rows.begin; row < rows.end; ++row) {
      const json& all = golden.all.at(name).at(row);
      matrix.push_back(std::vector<int64_t>(all.begin(), all.begin() + static_cast<int64_t>(rows.columns)));
    }
    if (choices) {  // two for each question
      json questions = json::array();
      for (size_t i = 0; i < matrix.size(); i += 2) questions.push_back({matrix[i], matrix[i + 1]});
      matrix = questions;
    }
    call[name] = matrix;
  }
  return call;
}

std::map<std::string, Array> arrays(const json& call) {
  std::map<std::string, Array> result;
  for (const auto& [name, value] : call.items()) {
    Array array;
    for (const json* part = &value; part->is_array(); part = &part->at(0))
      array.shape.push_back(static_cast<int64_t>(part->size()));
    std::function<void(const json&)> add = [&](const json& part) {
      if (part.is_array()) {
        for (const json& inner : part) add(inner);
      } else {
        array.values.push_back(part.get<double>());
      }
    };
    add(value);
    result[name] = array;
  }
  return result;
}

/// The difference of `got`, one row of numbers for each sequence or token, from the golden's `want`, which has the real
/// tokens of all sequences alone. Returns the largest.
double difference(const Golden& golden, const Rows& rows, bool per_token, const Array& got, const json& want) {
  const json& mask = golden.all.at("attention_mask");
  const auto real = [&](size_t row, size_t column) { return mask.at(row).at(column).get<int>() == 1; };
  size_t units = 0;  // rows of numbers in the golden
  for (size_t row = 0; row < 4; ++row) {
    for (size_t column = 0; column < (per_token ? 9 : 1); ++column) units += real(row, column) ? 1 : 0;
  }
  const size_t width = want.size() / units, columns = per_token ? rows.columns : 1;
  REQUIRE(got.values.size() == (rows.end - rows.begin) * columns * width);
  double worst = 0;
  size_t from = 0;
  for (size_t row = 0; row < rows.end; ++row) {
    for (size_t column = 0; column < (per_token ? 9 : 1); ++column) {
      if (!real(row, column)) continue;
      for (size_t i = 0; i < width && row >= rows.begin; ++i) {
        const double value = got.values.at(((row - rows.begin) * columns + column) * width + i);
        worst = std::max(worst, std::abs(value - want.at(from + i).get<double>()));
      }
      from += width;
    }
  }
  return worst;
}

/// The largest difference of the outputs of a model from the golden.
double difference(const Golden& golden, const std::string& architecture, const std::string& hidden_act,
                  const Rows& rows, const std::map<std::string, Array>& got) {
  const json& want = golden.all.at("cases").at(hidden_act);
  const auto of = [&](const char* output, const json& values, bool per_token) {
    return difference(golden, rows, per_token, got.at(output), values);
  };
  if (architecture == "BertForPreTraining") {
    return std::max(of("prediction_logits", want.at("mlm_logits"), true),
                    of("seq_relationship_logits", want.at("nsp_logits"), false));
  }
  if (architecture == "BertForMaskedLM") return of("logits", want.at("mlm_logits"), true);
  const json& values = want.at(architecture);
  if (architecture == "BertForQuestionAnswering") {
    const auto half = values.begin() + static_cast<int64_t>(values.size() / 2);
    return std::max(of("start_logits", json(std::vector<double>(values.begin(), half)), true),
                    of("end_logits", json(std::vector<double>(half, values.end())), true));
  }
  return of("logits", values, architecture == "BertForTokenClassification");
}

TEST_CASE("A file of ONNX computes what Hugging Face computes, for every head, GELU and shape", "[golden][onnx]") {
  const Golden golden;
  const TemporaryDirectory directory;
  for (const std::string architecture : kArchitectures) {
    for (const char* act : {"gelu", "gelu_new"}) {
      const OnnxFile file = written(golden_model(golden, architecture, act), directory.path("bert.onnx"));
      for (const Rows& rows : {kAllRows, kLastRows}) {
        CAPTURE(architecture, act, rows.columns);
        const json call = call_of(golden, rows, architecture == "BertForMultipleChoice");
        CHECK(difference(golden, architecture, act, rows, testing::evaluate(file, arrays(call))) < 1e-5);
      }
    }
  }
}

TEST_CASE("The golden of files of ONNX notices another eps and the other GELU", "[golden][onnx]") {
  const Golden golden;
  const TemporaryDirectory directory;
  NamedModel eps = golden_model(golden, "BertForTokenClassification", "gelu");
  eps.config.layer_norm_eps = 1e-5;
  const std::map<std::string, Array> inputs = arrays(call_of(golden, kAllRows, false));
  for (const NamedModel& other : {eps, golden_model(golden, "BertForTokenClassification", "gelu_new")}) {
    const auto outputs = testing::evaluate(written(other, directory.path("bert.onnx")), inputs);
    CHECK(difference(golden, other.architecture, "gelu", kAllRows, outputs) > 1e-5);
  }
}

TEST_CASE("ONNX Runtime accepts the files and computes what Hugging Face computes", "[golden][onnx]") {
  if (testing::onnx_python().empty()) BERT_SKIP("BERT_ONNX_PYTHON does not name a Python with onnx and onnxruntime");
  const Golden golden;
  const TemporaryDirectory directory;
  for (const std::string architecture : kArchitectures) {
    for (const char* act : {"gelu", "gelu_new"}) {
      for (const bool half : {false, true}) {
        CAPTURE(architecture, act, half);
        NamedModel model = golden_model(golden, architecture, act);
        if (half) make_half(model);
        const bool outside = architecture == "BertForPreTraining";  // the tensors are in a second file
        written(model, directory.path("bert.onnx"), outside ? 4096 : kLargestOnnxFile);
        const bool choices = architecture == "BertForMultipleChoice";
        const auto outputs = testing::run_onnx_runtime(
            directory.path("bert.onnx"), {call_of(golden, kAllRows, choices), call_of(golden, kLastRows, choices)});
        REQUIRE(outputs.size() == 2);
        // In fp16 the weights alone have errors of 2^-11, and about 25 operators follow one another.
        const double tolerance = half ? 2e-2 : 1e-5;
        CHECK(difference(golden, architecture, act, kAllRows, outputs[0]) < tolerance);
        CHECK(difference(golden, architecture, act, kLastRows, outputs[1]) < tolerance);
      }
    }
  }
}

/// Rows as columns.
std::vector<double> transposed(const std::vector<double>& values, size_t rows, size_t columns) {
  std::vector<double> result;
  for (size_t column = 0; column < columns; ++column) {
    for (size_t row = 0; row < rows; ++row) result.push_back(values.at(row * columns + column));
  }
  return result;
}

TEST_CASE("The initializers of a file of ONNX are the weights, each once, linear layers transposed", "[unit][onnx]") {
  const Golden golden;
  const TemporaryDirectory directory;
  const NamedModel model = golden_model(golden, "BertForPreTraining");
  const OnnxFile file = written(model, directory.path("bert.onnx"));
  std::set<std::string> names;
  for (const TensorSource& tensor : model.tensors) {
    CAPTURE(tensor.name);
    const bool linear = tensor.shape.size() == 2 && tensor.name.find("embeddings") == std::string::npos;
    const std::string name = tensor.name + (linear ? ".transposed" : "");
    REQUIRE(file.initializers.contains(name));
    names.insert(name);
    const OnnxTensor& got = file.initializers.at(name);
    const std::vector<double> values = testing::values_of("F32", tensor.bytes());
    CHECK(got.type == 1);
    if (linear) {
      CHECK(got.shape == std::vector<int64_t>{tensor.shape[1], tensor.shape[0]});
      CHECK(got.values ==
            transposed(values, static_cast<size_t>(tensor.shape[0]), static_cast<size_t>(tensor.shape[1])));
    } else {
      CHECK(got.shape == tensor.shape);
      CHECK(got.values == values);
    }
  }
  for (const auto& [name, tensor] : file.initializers)
    CHECK((names.contains(name) || (name.starts_with("constant/") && tensor.values.size() <= 4)));
}

TEST_CASE("A file of ONNX has opset 17, metadata, and optimum's names and sizes", "[unit][onnx]") {
  const Golden golden;
  const TemporaryDirectory directory;
  const std::string path = directory.path("bert.onnx");
  write_onnx(path, bert_onnx_graph(golden_model(golden, "BertForMultipleChoice")),
             {{"vocabulary_hash", "ab12"}, {"model_max_length", "12"}}, [](size_t) {});
  OnnxFile file = read_onnx(path);
  CHECK(file.ir_version == 8);
  CHECK(file.opset == 17);
  CHECK(file.producer == "bert");
  CHECK(file.metadata == std::map<std::string, std::string>{{"vocabulary_hash", "ab12"}, {"model_max_length", "12"}});
  CHECK(file.inputs[2].shape == std::vector<std::string>{"batch_size", "num_choices", "sequence_length"});
  CHECK(file.outputs[0].shape == std::vector<std::string>{"batch_size", "num_choices"});

  const auto interfaces = [](const std::vector<testing::OnnxInterface>& list) {
    std::string text;
    for (const auto& each : list) {
      text += each.name + " " + std::to_string(each.type);
      for (const std::string& size : each.shape) text += " " + size;
      text += "\n";
    }
    return text;
  };
  CHECK(interfaces(file.described) == "bert.embeddings/Add_1 1 batch_size * num_choices sequence_length 16\n");
  file = written(golden_model(golden, "BertForPreTraining"), path);
  CHECK(interfaces(file.described) == "bert.embeddings/Add_1 1 batch_size sequence_length 16\n");
  CHECK(interfaces(file.inputs) ==
        "input_ids 7 batch_size sequence_length\nattention_mask 7 batch_size sequence_length\n"
        "token_type_ids 7 batch_size sequence_length\n");
  CHECK(interfaces(file.outputs) ==
        "prediction_logits 1 batch_size sequence_length 29\nseq_relationship_logits 1 batch_size 2\n");
  file = written(golden_model(golden, "BertForQuestionAnswering"), path);
  CHECK(interfaces(file.outputs) ==
        "start_logits 1 batch_size sequence_length\nend_logits 1 batch_size sequence_length\n");
  file = written(golden_model(golden, "BertForTokenClassification"), path);
  CHECK(interfaces(file.outputs) == "logits 1 batch_size sequence_length 3\n");
  file = written(golden_model(golden, "BertModel"), path);
  CHECK(interfaces(file.outputs) ==
        "last_hidden_state 1 batch_size sequence_length 16\npooler_output 1 batch_size 16\n");
  NamedModel encoder = golden_model(golden, "BertModel");
  std::erase_if(encoder.tensors, [](const TensorSource& tensor) { return tensor.name.starts_with("bert.pooler"); });
  file = written(encoder, path);
  CHECK(interfaces(file.outputs) == "last_hidden_state 1 batch_size sequence_length 16\n");
}

TEST_CASE("A file of ONNX in fp16 has weights and constants in fp16, and gives fp32 out", "[golden][onnx]") {
  const Golden golden;
  const TemporaryDirectory directory;
  NamedModel model = golden_model(golden, "BertForPreTraining", "gelu_new");
  make_half(model);
  const OnnxFile file = written(model, directory.path("bert.onnx"));
  for (const auto& [name, tensor] : file.initializers) {
    CAPTURE(name);
    CHECK(tensor.type == (name.starts_with("constant/int64") ? 7 : 10));
  }
  // Nearest numbers of fp16, by hand: 0.044715 is 1.43088 / 32, and 0.43088 * 1024 = 441.2.
  CHECK(file.initializers.at("constant/0.044715").values == std::vector<double>{(1024.0 + 441.0) / 1024.0 / 32.0});
  CHECK(file.initializers.at("constant/-10000").values == std::vector<double>{-10000});
  CHECK(file.outputs[0].type == 1);
  CHECK(file.nodes.back().op == "Cast");
  const auto outputs = testing::evaluate(file, arrays(call_of(golden, kAllRows, false)));
  const double worst = difference(golden, "BertForPreTraining", "gelu_new", kAllRows, outputs);
  CHECK(worst < 1e-2);  // of rounded weights
  CHECK(worst > 1e-5);
}

TEST_CASE("A model above the limit of a file of ONNX has its large tensors beside it", "[unit][onnx]") {
  const Golden golden;
  const TemporaryDirectory directory;
  const std::string whole = directory.path("whole.onnx"), split = directory.path("split.onnx");
  const NamedModel model = golden_model(golden, "BertForPreTraining");
  size_t bytes = 0;
  write_onnx(whole, bert_onnx_graph(model), {}, [&](size_t more) { bytes += more; });
  CHECK_FALSE(std::filesystem::exists(onnx_data_file(whole)));
  const auto size = static_cast<int64_t>(std::filesystem::file_size(whole));
  CHECK(bytes < static_cast<size_t>(size));
  written(model, split, size);
  CHECK_FALSE(std::filesystem::exists(onnx_data_file(split)));
  const OnnxFile want = read_onnx(whole), got = written(model, split, size - 1);
  CHECK(std::filesystem::file_size(split) < static_cast<size_t>(size));
  REQUIRE(std::filesystem::exists(split + ".data"));
  size_t outside = 0;
  for (const auto& [name, tensor] : got.initializers) {
    CAPTURE(name);
    outside += tensor.external ? 1 : 0;
    CHECK(tensor.external == (tensor.values.size() * sizeof(float) >= 1024));
    CHECK(tensor.values == want.initializers.at(name).values);
  }
  CHECK(outside == 15);  // six of each layer, the words, the pooler, the transform
}

TEST_CASE("What has no ONNX graph is refused, with the tensor or the architecture", "[unit][onnx]") {
  const Golden golden;
  NamedModel model = golden_model(golden, "BertForSequenceClassification");
  model.architecture = "BertForNextSentencePrediction";
  CHECK_THROWS_WITH(bert_onnx_graph(model),
                    "golden: architecture BertForNextSentencePrediction has no ONNX graph; expected one of "
                    "BertForPreTraining, BertForMaskedLM, BertModel, BertForQuestionAnswering, "
                    "BertForSequenceClassification, BertForEntityMarkers, BertForTokenClassification, "
                    "BertForMultipleChoice");
  model.architecture = "BertForQuestionAnswering";
  CHECK_THROWS_WITH(bert_onnx_graph(model),
                    "golden: has no tensor qa_outputs.weight; BertForQuestionAnswering needs it");
  model = golden_model(golden, "BertForSequenceClassification");
  model.config.intermediate_size = 25;
  CHECK_THROWS_WITH(
      bert_onnx_graph(model),
      "golden: tensor bert.encoder.layer.0.intermediate.dense.weight has shape [24, 16]; expected [25, 16]");
  model = golden_model(golden, "BertForSequenceClassification");
  model.tensors[1].dtype = "F16";
  CHECK_THROWS_WITH(bert_onnx_graph(model), Contains("is F16; expected F32, as the first tensor"));
  for (TensorSource& tensor : model.tensors) tensor.dtype = "BF16";
  CHECK_THROWS_WITH(bert_onnx_graph(model), Contains("dtype BF16: expected F32 or F16"));
}

TEST_CASE("A tensor without its bytes leaves no file of ONNX", "[unit][onnx]") {
  const Golden golden;
  const TemporaryDirectory directory;
  NamedModel model = golden_model(golden, "BertForMaskedLM");
  model.tensors[3].bytes = [] { return std::string_view("short"); };
  for (const int64_t largest : {kLargestOnnxFile, int64_t{0}}) {
    CHECK_THROWS_WITH(written(model, directory.path("bert.onnx"), largest), Contains("has 5 bytes; expected "));
    CHECK(std::filesystem::is_empty(directory.path()));
  }
}

}  // namespace
}  // namespace bert
