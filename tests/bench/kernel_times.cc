#include "tests/bench/kernel_times.h"

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "app/benchmark/report.h"
#include "app/device/device.h"
#include "app/system/errors.h"
#include "app/system/torch_errors.h"
#include "cuda_ext/ops.h"

namespace bert {
namespace {

using at::Tensor;
using Json = nlohmann::ordered_json;

/// A point in time: in the queue of the device, or of the steady clock on the CPU.
class Moment {
 public:
  explicit Moment(at::Device device) {
    if (device.is_cpu()) {
      time_ = std::chrono::steady_clock::now();
    } else {
      event_.emplace(device.type(), c10::EventFlag::BACKEND_DEFAULT);  // the flag that allows elapsedTime
      event_->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
    }
  }
  /// Waits for the device.
  double ms_since(const Moment& start) const {
    if (!event_) return 1e3 * std::chrono::duration<double>(time_ - start.time_).count();
    event_->synchronize();
    return start.event_->elapsedTime(*event_);
  }

 private:
  std::chrono::steady_clock::time_point time_;
  std::optional<c10::Event> event_;
};

/// Work that keeps a device busy while the host records and launches the timed work; otherwise events would also
/// measure the launches. It also clears the caches. On the CPU, which runs everything at once, it does nothing.
class Runway {
 public:
  explicit Runway(at::Device device) {
    // The largest takes 0.1 ms and more on any GPU, and is more than its cache. A slow GPU does not need it.
    constexpr int64_t kSmallest = 1 << 20, kLargest = 256 << 20;  // bytes
    if (device.is_cpu()) return;
    for (int64_t bytes = kSmallest; bytes <= kLargest; bytes *= 4) {
      from_ = at::randn({bytes / static_cast<int64_t>(sizeof(float))}, at::device(device));
      to_ = at::empty_like(from_);
      if (shortest_time(device, [&] { to_.copy_(from_); }) >= kLongWork) break;
    }
  }
  void lay() const {
    for (int copies = 0; from_.defined() && copies < 4; ++copies) to_.copy_(from_);
  }

 private:
  Tensor from_, to_;
};

struct Times {
  double forward_ms = 0.0, backward_ms = 0.0;
};

Times time(KernelRun& run, const Runway& runway, at::Device device) {
  run.prepare();
  runway.lay();
  const Moment start(device);
  run.forward();
  const Moment middle(device);
  Times times{.forward_ms = middle.ms_since(start), .backward_ms = 0.0};
  if (!run.has_backward()) return times;
  runway.lay();
  const Moment before(device);
  run.backward();
  times.backward_ms = Moment(device).ms_since(before);
  return times;
}

/// A copy that moves `bytes` of random numbers, half read and half written. Constant numbers would draw less power.
class Copy {
 public:
  Copy(double bytes, at::Device device)
      : from_(at::randn({std::max<int64_t>(1, std::llround(bytes / 2 / sizeof(float)))}, at::device(device))),
        to_(at::empty_like(from_)) {}
  double run(const Runway& runway) const {
    runway.lay();
    const Moment start(from_.device());
    to_.copy_(from_);
    return Moment(from_.device()).ms_since(start);
  }

 private:
  Tensor from_, to_;
};

/// A square product by the faster backend, as the model's products are: the rate that a GEMM can reach here.
class Product {
 public:
  explicit Product(const KernelShape& shape) {
    const int64_t largest = shape.device.is_cpu() ? 1024 : 8192;  // a slow GPU takes minutes for it
    for (size_ = 1024;; size_ *= 2) {
      a_ = at::randn({size_, size_}, at::TensorOptions().dtype(shape.dtype).device(shape.device));
      if (size_ == largest || shortest_time(shape.device, [&] { ops::linear(a_, a_, /*bias=*/{}); }) >= kLongWork)
        break;
    }
  }
  /// FLOP/s.
  double run(const Runway& runway) const {
    runway.lay();
    const Moment start(a_.device());
    ops::linear(a_, a_, /*bias=*/{});
    return 2e3 * std::pow(static_cast<double>(size_), 3) / Moment(a_.device()).ms_since(start);
  }

