#include "app/serve/protocols/kserve.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "app/serve/protocols/json_body.h"
#include "app/serve/protocols/number_text.h"
#include "app/serve/protocols/predict_request.h"
#include "data/text/unicode.h"

namespace bert {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

static_assert(std::endian::native == std::endian::little);

constexpr int kBadTensor = 422;
constexpr const char *kJsonBytes = "Inference-Header-Content-Length", *kBinaryBytes = "binary_data_size";

/// The names of the texts that a model takes; the second may be missing of kTextOrPair.
std::vector<std::string> input_names(InputForm form) {
  switch (form) {
    case InputForm::kText:
    case InputForm::kMarkedText:
      return {"text"};
    case InputForm::kTextOrPair:
      return {"text", "text_pair"};
    case InputForm::kPair:
      return {"query", "text"};
    case InputForm::kQuestionAndContext:
      break;
  }
  return {"context", "question"};
}

struct Output {
  std::string name;
  int64_t width = 0;  // of a row of FP32; 0: BYTES
};

Output output_of(const ServedModel& served, const ModelFacts& facts) {
  if (served.task() == kEmbeddingTask) return {"embedding", facts.dimensions};
  return served.task() == kRerankTask ? Output{"score", 1} : Output{"answer", 0};
}

/// The JSON of the body, and the bytes behind it.
std::pair<std::string, std::string_view> parts_of(const ServerRequest& request) {
  const std::string& body = request.body;
  if (request.json_bytes.empty()) return {body, {}};
  const std::string& digits = request.json_bytes;
  size_t size = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), size);
  if (error != std::errc() || end != digits.data() + digits.size() || size > body.size()) {
    throw HttpError(400, fmt::format("{}: want a number up to the {} bytes of the body, got {}", kJsonBytes,
                                     body.size(), json_text(digits)));
  }
  return {body.substr(0, size), std::string_view(body).substr(size)};
}

/// Texts of a tensor in binary form: Note [Binary tensors].
std::vector<std::string> binary_texts(std::string_view bytes, const std::string& place) {
  std::vector<std::string> texts;
  while (!bytes.empty()) {
    uint32_t size = 0;
    const bool begins = bytes.size() >= sizeof(size);
    if (begins) std::memcpy(&size, bytes.data(), sizeof(size));
    if (!begins || bytes.size() - sizeof(size) < size) {
      throw HttpError(kBadTensor, fmt::format("{}: text {} is longer than the tensor's data: want 4 bytes of its "
                                              "length, little-endian, then its bytes",
                                              place, texts.size()));
    }
    texts.emplace_back(bytes.substr(sizeof(size), size));
    if (count_invalid_utf8(texts.back()) > 0)
      throw HttpError(kBadTensor, fmt::format("{}: text {} is not UTF-8", place, texts.size() - 1));
    bytes.remove_prefix(sizeof(size) + size);
  }
  return texts;
}

/// Texts of a tensor's "data", a list or lists in it.
void append_texts(const json& data, const std::string& place, std::vector<std::string>& texts) {
  if (data.is_string()) return texts.push_back(data.get<std::string>());
  if (!data.is_array())
    throw HttpError(kBadTensor, fmt::format("{}: data: want texts, got {}", place, data.type_name()));
  for (const json& each : data) append_texts(each, place, texts);
}

/// The elements of a shape [N], [N, 1] or [1, N].
int64_t elements_of(const json& tensor, const std::string& place) {
  const json& shape = wanted_member(tensor, "shape");
  const std::string name = place + ": shape";
  const bool row = shape.is_array() && shape.size() == 2 && shape[0] == 1;
  const bool fits = row || (shape.is_array() && (shape.size() == 1 || (shape.size() == 2 && shape[1] == 1)));
  if (!fits) throw HttpError(kBadTensor, fmt::format("{}: want [N], [N, 1] or [1, N], got {}", name, shape.dump()));
  return integer_of(shape[row ? 1 : 0], name, int64_t{1} << 30);
}

