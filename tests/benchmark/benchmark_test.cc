// bert benchmark: both sides of every case compute the same; the output and the refusals of the verbs.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>
#include <utility>

#include "app/benchmark/random_batch.h"
#include "app/benchmark/report.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "cuda_ext/ops.h"
#include "data/io/error.h"
#include "tests/bench/kernel_times.h"
#include "tests/bench/plain_operators.h"
#include "tests/support/benchmark_command.h"
#include "tests/support/mismatch.h"
#include "tests/support/op_calls.h"
#include "tests/support/tiny_pretraining.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::run_benchmark;
using bert::testing::TemporaryDirectory;
using Output = bert::testing::BenchmarkOutput;

namespace {

using Tensors = KernelCase::Tensors;

const KernelShape kSmall{.tokens = 256, .hidden = 64, .heads = 1, .intermediate = 256, .vocabulary = 50};

Tensors copies(const Tensors& tensors) {
  Tensors result;
  for (const at::Tensor& tensor : tensors) result.push_back(tensor.clone());
  return result;
}

void check_close(const Tensors& got, const Tensors& want) {
  REQUIRE(got.size() == want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (!got[i].defined() && !want[i].defined()) continue;
    CAPTURE(i, got[i].sizes());
    const double scale = std::max(1.0, want[i].abs().max().item<double>());  // sums over rows, in another order
    const testing::Tolerance limit{testing::kFloat.absolute * scale, testing::kFloat.relative};
    CHECK(testing::mismatch(got[i], want[i], limit) == "");
  }
}

/// A tiny model's configuration file.
std::string tiny_config(const TemporaryDirectory& directory) {
  const std::string path = directory.path("tiny.json");
  std::ofstream(path)
      << R"({"run_directory": "run", "data": {"train": ["none"], "vocab_file": "none"}, "model": {"vocab_size": 64, "hidden_size": 64,
    "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128, "max_position_embeddings": 32}})";
  return path;
}

}  // namespace

TEST_CASE("Both sides of every kernel case compute the same", "[unit][benchmark]") {
  KernelShape shape = kSmall;
  shape.dropout = 0.0;  // at::dropout draws other masks
  at::manual_seed(1);
  for (const KernelCase& test : kernel_cases(shape)) {
    CAPTURE(test.name);
    if (test.name == "attention_unequal_lengths") continue;  // its two sides have different inputs, packed and padded
    const Tensors inputs = test.inputs();
    if (!test.backward) {  // in place
      const Tensors ours = copies(inputs), theirs = copies(inputs);
      const at::Tensor got = test.bert(ours), want = test.aten(theirs);
      check_close({got}, {want});
      check_close(ours, theirs);
      continue;
    }
    KernelRun ours(test, test.bert, inputs), theirs(test, test.aten, inputs);
    for (KernelRun* run : {&ours, &theirs}) {
      run->prepare();
      run->forward();
    }
    check_close({ours.result()}, {theirs.result()});
    const Tensors gradients = ours.backward();
    check_close(gradients, theirs.backward());
    for (const KernelCase::Rival& rival : test.rivals) {
      CAPTURE(rival.name);
      KernelRun run(test, rival.op, inputs);
      run.prepare();
      run.forward();
      check_close({ours.result()}, {run.result()});
      check_close(gradients, run.backward());
    }
  }
}

TEST_CASE("Unequal lengths: packed and padded attention agree, forward and backward", "[unit][benchmark]") {
  at::manual_seed(1);
  const at::Tensor qkv = at::randn({11, 3 * 16}).requires_grad_(true);
  const at::Tensor ends = at::tensor({0, 5, 6, 11}, at::kInt), upstream = at::randn({11, 16});
  const auto run = [&] {
    const at::Tensor out = ops::attention(qkv, ends, 5, 2, {});
    return Tensors{out.detach(), torch::autograd::grad({out}, {qkv}, {upstream}).front()};
  };
  const Tensors packed = run();
  for (const std::vector<OpGroup>& groups :
       std::vector<std::vector<OpGroup>>{{OpGroup::kAttention}, {OpGroup::kAttention, OpGroup::kSoftmax}}) {
    const PlainOperators scope(groups);
    check_close(packed, run());
  }
}