 private:
  int64_t size_ = 0;
  Tensor a_;
};

/// The fastest of a case's rivals, forward and backward together; `aten` if there are none.
KernelCase::Rival fastest(const KernelCase& test, const KernelCase::Tensors& inputs, const Runway& runway,
                          at::Device device) {
  constexpr int kRounds = 5;  // the first warms up
  KernelCase::Rival best{.name = "", .op = test.aten};
  double best_ms = std::numeric_limits<double>::infinity();
  for (const KernelCase::Rival& rival : test.rivals) {
    try {
      KernelRun run(test, rival.op, inputs);
      for (int round = 0; round < kRounds; ++round) {
        const Times times = time(run, runway, device);
        if (round == 0 || times.forward_ms + times.backward_ms >= best_ms) continue;
        best_ms = times.forward_ms + times.backward_ms;
        best = rival;
      }
    } catch (const c10::Error&) {  // these kernels are absent or do not take these shapes
    }
  }
  return best;
}

/// The times of the rounds of one pass.
struct Samples {
  std::vector<double> bert_ms, aten_ms, copy_ms, norm_ms;
};

Json row(const KernelCase& test, const std::string& rival, const char* pass, const KernelCost& cost,
         const Samples& samples, const std::vector<double>& gemm) {
  const Quantiles ours(samples.bert_ms), aten(samples.aten_ms);
  const double seconds = ours.at(0.5) * 1e-3;
  Json result = {{"name", test.name},
                 {"pass", pass},
                 {"ms_median", ours.at(0.5)},
                 {"spread", (ours.at(0.9) - ours.at(0.1)) / ours.at(0.5)}};
  if (cost.bytes > 0.0) {
    result["bytes"] = cost.bytes;
    result["gb_per_second"] = 1e-9 * cost.bytes / seconds;
    const double copy_fraction = Quantiles(samples.copy_ms).at(0.5) / ours.at(0.5);
    result["copy_fraction"] = copy_fraction;
    if (test.norm) {  // the update without the time and the bytes of the norm
      const double norm_ms = Quantiles(samples.norm_ms).at(0.5);
      result["norm_ms_median"] = norm_ms;
      result["update_bytes"] = test.update_bytes;
      result["update_copy_fraction"] =
          copy_fraction * test.update_bytes / cost.bytes * ours.at(0.5) / std::max(1e-9, ours.at(0.5) - norm_ms);
    }
  }
  if (cost.flops > 0.0) {
    result["flops"] = cost.flops;
    result["tflops"] = 1e-12 * cost.flops / seconds;
    result["gemm_fraction"] = cost.flops / seconds / Quantiles(gemm).at(0.5);
  }
  result["aten_ms_median"] = aten.at(0.5);
  if (!rival.empty()) result["aten_kernels"] = rival;
  result["ratio"] = aten.at(0.5) / ours.at(0.5);
  return result;
}

void run_case(const KernelCase& test, const KernelBenchmarkOptions& options, const Runway& runway,
              const std::function<void(const Json&)>& done) {
  const KernelShape& shape = options.shape;
  const auto inputs = test.inputs();
  const KernelCase::Rival rival = fastest(test, inputs, runway, shape.device);
  KernelRun ours(test, test.bert, inputs), theirs(test, rival.op, inputs);
  const bool two_passes = ours.has_backward();
  const KernelCost forward = test.forward, backward = test.backward.value_or(KernelCost{});
  const Copy forward_copy(forward.bytes, shape.device), backward_copy(backward.bytes, shape.device);
  std::optional<Product> product;
  if (forward.flops > 0.0) product.emplace(shape);
  std::optional<KernelRun> norm;
  if (test.norm) norm.emplace(test, test.norm, inputs);

  Samples first, second;
  std::vector<double> gemm;
  double spent_ms = 0.0;
  constexpr int kWarmup = 2;
  for (int round = -kWarmup; round < KernelBenchmarkOptions::kMaxRounds; ++round) {
    if (round >= KernelBenchmarkOptions::kMinRounds && spent_ms > 1e3 * options.seconds) break;
    // Both follow a copy, which fills the caches with its own data. They take turns at going first.
    const bool ours_first = round % 2 == 0;
    const Times first_times = time(ours_first ? ours : theirs, runway, shape.device);
    const double copied = forward_copy.run(runway);
    const Times second_times = time(ours_first ? theirs : ours, runway, shape.device);
    const double copied_back = backward_copy.run(runway);
    const Times &bert = ours_first ? first_times : second_times, &aten = ours_first ? second_times : first_times;
    const double rate = product ? product->run(runway) : 0.0;
    const double norm_ms = norm ? time(*norm, runway, shape.device).forward_ms : 0.0;
    if (round < 0) continue;
    first.bert_ms.push_back(bert.forward_ms);
    first.aten_ms.push_back(aten.forward_ms);
    first.copy_ms.push_back(copied);
    first.norm_ms.push_back(norm_ms);
    second.bert_ms.push_back(bert.backward_ms);
    second.aten_ms.push_back(aten.backward_ms);
    second.copy_ms.push_back(copied_back);
    gemm.push_back(rate);
    spent_ms += bert.forward_ms + bert.backward_ms + aten.forward_ms + aten.backward_ms;
  }
  done(row(test, rival.name, two_passes ? "forward" : "update", forward, first, gemm));
  if (two_passes) done(row(test, rival.name, "backward", backward, second, gemm));
}

}  // namespace

KernelTable benchmark_kernels(const KernelBenchmarkOptions& options, const std::function<void(const Json&)>& done) {
  const c10::OptionalDeviceGuard guard(options.shape.device.is_cpu() ? std::nullopt
                                                                     : std::optional(options.shape.device));
  const Runway runway(options.shape.device);
  KernelTable table{.rows = Json::array(), .failure = nullptr};
  const auto add = [&](const Json& result) {
    table.rows.push_back(result);
    done(result);
  };
  std::string names;
  for (const KernelCase& test : kernel_cases(options.shape)) {
    names += (names.empty() ? "" : ", ") + test.name;
    if (test.name.find(options.filter) == std::string::npos) continue;
    try {
      run_case(test, options, runway, add);
    } catch (const c10::Error& error) {
      if (!table.failure) table.failure = std::current_exception();
      add({{"name", test.name}, {"error", first_line(error.what_without_backtrace())}});
    }
  }
  if (table.rows.empty())
    throw UsageError("--filter " + options.filter + ": no operator's name contains it; there are " + names);
  return table;
}

}  // namespace bert