/// The texts of an input. Takes the data of a binary tensor from the front of `binary`.
std::vector<std::string> texts_of_tensor(const json& tensor, const std::string& place, std::string_view& binary) {
  const std::string type = string_of(wanted_member(tensor, "datatype"), place + ": datatype");
  if (type != "BYTES") throw HttpError(kBadTensor, fmt::format("{}: datatype: want BYTES, got {}", place, type));
  const int64_t elements = elements_of(tensor, place);
  std::vector<std::string> texts;
  const json* parameters = find_member(tensor, "parameters");
  const json* size =
      parameters != nullptr && parameters->is_object() ? find_member(*parameters, kBinaryBytes) : nullptr;
  if (size != nullptr) {
    const std::string name = fmt::format("{}: {}", place, kBinaryBytes);
    const auto bytes = static_cast<size_t>(integer_of(*size, name, int64_t{1} << 30));
    if (bytes > binary.size()) {
      throw HttpError(kBadTensor, fmt::format("{} is {}, and {} bytes are left behind the JSON ({})", name, bytes,
                                              binary.size(), kJsonBytes));
    }
    texts = binary_texts(binary.substr(0, bytes), place);
    binary.remove_prefix(bytes);
  } else {
    append_texts(wanted_member(tensor, "data"), place, texts);
  }
  if (std::ssize(texts) != elements)
    throw HttpError(kBadTensor,
                    fmt::format("{}: shape says {} texts, and {} are there", place, elements, texts.size()));
  return texts;
}

/// The inputs of a request as the model takes them.
std::vector<ModelInput> inputs_of(const json& body, InputForm form, std::string_view binary) {
  const std::vector<std::string> names = input_names(form);
  std::vector<std::optional<std::vector<std::string>>> given(names.size());
  const json& tensors = wanted_member(body, "inputs");
  if (!tensors.is_array()) throw HttpError(kBadTensor, "inputs: want a list of tensors");
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::string place = fmt::format("inputs[{}]", i);
    check_keys(tensors[i], place, {"name", "shape", "datatype", "parameters", "data"});
    const std::string name = string_of(wanted_member(tensors[i], "name"), place + ": name");
    const auto known = std::find(names.begin(), names.end(), name);
    if (known == names.end()) {
      throw HttpError(kBadTensor,
                      fmt::format("{}: the model has no input {}; it has {}", place, name, fmt::join(names, ", ")));
    }
    auto& texts = given[static_cast<size_t>(known - names.begin())];
    if (texts) throw HttpError(kBadTensor, fmt::format("{}: input {} is there twice", place, name));
    texts = texts_of_tensor(tensors[i], place, binary);
  }
  if (!binary.empty())
    throw HttpError(kBadTensor, fmt::format("{} bytes behind the JSON belong to no input", binary.size()));
  for (size_t i = 0; i < names.size(); ++i) {
    if (!given[i] && (i == 0 || form != InputForm::kTextOrPair))
      throw HttpError(kBadTensor, fmt::format("inputs: {} is missing", names[i]));
    if (given[i] && given[i]->size() != given[0]->size()) {
      throw HttpError(kBadTensor, fmt::format("inputs: {} has {} texts, and {} has {}", names[0], given[0]->size(),
                                              names[i], given[i]->size()));
    }
  }
  std::vector<ModelInput> inputs;
  for (size_t i = 0; i < given[0]->size(); ++i) {
    ModelInput& input = inputs.emplace_back(ModelInput{.text = (*given[0])[i]});
    if (given.size() > 1 && given[1]) input.second = (*given[1])[i];
  }
  return inputs;
}

