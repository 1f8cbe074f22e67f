// Shared code of the optimizer tests: the golden's parameters and gradients, two small parameters, comparison of
// states.
#pragma once

#include <ATen/ATen.h>

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "optim/optimizer.h"
#include "tests/support/mismatch.h"
#include "tests/testing.h"

namespace bert::testing {

using nlohmann::json;
using torch::Tensor;

inline json optimizers_golden() { return json::parse(std::ifstream(golden("optimizers.json"))); }

inline Tensor scalar(double value) { return at::scalar_tensor(value, at::kFloat); }

inline Tensor tensor_of(const json& values, const json& shape, at::ScalarType dtype = at::kFloat) {
  return at::tensor(values.get<std::vector<double>>(), at::kDouble).view(shape.get<std::vector<int64_t>>()).to(dtype);
}

inline std::vector<NamedParameter> start_parameters(const json& g, at::ScalarType dtype = at::kFloat) {
  std::vector<NamedParameter> parameters;
  for (size_t i = 0; i < g["tensors"].size(); ++i) {
    parameters.push_back(
        {g["tensors"][i]["name"], tensor_of(g["start"][i], g["tensors"][i]["shape"], dtype).requires_grad_()});
  }
  return parameters;
}

inline void set_gradients(const json& g, size_t step, double scale, std::vector<NamedParameter>& parameters) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Tensor& tensor = parameters[i].tensor;
    const Tensor grad =
        tensor_of(g["gradients_times_1024"][step][i], g["tensors"][i]["shape"], at::kDouble) / 1024.0 * scale;
    parameters[i].tensor.mutable_grad() = grad.to(tensor.scalar_type());
  }
}

inline std::vector<NamedParameter> small_parameters() {
  return {{"a.weight", at::tensor({1.0F, -2.0F, 0.5F, 0.25F}).requires_grad_()},
          {"a.bias", at::tensor({0.1F, -0.1F}).requires_grad_()}};
}

inline void set_small_gradients(std::vector<NamedParameter>& parameters, float factor = 1.0F) {
  parameters[0].tensor.mutable_grad() = at::tensor({0.1F, 0.2F, -0.3F, 0.4F}) * factor;
  parameters[1].tensor.mutable_grad() = at::tensor({0.05F, -0.5F}) * factor;
}

inline StateDict copy_of(const StateDict& state) {
  StateDict copy;
  for (const auto& item : state) copy.insert(item.key(), item.value().clone());
  return copy;
}

inline bool same_bits(const StateDict& a, const StateDict& b) {
  if (a.size() != b.size()) return false;
  for (const auto& item : a) {
    if (!item.value().equal(b[item.key()])) return false;
  }
  return true;
}

/// Calls check(name, config) for each floating-point field of the configuration, with NaN in that field. Returns the
/// number of these fields.
template <class Config, class Check>
int with_each_nan(Config config, const Check& check) {
  int fields = 0;
  Config::visit_fields(config, [&](const char* name, auto& value, auto&&...) {
    if constexpr (std::is_same_v<decltype(value), double&>) {
      const double before = std::exchange(value, std::numeric_limits<double>::quiet_NaN());
      check(name, std::as_const(config));
      value = before;
      ++fields;
    }
  });
  return fields;
}

}  // namespace bert::testing
