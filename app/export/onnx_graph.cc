#include "app/export/onnx_graph.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <type_traits>
#include <utility>

#include "app/checkpoint/tensor_diff.h"
#include "app/export/onnx_fields.h"
#include "data/io/error.h"
#include "data/io/wire.h"

namespace bert {
namespace {

template <class T>
std::string bytes_of(const T* values, size_t count) {
  return {reinterpret_cast<const char*>(values), count * sizeof(T)};
}

std::string attribute_message(const OnnxAttribute& attribute) {
  namespace field = onnx::attribute;
  std::string message;
  wire::append_bytes(message, field::kName, attribute.name);
  std::visit(
      [&](const auto& value) {
        using Value = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<Value, float>) {
          wire::append_float(message, field::kFloat, value);
          wire::append_number(message, field::kType, field::kFloatType);
        } else if constexpr (std::is_same_v<Value, int64_t>) {
          wire::append_number(message, field::kInt, value);
          wire::append_number(message, field::kType, field::kIntType);
        } else {
          for (const int64_t each : value) wire::append_number(message, field::kInts, each);
          wire::append_number(message, field::kType, field::kIntsType);
        }
      },
      attribute.value);
  return message;
}

}  // namespace

int64_t onnx_type(const std::string& dtype) {
  if (dtype == "F32") return onnx::kFloatElements;
  if (dtype == "I64") return onnx::kInt64Elements;
  if (dtype == "F16") return onnx::kHalfElements;
  throw DataError("dtype " + dtype + ": expected F32 or F16 for a file of ONNX; export with --precision fp32 or fp16");
}

void OnnxGraph::append_node(const std::string& op, const std::string& result, const std::vector<std::string>& arguments,
                            const std::vector<OnnxAttribute>& attributes) {
  namespace field = onnx::node;
  std::string message;
  for (const std::string& argument : arguments) wire::append_bytes(message, field::kInput, argument);
  wire::append_bytes(message, field::kOutput, result);
  wire::append_bytes(message, field::kName, result);
  wire::append_bytes(message, field::kOpType, op);
  for (const OnnxAttribute& attribute : attributes)
    wire::append_bytes(message, field::kAttribute, attribute_message(attribute));
  wire::append_bytes(nodes_, onnx::graph::kNode, message);
}

std::string OnnxGraph::node(const std::string& op, const std::string& scope, const std::vector<std::string>& arguments,
                            const std::vector<OnnxAttribute>& attributes) {
  std::string result = scope + "/" + op;
  if (const int64_t before = uses_[result]++; before > 0) result += "_" + std::to_string(before);
  append_node(op, result, arguments, attributes);
  return result;
}

std::string OnnxGraph::initializer(TensorSource tensor) {
  onnx_type(tensor.dtype);  // throws
  std::string name = tensor.name;
  if (uses_[name]++ == 0) initializers_.push_back(std::move(tensor));
  return name;
}

std::string OnnxGraph::constant(const std::string& name, const std::string& type, std::vector<int64_t> shape,
                                std::string bytes) {
  const auto kept = std::make_shared<const std::string>(std::move(bytes));
  return initializer({.name = "constant/" + name,
                      .dtype = type,
                      .shape = std::move(shape),
                      .bytes = [kept] { return std::string_view(*kept); },
                      .mapping = kept});
}

std::string OnnxGraph::scalar(float value) {
  std::string bytes;
  append_element(dtype_, value, bytes);
  return constant(fmt::format("{}", value), dtype_, {}, bytes);
}

std::string OnnxGraph::integer(int64_t value) {
  return constant(fmt::format("int64 {}", value), "I64", {}, bytes_of(&value, 1));
}

std::string OnnxGraph::integers(const std::vector<int64_t>& values) {
  return constant(fmt::format("int64 [{}]", fmt::join(values, ",")), "I64", {static_cast<int64_t>(values.size())},
                  bytes_of(values.data(), values.size()));
}

std::string OnnxGraph::input(const std::string& name, const OnnxShape& shape) {
  inputs_.push_back({name, "I64", shape});
  return name;
}

void OnnxGraph::output(const std::string& name, const std::string& result, const OnnxShape& shape) {
  outputs_.push_back({name, "F32", shape});
  if (dtype_ == "F32") {
    append_node("Identity", name, {result}, {});
  } else {
    append_node("Cast", name, {result}, {{"to", onnx::kFloatElements}});
  }
}

}  // namespace bert
