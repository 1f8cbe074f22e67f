// Times every operator beside ATen's expression, a copy and a matrix product, and prints a line for each pass and a JSON
// object at the end:
//   BERT_TEST_PROGRAM="kernel times" BERT_TEST_DEVICE=cuda build/tests/bert_tests
// BERT_KERNEL_TOKENS, BERT_KERNEL_HIDDEN, BERT_KERNEL_SECONDS and BERT_KERNEL_FILTER change the sizes, the seconds for
// each operator, and which operators are timed. On the CPU the dtype is fp32, on a GPU bf16.
#include <fmt/format.h>
#include <torch/types.h>

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "app/benchmark/report.h"
#include "app/device/device.h"
#include "cuda_ext/compat.h"
#include "cuda_ext/names.h"
#include "tests/bench/kernel_times.h"
#include "tests/support/test_program.h"

namespace bert::testing {
namespace {

using Json = nlohmann::ordered_json;

std::string variable(const char* name, const std::string& otherwise) {
  const char* const value = std::getenv(name);
  return value == nullptr ? otherwise : value;
}

void print(const Json& row) {
  if (row.contains("error")) {
    fmt::print("{:<34}{}\n", row["name"].get<std::string>(), row["error"].get<std::string>());
    return;
  }
  const auto number = [&](const char* key) { return row.value(key, 0.0); };
  const std::string speed = row.contains("bytes")
                                ? fmt::format("{:>10.1f} MB {:>8.1f} GB/s {:>6.1f} % of copy", 1e-6 * number("bytes"),
                                              number("gb_per_second"), 100 * number("copy_fraction"))
                                : fmt::format("{:>7.1f} GFLOP {:>6.2f} TFLOP/s {:>4.0f} % of GEMM",
                                              1e-9 * number("flops"), number("tflops"), 100 * number("gemm_fraction"));
  fmt::print("{:<34}{:<9}{:>9.3f} ms +-{:>3.0f} %{}{:>8.2f} x ATen\n", row["name"].get<std::string>(),
             row["pass"].get<std::string>(), number("ms_median"), 50 * number("spread"), speed, number("ratio"));
  std::fflush(stdout);
}

const TestProgram kKernelTimes("kernel times", [] {
  const c10::Device device = select_device(value_named<DeviceChoice>(variable("BERT_TEST_DEVICE", "cpu")).value(), 0);
  const bool cuda = device.is_cuda();
  KernelBenchmarkOptions options{.shape = {}, .filter = variable("BERT_KERNEL_FILTER", "")};
  options.seconds = std::stod(variable("BERT_KERNEL_SECONDS", "0.5"));
  KernelShape& shape = options.shape;
  shape.device = device;
  shape.dtype = cuda ? at::kBFloat16 : at::kFloat;
  shape.tokens = std::stoll(variable("BERT_KERNEL_TOKENS", cuda ? "32768" : "4096"));
  shape.hidden = std::stoll(variable("BERT_KERNEL_HIDDEN", cuda ? "1024" : "768"));
  constexpr int64_t kHead = 64;  // head size of every published BERT
  shape.heads = std::max<int64_t>(1, shape.hidden / kHead);
  shape.intermediate = 4 * shape.hidden;
  Json report = {{"benchmark", "kernels"}, {"machine", cuda ? compat::device_name(device) : processor_name()},
                 {"device", device.str()}, {"precision", cuda ? "bf16" : "fp32"},
                 {"tokens", shape.tokens}, {"hidden_size", shape.hidden}};
  fmt::print("{}, T = {}, H = {}\n", report["machine"].get<std::string>(), shape.tokens, shape.hidden);
  KernelTable table = benchmark_kernels(options, print);
  report["kernels"] = std::move(table.rows);
  fmt::print("{}\n", report.dump());
  if (table.failure) std::rethrow_exception(table.failure);
});

}  // namespace
}  // namespace bert::testing
