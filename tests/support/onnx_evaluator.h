// Runs an ONNX graph in double, for the operators that BERT has, as docs/Operators.md of ONNX 1.12 defines them.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/onnx_file.h"

namespace bert::testing {

struct Array {
  std::vector<int64_t> shape;
  std::vector<double> values;
};

namespace onnx_running {

inline int64_t elements(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

inline size_t axis_of(int64_t axis, const std::vector<int64_t>& shape) {
  return static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(shape.size()) : axis);
}

/// The distance between neighbours along each axis.
inline std::vector<int64_t> strides(const std::vector<int64_t>& shape) {
  std::vector<int64_t> result(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) result[i - 1] = result[i] * shape[i];
  return result;
}

/// Calls visit(position in the result, the index of each axis) for every element of `shape`.
template <class Visit>
void for_each_index(const std::vector<int64_t>& shape, const Visit& visit) {
  std::vector<int64_t> index(shape.size(), 0);
  for (int64_t flat = 0; flat < elements(shape); ++flat) {
    visit(static_cast<size_t>(flat), index);
    for (size_t axis = shape.size(); axis-- > 0;) {
      if (++index[axis] < shape[axis]) break;
      index[axis] = 0;
    }
  }
}

/// The position in `array` of an element of a broadcast of it.
inline size_t broadcast_position(const Array& array, const std::vector<int64_t>& index) {
  const std::vector<int64_t> steps = strides(array.shape);
  int64_t position = 0;
  for (size_t i = 0; i < array.shape.size(); ++i)
    position += array.shape[i] == 1 ? 0 : steps[i] * index[index.size() - array.shape.size() + i];
  return static_cast<size_t>(position);
}

inline std::vector<int64_t> broadcast(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  std::vector<int64_t> result(std::max(a.size(), b.size()));
  for (size_t i = 0; i < result.size(); ++i) {
    const auto size = [&](const std::vector<int64_t>& shape) {
      return i < shape.size() ? shape[shape.size() - 1 - i] : int64_t{1};
    };
    if (size(a) != size(b) && size(a) != 1 && size(b) != 1) throw std::logic_error("shapes do not broadcast");
    result[result.size() - 1 - i] = std::max(size(a), size(b));
  }
  return result;
}

inline Array pairwise(const Array& a, const Array& b, const std::function<double(double, double)>& f) {
  Array result{broadcast(a.shape, b.shape), {}};
  result.values.resize(static_cast<size_t>(elements(result.shape)));
  for_each_index(result.shape, [&](size_t flat, const std::vector<int64_t>& index) {
    result.values[flat] = f(a.values[broadcast_position(a, index)], b.values[broadcast_position(b, index)]);
  });
  return result;
}

inline Array each(Array x, const std::function<double(double)>& f) {
  std::ranges::transform(x.values, x.values.begin(), f);
  return x;
}

inline Array matmul(const Array& a, const Array& b) {
  const int64_t rows = a.shape[a.shape.size() - 2], inner = a.shape.back(), columns = b.shape.back();
  if (b.shape[b.shape.size() - 2] != inner) throw std::logic_error("MatMul of shapes that do not fit");
  const auto batch = [](const Array& x) {
    return Array{{x.shape.begin(), x.shape.end() - 2},
                 std::vector<double>(static_cast<size_t>(elements({x.shape.begin(), x.shape.end() - 2})))};
  };
  Array batch_a = batch(a), batch_b = batch(b);
  std::vector<int64_t> batches = broadcast(batch_a.shape, batch_b.shape), shape = batches;
  shape.insert(shape.end(), {rows, columns});
  Array result{shape, std::vector<double>(static_cast<size_t>(elements(shape)))};
  for_each_index(batches, [&](size_t flat, const std::vector<int64_t>& index) {
    const double* from_a = a.values.data() + static_cast<int64_t>(broadcast_position(batch_a, index)) * rows * inner;
    const double* from_b = b.values.data() + static_cast<int64_t>(broadcast_position(batch_b, index)) * inner * columns;
    double* to = result.values.data() + static_cast<int64_t>(flat) * rows * columns;
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t k = 0; k < inner; ++k) {
        for (int64_t j = 0; j < columns; ++j) to[i * columns + j] += from_a[i * inner + k] * from_b[k * columns + j];
      }
    }
  });
  return result;
}

inline Array gather(const Array& data, const Array& indices, int64_t axis_attribute) {
  const size_t axis = axis_of(axis_attribute, data.shape);
  std::vector<int64_t> shape(data.shape.begin(), data.shape.begin() + static_cast<int64_t>(axis));
  shape.insert(shape.end(), indices.shape.begin(), indices.shape.end());
  shape.insert(shape.end(), data.shape.begin() + static_cast<int64_t>(axis) + 1, data.shape.end());
  const int64_t before = elements({data.shape.begin(), data.shape.begin() + static_cast<int64_t>(axis)});
  const int64_t after = elements({data.shape.begin() + static_cast<int64_t>(axis) + 1, data.shape.end()});
  Array result{shape, {}};
  for (int64_t i = 0; i < before; ++i) {
    for (const double index : indices.values) {
      if (index < 0 || index >= static_cast<double>(data.shape[axis])) throw std::logic_error("Gather out of range");
      const int64_t row = i * data.shape[axis] + static_cast<int64_t>(index);
      const auto from = data.values.begin() + row * after;
      result.values.insert(result.values.end(), from, from + after);
    }
  }
  return result;
}