TEST_CASE("A scope of reference operators replaces its groups, ends where it ends, and is its thread's own",
          "[unit][benchmark]") {
  const auto leaf = [](at::IntArrayRef sizes) { return at::randn(sizes).requires_grad_(true); };
  const at::Tensor x = leaf({4, 16}), weight = leaf({16, 16}), vector = leaf({16}), qkv = leaf({4, 48}),
                   scores = leaf({1, 2, 4, 4}), ends = at::tensor({0, 4}, at::kInt), labels = at::zeros({4}, at::kLong);
  const ops::Dropout drop{.p = 0.1, .seed = 1, .site = 2, .keys = at::arange(4, at::kLong)};
  using Call = std::function<at::Tensor()>;
  const std::vector<std::pair<OpGroup, Call>> calls = {
      {OpGroup::kLinear, [&] { return ops::linear(x, weight, vector); }},
      {OpGroup::kLayerNorm, [&] { return ops::layer_norm(x, vector, vector, 1e-12); }},
      {OpGroup::kGelu, [&] { return ops::bias_gelu(x, vector, ops::Gelu::kErf); }},
      {OpGroup::kSoftmax, [&] { return ops::masked_softmax_dropout(scores, ends, 0.5, drop); }},
      {OpGroup::kAttention, [&] { return ops::attention(qkv, ends, 4, 2, drop); }},
      {OpGroup::kCrossEntropy, [&] { return ops::cross_entropy(x, labels, 16); }},
      {OpGroup::kDropout, [&] { return ops::dropout(x, drop); }}};
  const auto is_atens = [](const Call& call) {
    const std::string name = call().grad_fn()->name();
    return name.find("bert") == std::string::npos && name.ends_with("Backward0");
  };
  const auto check_replaced = [&](const std::vector<OpGroup>& groups) {
    const auto replaced = [&](OpGroup group) { return std::count(groups.begin(), groups.end(), group) == 1; };
    for (const auto& [group, call] : calls) {
      CAPTURE(static_cast<int>(group), groups.size());
      CHECK(is_atens(call) == replaced(group));
    }
  };
  check_replaced({});
  for (const OpGroup group : {OpGroup::kLinear, OpGroup::kLayerNorm, OpGroup::kGelu, OpGroup::kSoftmax,
                              OpGroup::kAttention, OpGroup::kCrossEntropy, OpGroup::kDropout}) {
    const PlainOperators scope({group});
    check_replaced({group});
    {
      const PlainOperators inner({OpGroup::kLayerNorm, OpGroup::kGelu});
      check_replaced({OpGroup::kLayerNorm, OpGroup::kGelu});
    }
    check_replaced({group});
    bool elsewhere = true;
    std::thread([&] { elsewhere = is_atens(calls[static_cast<size_t>(group) % calls.size()].second); }).join();
    CHECK_FALSE(elsewhere);
  }
  check_replaced({});
}

TEST_CASE("A padded random batch holds the same sequences and [PAD]", "[unit][benchmark]") {
  RandomBatchOptions options{.lengths = {3, 7}, .vocab_size = 64, .first_sequence = 5};
  const PackedBatch packed = random_batch(options, at::make_generator<at::CPUGeneratorImpl>(3));
  options.padded = true;
  const PackedBatch padded = random_batch(options, at::make_generator<at::CPUGeneratorImpl>(3));
  CHECK(packed.num_tokens() == 10);
  CHECK(padded.num_tokens() == 14);
  CHECK(padded.cu_seqlens.equal(at::tensor({0, 7, 14}, at::kInt)));
  CHECK(padded.input_ids.slice(0, 3, 7).eq(0).all().item<bool>());
  CHECK(packed.num_masked() == 2);
  CHECK(padded.num_masked() == 2);
  CHECK(packed.dropout_keys[3].item<int64_t>() == 6 << 16);
  CHECK(lengths_in_turn({1, 2, 3}, 2, 4) == std::vector<int64_t>{3, 1, 2, 3});
}