/// True if the output is wanted in binary form.
bool wants_binary(const json& body, const Output& output) {
  const json* all = find_member(body, "parameters");
  bool binary = all != nullptr && all->is_object() && boolean_member_of(*all, "binary_data_output", false);
  const json* outputs = find_member(body, "outputs");
  if (outputs == nullptr) return binary;
  if (!outputs->is_array()) throw HttpError(kBadTensor, "outputs: want a list");
  for (size_t i = 0; i < outputs->size(); ++i) {
    const std::string place = fmt::format("outputs[{}]", i);
    check_keys((*outputs)[i], place, {"name", "parameters"});
    const std::string name = string_of(wanted_member((*outputs)[i], "name"), place + ": name");
    if (name != output.name)
      throw HttpError(kBadTensor, fmt::format("{}: the model has no output {}; it has {}", place, name, output.name));
    const json* own = find_member((*outputs)[i], "parameters");
    if (own == nullptr) continue;
    check_keys(*own, place + ": parameters", {"binary_data"});
    binary = boolean_member_of(*own, "binary_data", binary);
  }
  return binary;
}

/// The wishes among the parameters of a request, which have the names of those of /predict. Those of Triton's schedulers
/// have no effect, as in a Triton without such schedulers.
AnswerOptions wishes_of(const json& body, const Model& model) {
  AnswerOptions wishes = model.defaults();
  const json* parameters = find_member(body, "parameters");
  if (parameters == nullptr) return wishes;
  json own = *parameters;
  if (own.is_object()) {
    for (const char* key :
         {"binary_data_output", "priority", "timeout", "sequence_id", "sequence_start", "sequence_end"})
      own.erase(key);
  }
  read_parameters(own,
                  {.form = model.form(),
                   .parameters = model.parameters(),
                   .find_token = [&](const std::string& token) { return model.find_token(token); }},
                  wishes);
  return wishes;
}

ordered_json tensor_of(const std::string& name, const char* type, std::vector<int64_t> shape) {
  return {{"name", name}, {"datatype", type}, {"shape", std::move(shape)}};
}

/// The data of the output, in binary form or as a list of JSON.
std::string data_of(const Answers& answers, bool numbers, bool binary) {
  std::string data;
  for (const auto& answer : answers.all) {
    if (!binary) data += data.empty() ? "[" : ",";
    if (numbers && binary) {
      const std::span<const float> row = answer->numbers();
      data.append(reinterpret_cast<const char*>(row.data()), row.size_bytes());
    } else if (numbers) {
      std::string row;
      append_numbers(row, answer->numbers());
      data += std::string_view(row).substr(1, row.size() - 2);  // the tensor's data is one list
    } else {
      const std::string text = json_text(answer->as_predict());
      const auto size = static_cast<uint32_t>(text.size());
      if (binary) data.append(reinterpret_cast<const char*>(&size), sizeof(size));
      data += binary ? text : json_text(text);
    }
  }
  return binary ? data : data + "]";
}

}  // namespace

ServerResponse kserve_server(const Call& /*call*/) {
  return json_response(
      {{"name", "bert"}, {"version", "1"}, {"extensions", ordered_json::array({"binary_tensor_data"})}});
}

ServerResponse kserve_live(const Call& /*call*/) { return json_response({{"live", true}}); }

namespace {

void expect_no_end(const Call& call) {
  if (call.draining) throw HttpError(503, "the server is ending");
}

}  // namespace

ServerResponse kserve_ready(const Call& call) {
  expect_no_end(call);
  const bool ready =
      std::all_of(call.models.begin(), call.models.end(), [](const auto& each) { return each->is_loaded(); });
  if (!ready) throw HttpError(503, "the model is being loaded");
  return json_response({{"ready", true}});
}

ServerResponse kserve_model(const Call& call) {
  ServedModel& served = model_named(call, call.name);
  const Model& model = served.model(call.deadline);
  const Output output = output_of(served, model.facts());
  ordered_json inputs = ordered_json::array();
  for (const std::string& name : input_names(model.form())) inputs.push_back(tensor_of(name, "BYTES", {-1}));
  ordered_json outputs = ordered_json::array();
  outputs.push_back(output.width == 0 ? tensor_of(output.name, "BYTES", {-1})
                                      : tensor_of(output.name, "FP32", {-1, output.width}));
  return json_response({{"name", served.name()},
                        {"versions", ordered_json::array({"1"})},
                        {"platform", "bert"},
                        {"inputs", std::move(inputs)},
                        {"outputs", std::move(outputs)}});
}