inline Array transpose(const Array& x, const std::vector<int64_t>& order) {
  Array result{{}, std::vector<double>(x.values.size())};
  for (const int64_t axis : order) result.shape.push_back(x.shape[static_cast<size_t>(axis)]);
  const std::vector<int64_t> steps = strides(x.shape);
  for_each_index(result.shape, [&](size_t flat, const std::vector<int64_t>& index) {
    int64_t position = 0;
    for (size_t i = 0; i < order.size(); ++i) position += index[i] * steps[static_cast<size_t>(order[i])];
    result.values[flat] = x.values[static_cast<size_t>(position)];
  });
  return result;
}

inline Array reshape(const Array& x, const Array& to) {
  Array result{{}, x.values};
  for (size_t i = 0; i < to.values.size(); ++i)
    result.shape.push_back(to.values[i] == 0 ? x.shape[i] : static_cast<int64_t>(to.values[i]));
  const auto open = std::ranges::find(result.shape, -1);
  if (open != result.shape.end()) *open = static_cast<int64_t>(x.values.size()) / -elements(result.shape);
  if (elements(result.shape) != static_cast<int64_t>(x.values.size())) throw std::logic_error("Reshape does not fit");
  return result;
}

/// Calls change(values, count) for each row of the last axis.
template <class Change>
Array rows(Array x, const Change& change) {
  const size_t width = static_cast<size_t>(x.shape.back());
  for (size_t begin = 0; begin < x.values.size(); begin += width) change(x.values.data() + begin, width);
  return x;
}

inline Array softmax(const Array& x) {
  return rows(x, [](double* row, size_t width) {
    const double most = *std::max_element(row, row + width);
    double sum = 0;
    for (size_t i = 0; i < width; ++i) sum += row[i] = std::exp(row[i] - most);
    for (size_t i = 0; i < width; ++i) row[i] /= sum;
  });
}

inline Array layer_norm(const Array& x, const Array& scale, const Array& bias, double epsilon) {
  return rows(x, [&](double* row, size_t width) {
    const double mean = std::accumulate(row, row + width, 0.0) / static_cast<double>(width);
    double variance = 0;
    for (size_t i = 0; i < width; ++i) variance += (row[i] - mean) * (row[i] - mean) / static_cast<double>(width);
    for (size_t i = 0; i < width; ++i)
      row[i] = (row[i] - mean) / std::sqrt(variance + epsilon) * scale.values.at(i) + bias.values.at(i);
  });
}

inline Array unsqueeze(Array x, const Array& axes) {
  if (axes.values.size() != 1) throw std::logic_error("Unsqueeze of several axes");
  x.shape.insert(x.shape.begin() + static_cast<int64_t>(axes.values[0]), 1);
  return x;
}

inline Array concat(const std::vector<Array>& parts) {  // of the last axis
  const int64_t width = elements(parts.front().shape) == 0 ? 1 : parts.front().shape.back();
  const int64_t rows = elements(parts.front().shape) / width;
  Array result{parts.front().shape, {}};
  result.shape.back() = 0;
  for (const Array& part : parts) result.shape.back() += part.shape.back();
  for (int64_t row = 0; row < rows; ++row) {
    for (const Array& part : parts) {
      const auto from = part.values.begin() + row * part.shape.back();
      result.values.insert(result.values.end(), from, from + part.shape.back());
    }
  }
  return result;
}

/// The numbers of one axis folded into one.
inline Array reduce(const Array& x, int64_t axis, bool keeps, double start,
                    const std::function<double(double, double)>& fold) {
  Array result{x.shape, {}};
  result.shape[static_cast<size_t>(axis)] = 1;
  result.values.assign(static_cast<size_t>(elements(result.shape)), start);
  for_each_index(x.shape, [&](size_t flat, const std::vector<int64_t>& index) {
    double& sum = result.values[broadcast_position(result, index)];
    sum = fold(sum, x.values[flat]);
  });
  if (!keeps) result.shape.erase(result.shape.begin() + axis);
  return result;
}

/// The place of the largest number of each row of the last axis, the first of equals. The axis stays.
inline Array arg_max(const Array& x) {
  Array result{x.shape, {}};
  result.shape.back() = 1;
  for (auto row = x.values.begin(); row != x.values.end(); row += x.shape.back())
    result.values.push_back(static_cast<double>(std::max_element(row, row + x.shape.back()) - row));
  return result;
}

/// GatherND with batch_dims 1 of data [B, S, H] and places [B, 1]: [B, H].
inline Array gather_rows(const Array& data, const Array& places) {
  Array result{{data.shape.at(0), data.shape.at(2)}, {}};
  for (int64_t i = 0; i < data.shape.at(0); ++i) {
    const int64_t row = i * data.shape.at(1) + static_cast<int64_t>(places.values.at(static_cast<size_t>(i)));
    const auto from = data.values.begin() + row * data.shape.at(2);
    result.values.insert(result.values.end(), from, from + data.shape.at(2));
  }
  return result;
}

