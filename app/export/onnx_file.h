// Files of ONNX.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "app/export/onnx_graph.h"

namespace bert {

/// Bytes that a file of ONNX has at most: protobuf reads no larger message.
inline constexpr int64_t kLargestOnnxFile = (int64_t{1} << 31) - 1;

/// The file with the large tensors of the model at `path`, if the model is larger than kLargestOnnxFile.
std::string onnx_data_file(const std::string& path);

/// Writes a model of `graph`, with `metadata` as its metadata_props, to `path`. If it would have more than `largest`
/// bytes, its tensors of 1 KiB and more are in onnx_data_file(path) instead, each from a multiple of 4,096 on; move both
/// files together. Each tensor is read when it is written. `written` is called with the bytes of each piece.
/// Both files are whole or absent. Throws DataError for a tensor whose bytes do not have its size, and IoError.
void write_onnx(const std::string& path, const OnnxGraph& graph, const std::map<std::string, std::string>& metadata,
                const std::function<void(size_t bytes)>& written, int64_t largest = kLargestOnnxFile);

}  // namespace bert
