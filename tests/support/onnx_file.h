// Reads a file of ONNX. The numbers are those of onnx/onnx.proto, version 1.12.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "data/io/files.h"
#include "data/io/wire.h"
#include "tests/support/tensor_values.h"

namespace bert::testing {

struct OnnxNode {
  std::string op, name;
  std::vector<std::string> inputs, outputs;
  std::map<std::string, std::vector<int64_t>> integers;  // attributes of one or several
  std::map<std::string, double> floats;
};

struct OnnxTensor {
  int64_t type = 0;  // 1 float, 7 int64, 10 float16
  std::vector<int64_t> shape;
  std::vector<double> values;
  bool external = false;
};

struct OnnxInterface {  // an input or an output
  std::string name;
  int64_t type = 0;
  std::vector<std::string> shape;  // names or numbers
};

struct OnnxFile {
  int64_t ir_version = 0, opset = 0;
  std::string producer;
  std::map<std::string, std::string> metadata;
  std::vector<OnnxNode> nodes;
  std::map<std::string, OnnxTensor> initializers;
  std::vector<OnnxInterface> inputs, outputs, described;  // described: results with a shape
};

namespace onnx_reading {

template <class Visit>
void visit(std::string_view message, const Visit& take) {
  wire::Fields fields(message);
  for (wire::Field field; fields.next(field);) take(field);
}

inline int64_t integer(const wire::Field& field) { return static_cast<int64_t>(field.varint); }

inline std::pair<std::string, std::string> entry(std::string_view message) {
  std::pair<std::string, std::string> result;
  visit(message, [&](const wire::Field& field) { (field.number == 1 ? result.first : result.second) = field.bytes; });
  return result;
}

inline OnnxNode node(std::string_view message) {
  OnnxNode result;
  visit(message, [&](const wire::Field& field) {
    if (field.number == 1) result.inputs.emplace_back(field.bytes);
    if (field.number == 2) result.outputs.emplace_back(field.bytes);
    if (field.number == 3) result.name = field.bytes;
    if (field.number == 4) result.op = field.bytes;
    if (field.number != 5) return;
    std::string name;
    std::vector<int64_t> integers;
    double number = 0;
    int64_t type = 0;
    visit(field.bytes, [&](const wire::Field& part) {
      if (part.number == 1) name = part.bytes;
      if (part.number == 2) number = element_at<float>(part.bytes.data());
      if (part.number == 3 || part.number == 8) integers.push_back(integer(part));
      if (part.number == 20) type = integer(part);
    });
    if (type == 1) result.floats[name] = number;                   // FLOAT
    if (type == 2 || type == 7) result.integers[name] = integers;  // INT, INTS
    if (type != 1 && type != 2 && type != 7) throw std::logic_error("attribute " + name);
  });
  return result;
}

/// The bytes of an external tensor.
inline std::string external_bytes(const std::map<std::string, std::string>& data, const std::string& path) {
  const std::string file = read_file((std::filesystem::path(path).parent_path() / data.at("location")).string());
  return file.substr(std::stoul(data.at("offset")), std::stoul(data.at("length")));
}

inline std::pair<std::string, OnnxTensor> tensor(std::string_view message, const std::string& path) {
  OnnxTensor result;
  std::string name, bytes;
  std::map<std::string, std::string> data;
  visit(message, [&](const wire::Field& field) {
    if (field.number == 1) result.shape.push_back(integer(field));
    if (field.number == 2) result.type = integer(field);
    if (field.number == 8) name = field.bytes;
    if (field.number == 9) bytes = field.bytes;
    if (field.number == 13) data.insert(entry(field.bytes));
    if (field.number == 14) result.external = integer(field) == 1;
  });
  if (result.external) bytes = external_bytes(data, path);
  result.values = values_of(result.type == 1 ? "F32" : result.type == 7 ? "I64" : "F16", bytes);
  int64_t elements = 1;
  for (const int64_t size : result.shape) elements *= size;
  if (static_cast<size_t>(elements) != result.values.size()) throw std::logic_error(name + ": bytes and shape differ");
  return {name, result};
}

inline OnnxInterface interface(std::string_view message) {
  OnnxInterface result;
  visit(message, [&](const wire::Field& field) {
    if (field.number == 1) result.name = field.bytes;
    if (field.number != 2) return;
    visit(field.bytes, [&](const wire::Field& tensor_type) {
      visit(tensor_type.bytes, [&](const wire::Field& part) {
        if (part.number == 1) result.type = integer(part);
        if (part.number != 2) return;
        visit(part.bytes, [&](const wire::Field& dimension) {
          visit(dimension.bytes, [&](const wire::Field& size) {
            result.shape.push_back(size.number == 1 ? std::to_string(integer(size)) : std::string(size.bytes));
          });
        });
      });
    });
  });
  return result;
}

}  // namespace onnx_reading

inline OnnxFile read_onnx(const std::string& path) {
  namespace reading = onnx_reading;
  const std::string bytes = read_file(path);
  OnnxFile file;
  reading::visit(bytes, [&](const wire::Field& field) {
    if (field.number == 1) file.ir_version = reading::integer(field);
    if (field.number == 2) file.producer = field.bytes;
    if (field.number == 14) file.metadata.insert(reading::entry(field.bytes));
    if (field.number == 8) {
      reading::visit(field.bytes, [&](const wire::Field& part) {
        if (part.number == 2) file.opset = reading::integer(part);
      });
    }
    if (field.number != 7) return;
    reading::visit(field.bytes, [&](const wire::Field& part) {
      if (part.number == 1) file.nodes.push_back(reading::node(part.bytes));
      if (part.number == 5) file.initializers.insert(reading::tensor(part.bytes, path));
      if (part.number == 11) file.inputs.push_back(reading::interface(part.bytes));
      if (part.number == 12) file.outputs.push_back(reading::interface(part.bytes));
      if (part.number == 13) file.described.push_back(reading::interface(part.bytes));
    });
  });
  return file;
}

}  // namespace bert::testing