inline Array range(double begin, double end, double step) {
  Array result;
  for (double value = begin; value < end; value += step) result.values.push_back(value);
  result.shape = {static_cast<int64_t>(result.values.size())};
  return result;
}

inline Array run(const OnnxNode& node, const std::vector<Array>& x) {
  const auto axis = [&] { return node.integers.contains("axis") ? node.integers.at("axis").at(0) : int64_t{0}; };
  const std::string& op = node.op;
  if (op == "Add") return pairwise(x.at(0), x.at(1), std::plus<>());
  if (op == "Sub") return pairwise(x.at(0), x.at(1), std::minus<>());
  if (op == "Mul") return pairwise(x.at(0), x.at(1), std::multiplies<>());
  if (op == "Div") return pairwise(x.at(0), x.at(1), std::divides<>());
  if (op == "Pow") return pairwise(x.at(0), x.at(1), [](double a, double b) { return std::pow(a, b); });
  if (op == "Erf") return each(x.at(0), [](double a) { return std::erf(a); });
  if (op == "Sigmoid") return each(x.at(0), [](double a) { return 1 / (1 + std::exp(-a)); });
  if (op == "Relu") return each(x.at(0), [](double a) { return std::max(a, 0.0); });
  if (op == "Tanh") return each(x.at(0), [](double a) { return std::tanh(a); });
  if (op == "Identity" || op == "Cast") return x.at(0);
  if (op == "MatMul") return matmul(x.at(0), x.at(1));
  if (op == "Gather") return gather(x.at(0), x.at(1), axis());
  if (op == "Transpose") return transpose(x.at(0), node.integers.at("perm"));
  if (op == "Reshape") return reshape(x.at(0), x.at(1));
  if (op == "Unsqueeze") return unsqueeze(x.at(0), x.at(1));
  if (op == "Concat" && axis() + 1 == static_cast<int64_t>(x.at(0).shape.size())) return concat(x);
  if (op == "Sqrt") return each(x.at(0), [](double a) { return std::sqrt(a); });
  if (op == "Max") return pairwise(x.at(0), x.at(1), [](double a, double b) { return std::max(a, b); });
  if (op == "Equal") return pairwise(x.at(0), x.at(1), [](double a, double b) { return a == b ? 1.0 : 0.0; });
  if (op == "ReduceSum") return reduce(x.at(0), static_cast<int64_t>(x.at(1).values.at(0)), false, 0, std::plus<>());
  if (op == "ReduceMax")
    return reduce(x.at(0), node.integers.at("axes").at(0), false, -1e30,
                  [](double a, double b) { return std::max(a, b); });
  if (op == "ReduceL2")
    return each(reduce(x.at(0), node.integers.at("axes").at(0), true, 0, [](double a, double b) { return a + b * b; }),
                [](double a) { return std::sqrt(a); });
  if (op == "ArgMax" && axis() + 1 == static_cast<int64_t>(x.at(0).shape.size())) return arg_max(x.at(0));
  if (op == "GatherND" && node.integers.at("batch_dims").at(0) == 1) return gather_rows(x.at(0), x.at(1));
  if (op == "Range") return range(x.at(0).values.at(0), x.at(1).values.at(0), x.at(2).values.at(0));
  if (op == "Shape")
    return {{static_cast<int64_t>(x.at(0).shape.size())}, {x.at(0).shape.begin(), x.at(0).shape.end()}};
  if (op == "Softmax" && axis() == -1) return softmax(x.at(0));
  if (op == "LayerNormalization" && axis() == -1)
    return layer_norm(x.at(0), x.at(1), x.at(2), node.floats.at("epsilon"));
  throw std::logic_error("no rule for " + op);
}

}  // namespace onnx_running

/// The outputs by name. Throws std::logic_error if a node's argument is no result of an earlier node.
inline std::map<std::string, Array> evaluate(const OnnxFile& file, std::map<std::string, Array> values) {
  for (const auto& [name, tensor] : file.initializers) values[name] = {tensor.shape, tensor.values};
  for (const OnnxNode& node : file.nodes) {
    std::vector<Array> arguments;
    for (const std::string& input : node.inputs) {
      if (!values.contains(input)) throw std::logic_error(node.name + " reads " + input + ", which is not there yet");
      arguments.push_back(values.at(input));
    }
    if (values.contains(node.outputs.at(0))) throw std::logic_error(node.outputs.at(0) + " is there twice");
    values[node.outputs.at(0)] = onnx_running::run(node, arguments);
  }
  for (const OnnxInterface& described : file.described) {
    const std::vector<int64_t>& shape = values.at(described.name).shape;
    if (shape.size() != described.shape.size() || std::to_string(shape.back()) != described.shape.back())
      throw std::logic_error(described.name + " has another shape than the file says");
  }
  std::map<std::string, Array> outputs;
  for (const OnnxInterface& output : file.outputs) outputs[output.name] = values.at(output.name);
  return outputs;
}

}  // namespace bert::testing