ServerResponse kserve_config(const Call& call) {
  ServedModel& served = model_named(call, call.name);
  const Model& model = served.model(call.deadline);
  const Output output = output_of(served, model.facts());
  const auto tensor = [](const std::string& name, const char* type, int64_t width) {
    ordered_json dims = {-1};
    if (width > 0) dims.push_back(width);
    return ordered_json{{"name", name}, {"data_type", type}, {"dims", dims}};
  };
  ordered_json inputs = ordered_json::array(), outputs = ordered_json::array();
  for (const std::string& name : input_names(model.form())) inputs.push_back(tensor(name, "TYPE_STRING", 0));
  outputs.push_back(tensor(output.name, output.width == 0 ? "TYPE_STRING" : "TYPE_FP32", output.width));
  return json_response({{"name", served.name()},
                        {"platform", "bert"},
                        {"backend", "bert"},
                        {"max_batch_size", 0},  // the shapes have the batch
                        {"input", std::move(inputs)},
                        {"output", std::move(outputs)}});
}

ServerResponse kserve_index(const Call& call) {
  const json body = call.request.body.empty() ? json::object() : parse_body(call.request.body);
  check_keys(body, "body", {"ready"});
  const bool ready = boolean_member_of(body, "ready", false);
  ordered_json list = ordered_json::array();
  for (const auto& model : call.models) {
    const bool loaded = model->is_loaded();
    if (ready && !loaded) continue;
    list.push_back({{"name", model->name()},
                    {"version", "1"},
                    {"state", loaded ? "READY" : "UNAVAILABLE"},
                    {"reason", loaded ? "" : "loading"}});
  }
  return json_response(list);
}

ServerResponse kserve_model_ready(const Call& call) {
  expect_no_end(call);
  if (!model_named(call, call.name).is_loaded()) throw HttpError(503, "the model is being loaded");
  return json_response({{"name", call.name}, {"ready", true}});
}

ServerResponse kserve_infer(const Call& call) {
  ServedModel& served = model_named(call, call.name);
  const auto [text, behind] = parts_of(call.request);
  const json body = parse_body(text);
  check_keys(body, "body", {"id", "parameters", "inputs", "outputs"});
  const Model& model = served.model(call.deadline);
  Output output = output_of(served, model.facts());
  const bool binary = wants_binary(body, output);
  const AnswerOptions wishes = wishes_of(body, model);
  const Texts texts{.inputs = inputs_of(body, model.form(), behind)};
  const Answers answers = served.ask(texts, wishes, call.deadline);
  const bool numbers = output.width > 0;
  if (numbers) output.width = std::ssize(answers.all.front()->numbers());  // with the parameter dimensions

  const auto rows = std::ssize(answers.all);
  ordered_json tensor =
      numbers ? tensor_of(output.name, "FP32", {rows, output.width}) : tensor_of(output.name, "BYTES", {rows});
  std::string data = data_of(answers, numbers, binary);
  if (binary) tensor["parameters"][kBinaryBytes] = data.size();
  std::string head = json_text({{"model_name", served.name()}, {"model_version", "1"}});
  head.pop_back();
  if (const json* id = find_member(body, "id"); id != nullptr) head += ",\"id\":" + json_text(string_of(*id, "id"));
  std::string described = json_text(tensor);
  if (!binary) {
    described.pop_back();
    return {.body = head + ",\"outputs\":[" + described + ",\"data\":" + data + "}]}"};
  }
  head += ",\"outputs\":[" + described + "]}";
  return {.content_type = "application/octet-stream",
          .body = head + data,
          .fields = {{kJsonBytes, std::to_string(head.size())}}};
}

ServerResponse kserve_refusal(const HttpError& error) {
  constexpr int kBadRequest = 400;
  ServerResponse response = error_response(error);
  if (error.status == kBadTensor) response.status = kBadRequest;
  return response;
}

}  // namespace bert