TEST_CASE("Every pass of every operator has a row of times", "[unit][benchmark]") {
  std::set<std::string> names;
  const KernelTable table = benchmark_kernels({.shape = kSmall, .filter = "", .seconds = 0.001}, [](const auto&) {});
  for (const auto& row : table.rows) {
    names.insert(row["name"].get<std::string>() + " " + row["pass"].get<std::string>());
    CHECK(row["ms_median"].get<double>() > 0);
    CHECK(row["ratio"].get<double>() > 0);
    CHECK(row.contains("bytes") != row.contains("flops"));
    CHECK(row.contains("copy_fraction") != row.contains("gemm_fraction"));
    const bool optimizer = row["name"] == "lamb" || row["name"] == "adamw";
    CHECK(row.contains("update_copy_fraction") == optimizer);
    CHECK(row.contains("norm_ms_median") == optimizer);
    const bool attention = row["name"].get<std::string>().starts_with("attention");
    CHECK(row.contains("aten_kernels") == attention);
    if (attention) CHECK((row["aten_kernels"] == "flash" || row["aten_kernels"] == "math"));
    if (optimizer) {  // 30 of 34 and 42 of 46 bytes (28 and 40 with fp32 weights), without the norm's time
      const double all = row["ms_median"].get<double>(), norm = row["norm_ms_median"].get<double>();
      const double bytes = row["update_bytes"].get<double>() / row["bytes"].get<double>();
      CHECK(norm > 0);
      CHECK(row["update_copy_fraction"].get<double>() ==
            Approx(row["copy_fraction"].get<double>() * bytes * all / std::max(1e-9, all - norm)));
    }
  }
  for (const KernelCase& test : kernel_cases(kSmall)) {
    CHECK(names.count(test.name + (test.backward ? " forward" : " update")) == 1);
    CHECK(names.count(test.name + " backward") == (test.backward ? 1 : 0));
  }
  CHECK_THROWS_AS(benchmark_kernels({.shape = kSmall, .filter = "nonsense", .seconds = 0.001}, [](const auto&) {}),
                  UsageError);
}

TEST_CASE("An operator that fails leaves the others their times", "[unit][benchmark]") {
  KernelShape shape = kSmall;
  shape.heads = shape.hidden - 1;  // no attention has such heads
  size_t seen = 0;
  const KernelTable table = benchmark_kernels({.shape = shape, .filter = "", .seconds = 0.001}, [&](const auto& row) {
    CHECK(row.contains("error") == (row["name"].template get<std::string>().rfind("attention", 0) == 0));
    CHECK(row.contains("error") != row.contains("ms_median"));
    ++seen;
  });
  CHECK(table.rows.size() == seen);
  CHECK(table.rows.back()["name"] == "adamw");
  REQUIRE(table.failure);
  CHECK_THROWS_AS(std::rethrow_exception(table.failure), c10::Error);
}

TEST_CASE("Bytes and FLOPs of the cases", "[unit][benchmark]") {
  const KernelShape shape{.tokens = 100,
                          .hidden = 10,
                          .heads = 1,
                          .intermediate = 40,
                          .vocabulary = 7,
                          .length = 50,
                          .dtype = at::kBFloat16};
  for (const KernelCase& test : kernel_cases(shape)) {
    CAPTURE(test.name);
    if (test.name == "layer_norm") {
      CHECK(test.forward.bytes == 2 * 100 * 10 * 2);
      CHECK(test.backward->bytes == 3 * 100 * 10 * 2);
    } else if (test.name == "linear") {
      CHECK(test.forward.flops == 2.0 * 100 * 10 * 40);
      CHECK(test.backward->flops == 4.0 * 100 * 10 * 40);
    } else if (test.name == "attention") {  // q k^T and p v: 2 sequences of 50 x 50 x 10, twice
      CHECK(test.forward.flops == 2.0 * 2 * 2 * 50 * 50 * 10);
    } else if (test.name == "cross_entropy") {
      CHECK(test.forward.bytes == 15 * 7 * 2);
    } else if (test.name == "adamw") {  // 2 layers: 4 (h^2 + h) + 2 h i + i + 5 h
      constexpr double kParameters = 2 * (4 * (100 + 10) + 2 * 400 + 40 + 5 * 10);
      CHECK(test.forward.bytes == kParameters * 34);
      CHECK(test.update_bytes == kParameters * 30);
    } else if (test.name == "lamb") {
      CHECK(test.update_bytes / test.forward.bytes == Approx(42.0 / 46));
    }
  }
}

