#include "app/benchmark/products.h"

#include <torch/types.h>

#include "app/device/device.h"

namespace bert {
namespace {

using Json = nlohmann::ordered_json;

Json timed_product(const char* product, const char* pass, const torch::Tensor& a, const torch::Tensor& b) {
  const int repeats = a.is_cuda() ? 10 : 1;  // the host's part of a launch is long beside a small product
  torch::Tensor result = torch::mm(a, b);
  const double seconds = shortest_time(a.device(),
                                       [&] {
                                         for (int i = 0; i < repeats; ++i) torch::mm_out(result, a, b);
                                       }) /
                         repeats;
  const double flops = 2.0 * static_cast<double>(result.numel()) * static_cast<double>(a.size(1));
  return {{"product", product}, {"pass", pass},        {"rows", result.size(0)},           {"columns", result.size(1)},
          {"inner", a.size(1)}, {"ms", 1e3 * seconds}, {"tflops", 1e-12 * flops / seconds}};
}

}  // namespace

Json benchmark_products(const BertConfig& config, int64_t tokens, c10::Device device, c10::ScalarType dtype) {
  const torch::NoGradGuard no_grad;
  const auto random = [&](int64_t rows, int64_t columns) {
    return torch::randn({rows, columns}, torch::TensorOptions().device(device)).to(dtype);
  };
  struct LayerProduct {
    const char* name;
    int64_t in, out;
  };
  const int64_t hidden = config.hidden_size, intermediate = config.intermediate_size;
  Json rows = Json::array();
  for (const LayerProduct& linear : {LayerProduct{"query, key and value", hidden, 3 * hidden},
                                     {"attention output", hidden, hidden},
                                     {"intermediate", hidden, intermediate},
                                     {"output", intermediate, hidden}}) {
    const torch::Tensor x = random(tokens, linear.in), weight = random(linear.out, linear.in),
                        gradient = random(tokens, linear.out);
    rows.push_back(timed_product(linear.name, "forward", x, weight.t()));
    rows.push_back(timed_product(linear.name, "to the input", gradient, weight));
    rows.push_back(timed_product(linear.name, "to the weight", gradient.t(), x));
  }
  return rows;
}

}  // namespace bert
