// An ONNX graph under construction: nodes, initializers, inputs and outputs.
// Source: onnx/onnx.proto and docs/Operators.md of github.com/onnx/onnx, version 1.12.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "app/checkpoint/safetensors.h"

namespace bert {

/// Versions of ONNX 1.12, the first with LayerNormalization.
inline constexpr int64_t kOnnxOpset = 17, kOnnxIrVersion = 8;

/// The number of a dtype of safetensors in TensorProto.DataType. Throws DataError for another dtype than F32, F16, I64.
int64_t onnx_type(const std::string& dtype);

/// A dimension is a size, or the name of a size that each call of the graph chooses.
using OnnxShape = std::vector<std::variant<int64_t, std::string>>;

struct OnnxValue {
  std::string name, dtype;  // dtype as in safetensors
  OnnxShape shape;
};

struct OnnxAttribute {
  std::string name;
  std::variant<int64_t, float, std::vector<int64_t>> value;
};

class OnnxGraph {
 public:
  /// `dtype` (F32, F16) is that of the computation.
  explicit OnnxGraph(std::string dtype) : dtype_(std::move(dtype)) {}

  [[nodiscard]] const std::string& dtype() const { return dtype_; }

  /// Adds a node with one result, and returns the name of the result, which begins with `scope`.
  std::string node(const std::string& op, const std::string& scope, const std::vector<std::string>& arguments,
                   const std::vector<OnnxAttribute>& attributes = {});
  /// Adds a tensor unless it is there, and returns its name.
  std::string initializer(TensorSource tensor);
  /// A scalar of the computation's dtype. In fp16, 0 and magnitudes outside of [2^-14, 65504] are not allowed.
  std::string scalar(float value);
  /// An int64 scalar.
  std::string integer(int64_t value);
  /// An int64 vector.
  std::string integers(const std::vector<int64_t>& values);

  /// Says the shape of a result, of the computation's dtype, that a runtime cannot infer.
  void describe(const std::string& result, const OnnxShape& shape) { described_.push_back({result, dtype_, shape}); }

  /// Adds an int64 input.
  std::string input(const std::string& name, const OnnxShape& shape);
  /// Gives `result` out as fp32 under `name`.
  void output(const std::string& name, const std::string& result, const OnnxShape& shape);

  /// The nodes as fields of a GraphProto.
  [[nodiscard]] const std::string& nodes() const { return nodes_; }
  [[nodiscard]] const std::vector<TensorSource>& initializers() const { return initializers_; }
  [[nodiscard]] const std::vector<OnnxValue>& inputs() const { return inputs_; }
  [[nodiscard]] const std::vector<OnnxValue>& outputs() const { return outputs_; }
  [[nodiscard]] const std::vector<OnnxValue>& described() const { return described_; }

 private:
  void append_node(const std::string& op, const std::string& result, const std::vector<std::string>& arguments,
                   const std::vector<OnnxAttribute>& attributes);
  std::string constant(const std::string& name, const std::string& type, std::vector<int64_t> shape, std::string bytes);

  std::string dtype_, nodes_;
  std::vector<TensorSource> initializers_;
  std::map<std::string, int64_t> uses_;  // of each name: initializers, and results by scope and operator
  std::vector<OnnxValue> inputs_, outputs_, described_;
};

}  // namespace bert
