#include "app/benchmark/inference.h"

#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

#include "app/benchmark/random_batch.h"
#include "app/benchmark/report.h"
#include "app/device/device.h"
#include "app/plan/flops.h"
#include "app/train/step/training_step.h"
#include "model/inference.h"
#include "optim/amp.h"

namespace bert {
namespace {

using Json = nlohmann::ordered_json;

/// The model in the precision of the options, on their device.
BertInference prepared(const InferenceBenchmarkOptions& options) {
  const bool int8 = options.precision == "int8";
  const Precision precision = int8 ? Precision::kFp32 : value_named<Precision>(options.precision).value();
  set_matmul_precision(precision);
  BertModel model = options.model;
  model->to(options.device, compute_dtype(precision));
  return BertInference(*model, int8 ? ops::Products::kInt8 : ops::Products::kOfDtype);
}

struct Case {
  std::vector<int64_t> lengths;
  int64_t batch = 0;
};

Json measured(const BertInference& model, const Case& test, const InferenceBenchmarkOptions& options) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(0);
  const FlopCounter flops(model.config(), /*sentence_pair_head=*/true);
  std::vector<double> seconds;
  double total_flops = 0;
  int64_t tokens = 0;
  for (int64_t i = -options.warmup; i < options.steps; ++i) {
    const int64_t first = (i < 0 ? i + options.warmup : i) * test.batch;
    const std::vector<int64_t> lengths = lengths_in_turn(test.lengths, first, test.batch);
    const PackedBatch batch =
        random_batch({.lengths = lengths, .vocab_size = model.config().vocab_size, .first_sequence = first}, generator)
            .to(options.device);
    synchronize(options.device);
    const auto start = std::chrono::steady_clock::now();
    const BertModelOutput output = model.forward(batch);
    synchronize(options.device);
    if (i < 0) continue;
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    tokens += batch.num_tokens();
    for (const int64_t length : lengths) total_flops += flops.forward_of_sequence(length);
  }
  const double total = std::accumulate(seconds.begin(), seconds.end(), 0.0);
  const Quantiles quantiles(seconds);
  Json row = {{"batch", test.batch}};
  if (test.lengths.size() == 1) row["length"] = test.lengths.front();
  row.update({{"sequences_per_second", static_cast<double>(test.batch * options.steps) / total},
              {"tokens_per_second", static_cast<double>(tokens) / total},
              {"tflops", 1e-12 * total_flops / total},
              {"ms_average", 1e3 * total / static_cast<double>(seconds.size())},
              {"ms_median", 1e3 * quantiles.at(0.5)}});
  for (const auto& [name, share] : {std::pair{"ms_p90", 0.9}, {"ms_p95", 0.95}, {"ms_p99", 0.99}, {"ms_p100", 1.0}}) {
    row[name] = 1e3 * quantiles.at(share);
  }
  return row;
}

}  // namespace

Json benchmark_inference(InferenceBenchmarkOptions options, const std::function<void(const Json& row)>& done) {
  const BertInference model = prepared(options);
  options.model = nullptr;
  const double rate =
      options.precision == "int8"
          ? 0.0
          : measure_gemm(options.device, compute_dtype(value_named<Precision>(options.precision).value()));
  Json rows = Json::array();
  for (const std::vector<int64_t>& lengths : options.lengths) {
    for (const int64_t batch : options.batches) {
      Json row = measured(model, {.lengths = lengths, .batch = batch}, options);
      if (rate > 0) row["mfu"] = 1e12 * row["tflops"].get<double>() / rate;
      done(row);
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

}  // namespace bert
