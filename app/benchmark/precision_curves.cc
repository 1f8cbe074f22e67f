#include "app/benchmark/precision_curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <numeric>
#include <sstream>

#include "app/report/line_chart.h"
#include "app/train/micro_batch.h"
#include "app/train/run_inputs.h"
#include "app/train/step/device.h"
#include "app/train/step/training_step.h"
#include "data/formats/shard.h"
#include "data/io/error.h"
#include "data/loader/dataloader.h"

namespace bert {
namespace {

double mean(const double* begin, const double* end) {
  return std::accumulate(begin, end, 0.0) / static_cast<double>(std::max<int64_t>(1, end - begin));
}

std::vector<double> smoothed(const std::vector<double>& values) {
  constexpr size_t kWindow = 20;
  std::vector<double> result;
  for (size_t i = 1; i <= values.size(); ++i) {
    result.push_back(mean(values.data() + (i > kWindow ? i - kWindow : 0), values.data() + i));
  }
  return result;
}

}  // namespace

double final_loss(const PrecisionCurve& curve) {
  const size_t steps = curve.loss.size(), last = std::max<size_t>(1, steps / 10);
  return mean(curve.loss.data() + (steps - std::min(steps, last)), curve.loss.data() + steps);
}

std::vector<PrecisionCurve> train_in_precisions(PretrainConfig config, const std::vector<std::string>& precisions,
                                                int64_t steps,
                                                const std::function<void(const PrecisionCurve& curve)>& progress) {
  const c10::Device device = select_device(config.device, 0);
  const auto shards = std::make_shared<const PretrainingShards>(training_paths(config.data));
  config = with_micro_batch(config, *shards, {.device = device}, [](const std::string&) {});
  DataLoaderConfig loading;
  loading.micro_batch_size = config.micro_batch_size;
  loading.global_batch_size = config.global_batch_size;
  loading.seed = static_cast<uint64_t>(config.seed);
  config.max_steps = steps;
  config = with_objective(config, *shards);
  std::vector<PrecisionCurve> curves;
  for (const std::string& precision : precisions) {
    config.precision = precision;
    TrainingStep step(config, device, nullptr);
    PretrainingDataLoader loader(shards, loading);
    PrecisionCurve& curve = curves.emplace_back(PrecisionCurve{.precision = precision, .loss = {}});
    for (int64_t i = 0; i < steps; ++i) {
      GlobalStep next = loader.next_step();
      next.move_to(device);
      step.run(next);
      const TrainingStep::MeanLoss loss = step.take_mean_loss();
      curve.loss.push_back(loss.mlm + loss.nsp);
      curve.skipped = i + 1 - step.applied_steps();
      progress(curve);
    }
  }
  return curves;
}

std::string curves_to_csv(const std::vector<PrecisionCurve>& curves) {
  std::string csv = "step";
  size_t steps = 0;
  for (const PrecisionCurve& curve : curves) {
    csv += "," + curve.precision;
    steps = std::max(steps, curve.loss.size());
  }
  for (size_t i = 0; i < steps; ++i) {
    csv += fmt::format("\n{}", i + 1);
    for (const PrecisionCurve& curve : curves) csv += fmt::format(",{:.6f}", curve.loss[i]);
  }
  return csv + "\n";
}

std::vector<PrecisionCurve> curves_from_csv(const std::string& text, const std::string& name) {
  std::vector<PrecisionCurve> curves;
  std::istringstream lines(text);
  int64_t line_number = 0;
  for (std::string line; std::getline(lines, line); ++line_number) {
    std::istringstream fields(line);
    size_t column = 0;
    for (std::string field; std::getline(fields, field, ','); ++column) {
      if (column == 0) continue;  // the step
      if (line_number == 0) {
        curves.push_back({.precision = field, .loss = {}});
        continue;
      }
      double value = 0;
      const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
      if (error != std::errc() || end != field.data() + field.size() || column > curves.size()) {
        throw DataError(fmt::format("{}:{}: expected a loss for each precision, got {}", name, line_number + 1, line));
      }
      curves[column - 1].loss.push_back(value);
    }
    if (column != curves.size() + 1) {
      throw DataError(
          fmt::format("{}:{}: expected {} columns, got {}", name, line_number + 1, curves.size() + 1, column));
    }
  }
  return curves;
}

std::string curves_to_svg(const std::vector<PrecisionCurve>& curves) {
  LineChart chart{.title = "Pre-training loss by precision (mean of 20 steps)",
                  .x_label = "step",
                  .y_label = "masked tokens + next sentence, nats",
                  .lines = {}};
  const double reference = curves.empty() ? 0 : final_loss(curves.front());
  for (const PrecisionCurve& curve : curves) {
    const double loss = final_loss(curve);
    chart.lines.push_back({fmt::format("{}: {:.4f} ({:+.2f} %)", curve.precision, loss, 100 * (loss / reference - 1)),
                           smoothed(curve.loss)});
  }
  return to_svg(chart);
}

}  // namespace bert
