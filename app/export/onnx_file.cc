#include "app/export/onnx_file.h"

#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "app/export/onnx_fields.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "data/io/mapping_guard.h"
#include "data/io/wire.h"

namespace bert {
namespace {

constexpr int64_t kLeastExternal = 1024;  // bytes, as onnx.save() has it
constexpr int64_t kAlignment = 4096;      // onnx.proto asks for whole pages, so that a runtime can map the tensors

int64_t bytes_of(const TensorSource& tensor) {
  int64_t bytes = element_bytes(tensor.dtype);
  for (const int64_t size : tensor.shape) bytes *= size;
  return bytes;
}

int64_t aligned(int64_t offset) { return (offset + kAlignment - 1) / kAlignment * kAlignment; }

std::string entry_message(std::string_view key, std::string_view value) {
  std::string message;
  wire::append_bytes(message, onnx::entry::kKey, key);
  wire::append_bytes(message, onnx::entry::kValue, value);
  return message;
}

std::string value_message(const OnnxValue& value) {
  std::string shape;
  for (const auto& size : value.shape) {
    std::string dimension;
    if (const auto* name = std::get_if<std::string>(&size)) {
      wire::append_bytes(dimension, onnx::dimension::kParam, *name);
    } else {
      wire::append_number(dimension, onnx::dimension::kValue, std::get<int64_t>(size));
    }
    wire::append_bytes(shape, onnx::shape::kDim, dimension);
  }
  std::string tensor_type, type, message;
  wire::append_number(tensor_type, onnx::tensor_type::kElemType, onnx_type(value.dtype));
  wire::append_bytes(tensor_type, onnx::tensor_type::kShape, shape);
  wire::append_bytes(type, onnx::type::kTensorType, tensor_type);
  wire::append_bytes(message, onnx::value_info::kName, value.name);
  wire::append_bytes(message, onnx::value_info::kType, type);
  return message;
}

/// The fields of a TensorProto but its bytes.
std::string tensor_fields(const TensorSource& tensor) {
  std::string fields;
  for (const int64_t size : tensor.shape) wire::append_number(fields, onnx::tensor::kDims, size);
  wire::append_number(fields, onnx::tensor::kDataType, onnx_type(tensor.dtype));
  wire::append_bytes(fields, onnx::tensor::kName, tensor.name);
  return fields;
}

/// Writes the bytes of a tensor whose size has been written to `path`.
void write_tensor(AtomicFile& file, const TensorSource& tensor, const std::string& path) {
  const std::string_view bytes = tensor.bytes();
  if (static_cast<int64_t>(bytes.size()) != bytes_of(tensor)) {
    throw DataError(fmt::format("{}: tensor {} has {} bytes; expected {} for its shape", path, tensor.name,
                                bytes.size(), bytes_of(tensor)));
  }
  file.write(bytes);
  expect_whole_mapping(bytes.data());
}

/// A piece of the file: bytes, then those of a tensor unless it is null.
struct FilePiece {
  std::string head;
  const TensorSource* tensor = nullptr;
};

/// The graph's parts but the initializers.
std::string graph_fields(const OnnxGraph& graph) {
  std::string fields = graph.nodes();
  wire::append_bytes(fields, onnx::graph::kName, "bert");
  for (const OnnxValue& input : graph.inputs()) wire::append_bytes(fields, onnx::graph::kInput, value_message(input));
  for (const OnnxValue& output : graph.outputs())
    wire::append_bytes(fields, onnx::graph::kOutput, value_message(output));
  for (const OnnxValue& value : graph.described())
    wire::append_bytes(fields, onnx::graph::kValueInfo, value_message(value));
  return fields;
}

/// The initializers as pieces. With a `data_file`, the large ones refer to it, from the offset 0 on.
std::vector<FilePiece> initializer_pieces(const OnnxGraph& graph, const std::optional<std::string>& data_file) {
  std::vector<FilePiece> pieces;
  int64_t offset = 0;
  for (const TensorSource& tensor : graph.initializers()) {
    std::string fields = tensor_fields(tensor);
    const int64_t bytes = bytes_of(tensor);
    FilePiece piece;
    if (data_file && bytes >= kLeastExternal) {
      const auto add = [&](const char* key, const std::string& value) {
        wire::append_bytes(fields, onnx::tensor::kExternalData, entry_message(key, value));
      };
      offset = aligned(offset);
      add("location", *data_file);
      add("offset", std::to_string(offset));
      add("length", std::to_string(bytes));
      wire::append_number(fields, onnx::tensor::kDataLocation, onnx::tensor::kExternal);
      offset += bytes;
      wire::append_bytes(piece.head, onnx::graph::kInitializer, fields);
    } else {
      wire::append_head(fields, onnx::tensor::kRawData, static_cast<size_t>(bytes));
      wire::append_head(piece.head, onnx::graph::kInitializer, fields.size() + static_cast<size_t>(bytes));
      piece.head += fields;
      piece.tensor = &tensor;
    }
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

int64_t bytes_of(const std::vector<FilePiece>& pieces) {
  int64_t bytes = 0;
  for (const FilePiece& piece : pieces)
    bytes += static_cast<int64_t>(piece.head.size()) + (piece.tensor != nullptr ? bytes_of(*piece.tensor) : 0);
  return bytes;
}

/// The fields of a ModelProto, with the head of the graph, which comes last.
std::string model_fields(const std::map<std::string, std::string>& metadata, int64_t graph_bytes) {
  std::string fields, opset;
  wire::append_number(fields, onnx::model::kIrVersion, kOnnxIrVersion);
  wire::append_bytes(fields, onnx::model::kProducerName, "bert");
  wire::append_bytes(opset, onnx::opset::kDomain, "");
  wire::append_number(opset, onnx::opset::kVersion, kOnnxOpset);
  wire::append_bytes(fields, onnx::model::kOpsetImport, opset);
  for (const auto& [key, value] : metadata)
    wire::append_bytes(fields, onnx::model::kMetadataProps, entry_message(key, value));
  wire::append_head(fields, onnx::model::kGraph, static_cast<size_t>(graph_bytes));
  return fields;
}

void write_data(AtomicFile& file, const OnnxGraph& graph, const std::string& path,
                const std::function<void(size_t bytes)>& written) {
  for (const TensorSource& tensor : graph.initializers()) {
    if (bytes_of(tensor) < kLeastExternal) continue;
    file.write(std::string(static_cast<size_t>(aligned(file.size()) - file.size()), '\0'));
    write_tensor(file, tensor, path);
    written(static_cast<size_t>(bytes_of(tensor)));
  }
}

}  // namespace

std::string onnx_data_file(const std::string& path) { return path + ".data"; }

void write_onnx(const std::string& path, const OnnxGraph& graph, const std::map<std::string, std::string>& metadata,
                const std::function<void(size_t bytes)>& written, int64_t largest) {
  const std::string fields = graph_fields(graph);
  std::vector<FilePiece> pieces = initializer_pieces(graph, {});
  const auto model_bytes = [&] {
    const int64_t inside = static_cast<int64_t>(fields.size()) + bytes_of(pieces);
    return static_cast<int64_t>(model_fields(metadata, inside).size()) + inside;
  };
  std::optional<AtomicFile> data;
  if (model_bytes() > largest) {
    const std::string data_path = onnx_data_file(path);
    pieces = initializer_pieces(graph, std::filesystem::path(data_path).filename().string());
    data.emplace(data_path);
    write_data(*data, graph, path, written);
  }
  AtomicFile file(path);
  file.write(model_fields(metadata, static_cast<int64_t>(fields.size()) + bytes_of(pieces)));
  file.write(fields);
  for (const FilePiece& piece : pieces) {
    file.write(piece.head);
    if (piece.tensor == nullptr) continue;
    write_tensor(file, *piece.tensor, path);
    written(static_cast<size_t>(bytes_of(*piece.tensor)));
  }
  if (data) data->commit();
  file.commit();
}

}  // namespace bert