TEST_CASE("bert benchmark step reports limits, the products of a layer, memory and gaps", "[unit][benchmark]") {
  const TemporaryDirectory directory;
  const Output output = run_benchmark("step --device cpu --config " + tiny_config(directory) +
                                      " --batch 2 --length 16 --steps 2 --warmup 0 --breakdown --json");
  CAPTURE(output.text);
  REQUIRE(output.status == kOk);
  const auto report = output.report();
  CHECK(report["limits"]["gemm_tflops"].get<double>() > 0);
  CHECK(report["limits"]["copy_gb_per_second"].get<double>() > 0);
  CHECK(report["limits"] == report["breakdown"]["limits"]);

  // 32 tokens, H = 64, I = 128: rows, columns and inner of the products that BERT's layers have.
  const std::vector<std::array<int64_t, 3>> sizes = {{32, 192, 64}, {32, 64, 192}, {192, 64, 32},  // query, key, value
                                                     {32, 64, 64},  {32, 64, 64},  {64, 64, 32},   // attention's output
                                                     {32, 128, 64}, {32, 64, 128}, {128, 64, 32},  // intermediate
                                                     {32, 64, 128}, {32, 128, 64}, {64, 128, 32}};  // output
  REQUIRE(report["products"].size() == sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) {
    const auto& row = report["products"][i];
    const std::array<int64_t, 3> got = {row["rows"].get<int64_t>(), row["columns"].get<int64_t>(),
                                        row["inner"].get<int64_t>()};
    CHECK(got == sizes[i]);
    const double flops = 2.0 * static_cast<double>(got[0] * got[1] * got[2]);
    CHECK(row["tflops"].get<double>() * row["ms"].get<double>() == Approx(1e-9 * flops).epsilon(1e-6));
  }

  // Weights, gradients and two moments of LAMB in fp32 are the least of it.
  const auto planned = report["memory"]["planned_bytes"].get<double>();
  CHECK(planned > 16.0 * 80'000);
  CHECK(planned < 32.0 * 200'000);
  CHECK(report["memory"]["peak_bytes"].get<double>() > planned);

  const auto& gaps = report["breakdown"]["gaps"];
  CHECK(gaps.size() <= 5);
  REQUIRE_FALSE(gaps.empty());
  for (size_t i = 1; i < gaps.size(); ++i)
    CHECK(gaps[i]["gap_ms"].get<double>() <= gaps[i - 1]["gap_ms"].get<double>());
}

TEST_CASE("bert benchmark --compare shows what became slower, and refuses what cannot be compared",
          "[unit][benchmark]") {
  const TemporaryDirectory directory;
  const std::string step = "step --device cpu --config " + tiny_config(directory) + " --batch 2 --length 16 --steps 2 ";
  const Output first = run_benchmark(step + "--json");
  CAPTURE(first.text);
  REQUIRE(first.status == kOk);
  auto old = first.report();
  const auto compare = [&](const std::string& arguments) {
    std::ofstream(directory.path("old.json")) << "a line before\n" << old.dump() << "\n\n";
    return run_benchmark(arguments + " --json --compare " + directory.path("old.json"));
  };
  old["ms_median"] = 1e6;
  const Output faster = compare(step + "--fail-below 1");
  CHECK(faster.status == kOk);
  CHECK(faster.report()["compare"]["slower"].empty());
  CHECK(faster.report()["compare"]["figures"][0]["ratio"].get<double>() > 1);
  old["ms_median"] = 1e-6;
  const Output slower = compare(step);
  CHECK(slower.status == kOk);
  CHECK(slower.report()["compare"]["slower"].size() == 1);
  CHECK(compare(step + "--fail-below 0.5").status == kSlower);
  old["batch"] = 4;
  const Output other = compare(step);
  CHECK(other.status == kUsage);
  CHECK_THAT(other.text, testing::Contains("batch: was 4, now 2"));
  old["benchmark"] = "kernels";
  CHECK(compare(step).status == kUsage);
  CHECK(run_benchmark(step + "--compare " + directory.path("absent.json")).status == kInputMissing);
  std::ofstream(directory.path("old.json")) << "{\"benchmark\":";
  CHECK(run_benchmark(step + "--compare " + directory.path("old.json")).status == kBadData);
  CHECK(run_benchmark(step + "--fail-below 0.5").status == kUsage);
}

TEST_CASE("Reports compare by name, whatever else they hold", "[unit][benchmark]") {
  const auto row = [](const char* name, double ms) { return nlohmann::json{{"name", name}, {"ms_median", ms}}; };
  const nlohmann::json before = {{"benchmark", "inference"}, {"cases", {row("plain", 4), row("gone", 1), 7}}};
  const nlohmann::json now = {{"benchmark", "inference"}, {"cases", {row("new", 1), row("plain", 2)}}};
  const auto figures = compare_reports(before, now);
  REQUIRE(figures.size() == 1);
  CHECK(figures[0].ratio() == 2.0);
  CHECK_THROWS_AS(compare_reports({{"benchmark", "step"}}, now), UsageError);
  CHECK_THROWS_AS(compare_reports({{"benchmark", "inference"}, {"cases", 3}}, now), UsageError);
}

TEST_CASE("bert benchmark inference prints its figures, and names what replaces a mode that is gone",
          "[unit][benchmark]") {
  const TemporaryDirectory directory;
  const std::string small =
      " --device cpu --config " + tiny_config(directory) + " --batch 2 --length 16 --steps 1 --warmup 0";
  for (const char* gone : {"ablation", "precisions", "communication"}) {
    const Output refused = run_benchmark(std::string(gone) + " --batch 4");
    CHECK(refused.status == kUsage);
    CHECK_THAT(refused.text, testing::Contains(std::string(gone) + ": this benchmark no longer exists; "));
  }
  const Output inference = run_benchmark("inference" + small + " --precision bf16 --json");
  CHECK(inference.report()["sequences_per_second"].get<double>() > 0);
  const std::vector<std::string> keys = {"ms_average", "ms_median", "ms_p90", "ms_p95", "ms_p99", "ms_p100"};
  for (const std::string& key : keys) CHECK(inference.report()[key].get<double>() > 0);
  for (const char* verb : {"", "step", "inference", "data"}) {
    const Output help = run_benchmark(std::string(verb) + " --help");
    CHECK(help.status == kOk);
    CHECK_THAT(help.text, testing::Contains("Example: bert benchmark"));
  }
}

TEST_CASE("bert benchmark inference prints NVIDIA's table for every length and batch size", "[unit][benchmark]") {
  const TemporaryDirectory directory;
  const std::string tiny = "inference --device cpu --config " + tiny_config(directory) + " --steps 3 --warmup 1 --json";
  const Output table = run_benchmark(tiny + " --batch 1,4 --length 5,16 --precision int8");
  CAPTURE(table.text);
  REQUIRE(table.status == kOk);
  CHECK_THAT(table.text, testing::Contains("| Model | Sequence Length | Batch Size | Precision | "
                                           "Throughput-Average(sent/sec) | Latency-Average(ms) | Latency-50%(ms) | "
                                           "Latency-90%(ms) | Latency-95%(ms) | Latency-99%(ms) | Latency-100%(ms) |"));
  CHECK_THAT(table.text, testing::Contains("| 2 x 64 | 16 | 4 | int8 | "));
  const nlohmann::json report = table.report();
  CHECK_FALSE(report.contains("sequences_per_second"));
  REQUIRE(report["cases"].size() == 4);
  const nlohmann::json last = report["cases"][3];
  CHECK(last["batch"] == 4);
  CHECK(last["length"] == 16);
  CHECK(last["tokens_per_second"].get<double>() ==
        testing::Approx(16 * last["sequences_per_second"].get<double>()).epsilon(1e-6));
  CHECK(last["sequences_per_second"].get<double>() == testing::Approx(4e3 / last["ms_average"].get<double>()));
  CHECK(last["ms_median"].get<double>() <= last["ms_p100"].get<double>());
  // A file of lengths: 3 batches of 2 texts have 3 + 7 + 5 + 3 + 7 + 5 tokens.
  std::ofstream(directory.path("lengths")) << "3\n7\n5\n";
  const nlohmann::json mixed = run_benchmark(tiny + " --batch 2 --lengths " + directory.path("lengths")).report();
  CHECK(mixed["tokens_per_second"].get<double>() ==
        testing::Approx(5 * mixed["sequences_per_second"].get<double>()).epsilon(1e-6));
  CHECK(run_benchmark(tiny + " --length 33").status == kUsage);  // max_position_embeddings is 32
  CHECK(run_benchmark(tiny + " --length 5 --lengths x").status == kUsage);
}

TEST_CASE("A step in bf16 runs where oneDNN stops at AVX2", "[unit][benchmark]") {
  const TemporaryDirectory directory;
  const std::string limit = "env ONEDNN_MAX_CPU_ISA=avx2";
  const std::string shape = " --device cpu --config " + tiny_config(directory) +
                            " --batch 12 --length 32 --steps 1 --warmup 0 --json"
                            " model.hidden_size=512 model.intermediate_size=512 model.num_hidden_layers=1"
                            " model.hidden_dropout_prob=0 model.attention_probs_dropout_prob=0";
  const Output bf16 =
      run_benchmark("step --precision bf16" + shape, limit);  // oneDNN is limited, so this holds on any processor
  CAPTURE(bf16.text);
  CHECK(bf16.status == kOk);
}
