// The multi-tensor kernels, run by the emulator in every order of threads and blocks, against scalar twins in double.
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "cuda_ext/kernels/multi_tensor_launchers.h"
#include "tests/support/kernel_testing.h"

namespace bert::kernels {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();

/// Sizes around the vectors, the block and the chunk; one of three chunks, and empty tensors at both ends.
const std::vector<size_t> kSizes{0, 1, 3, 4, 7, 255, 1000, 16384, 16385, 0, 40003, 0};

template <class T>
constexpr ElementType kElementType = ElementType::kFloat;
template <>
constexpr ElementType kElementType<c10::Half> = ElementType::kHalf;
template <>
constexpr ElementType kElementType<c10::BFloat16> = ElementType::kBFloat16;
template <class T>
constexpr CopyType kCopyType = CopyType::kNone;
template <>
constexpr CopyType kCopyType<c10::Half> = CopyType::kHalf;
template <>
constexpr CopyType kCopyType<c10::BFloat16> = CopyType::kBFloat16;

/// Tensors of device memory, each behind `shift` elements, so that not all are aligned.
template <class T>
struct DeviceTensors {
  std::vector<std::unique_ptr<DeviceBuffer<T>>> buffers;
  std::vector<size_t> shifts;

  explicit DeviceTensors(const std::vector<std::vector<T>>& values, bool shifted = false) {
    for (size_t i = 0; i < values.size(); ++i) {
      shifts.push_back(shifted && i % 2 == 0 ? 1 : 0);
      buffers.push_back(std::make_unique<DeviceBuffer<T>>(values[i].size() + shifts[i]));
    }
    assign(values);
  }
  [[nodiscard]] T* data(size_t i) const { return buffers[i]->data() + shifts[i]; }
  void assign(const std::vector<std::vector<T>>& values) const {
    for (size_t i = 0; i < values.size(); ++i) {
      if (!values[i].empty()) std::memcpy(data(i), values[i].data(), values[i].size() * sizeof(T));
    }
  }
  [[nodiscard]] std::vector<std::vector<T>> values() const {
    std::vector<std::vector<T>> result;
    for (size_t i = 0; i < buffers.size(); ++i) result.emplace_back(data(i), buffers[i]->data() + buffers[i]->size());
    return result;
  }
  [[nodiscard]] std::string bytes() const {
    std::string result;
    for (const auto& buffer : buffers) {
      result.append(reinterpret_cast<const char*>(buffer->data()), buffer->size() * sizeof(T));
    }
    return result;
  }
  [[nodiscard]] bool intact() const {
    return std::all_of(buffers.begin(), buffers.end(), [](const auto& buffer) { return buffer->intact(); });
  }
};

template <class T>
std::vector<std::vector<T>> random_tensors(const std::vector<size_t>& sizes, unsigned seed, double center = 0.0) {
  std::vector<std::vector<T>> result;
  for (const size_t size : sizes) result.push_back(random_values<T>(size, seed++, center));
  return result;
}

template <class T>
long long count_of(const std::vector<T>& values) {
  return static_cast<long long>(values.size());
}

bool aligned(const void* pointer, size_t bytes) { return reinterpret_cast<uintptr_t>(pointer) % bytes == 0; }

/// The table of a list of tensors, and the memory between blocks.
template <class T>
struct List {
  std::vector<ChunkEntry> chunk_list;
  std::unique_ptr<DeviceBuffer<ListEntry>> entries;
  std::unique_ptr<DeviceBuffer<ChunkEntry>> chunks;
  std::unique_ptr<DeviceBuffer<double>> chunk_sums, tensor_sums;
  std::unique_ptr<DeviceBuffer<unsigned>> tickets;

  explicit List(const DeviceTensors<T>& tensors) {
    std::vector<ListEntry> list;
    for (size_t i = 0; i < tensors.buffers.size(); ++i) {
      ListEntry entry{
          .data = tensors.data(i), .type = kElementType<T>, .aligned = aligned(tensors.data(i), 4 * sizeof(T))};
      entry.first_chunk = static_cast<int64_t>(chunk_list.size());
      const size_t size = tensors.buffers[i]->size() - tensors.shifts[i];
      entry.chunks = append_chunks(static_cast<int64_t>(i), static_cast<int64_t>(size), kOptimChunk, chunk_list);
      list.push_back(entry);
    }
    entries = std::make_unique<DeviceBuffer<ListEntry>>(list);
    chunks = std::make_unique<DeviceBuffer<ChunkEntry>>(chunk_list);
    chunk_sums = std::make_unique<DeviceBuffer<double>>(chunk_list.size());
    tensor_sums = std::make_unique<DeviceBuffer<double>>(list.size());
    tickets = std::make_unique<DeviceBuffer<unsigned>>(std::vector<unsigned>(list.size() + 1, 0));
  }
  [[nodiscard]] TensorTable table() const {
    return {.tensors = static_cast<int64_t>(entries->size()),
            .chunks = static_cast<int64_t>(chunks->size()),
            .entries = entries->data(),
            .chunk = chunks->data()};
  }
  [[nodiscard]] NormWorkspace workspace() const {
    chunk_sums->fill_with_nan();
    tensor_sums->fill_with_nan();
    return {.chunk_sums = chunk_sums->data(), .tensor_sums = tensor_sums->data(), .tickets = tickets->data()};
  }
};

TEMPLATE_TEST_CASE("Norms of a list of tensors equal their scalar twin", "[unit][cuda_emulator]", float, c10::Half,
                   c10::BFloat16) {
  using T = TestType;
  const std::vector<size_t> many(260, 5);  // more than a block has threads
  for (const auto& sizes : {kSizes, many, std::vector<size_t>{0}}) {
    for (const bool shifted : {false, true}) {
      const auto values = random_tensors<T>(sizes, 21);
      const DeviceTensors<T> tensors(values, shifted);
      const List<T> list(tensors);
      std::vector<double> want(sizes.size());
      double total = 0.0;
      for (size_t i = 0; i < sizes.size(); ++i) {
        double squares = 0.0;
        for (const T value : values[i]) squares += std::pow(static_cast<double>(to_float(value)), 2);
        want[i] = std::sqrt(squares);
        total += squares;
      }
      const DeviceBuffer<double> norm(1), norms(sizes.size());
      run_in_every_order(
          /*every_order=*/sizes.size() < 100,
          [&] { multi_tensor_norm(list.table(), list.workspace(), norm.data(), norms.data(), nullptr); }, norm, norms);
      CHECK(norm[0] == testing::Approx(std::sqrt(total)).epsilon(1e-6));
      for (size_t i = 0; i < sizes.size(); ++i) CHECK(norms[i] == testing::Approx(want[i]).epsilon(1e-6));
    }
  }
}

TEST_CASE("The norm sees one inf or NaN anywhere", "[unit][cuda_emulator]") {
  for (const size_t position : {0, 254, 16384, 40002}) {
    for (const float value : {kNan, kInf, -kInf}) {
      std::vector<float> values(40003, 1.0F);
      values[position] = value;
      const DeviceTensors<float> tensors(std::vector<std::vector<float>>{{2.0F}, values});
      const List<float> list(tensors);
      const DeviceBuffer<double> norm(1);
      multi_tensor_norm(list.table(), list.workspace(), norm.data(), nullptr, nullptr);
      CHECK_FALSE(std::isfinite(norm[0]));
    }
  }
}

TEMPLATE_TEST_CASE("Unscaling multiplies, and finds inf and NaN", "[unit][cuda_emulator]", float, c10::Half,
                   c10::BFloat16) {
  using T = TestType;
  // 40002 is the last number of its tensor, behind the vectors; 20003 is inside a vector.
  for (const size_t place : {40002, 20003}) {
    for (const bool shifted : {false, true}) {
      for (const float bad : {0.0F, kNan, kInf, -kInf}) {
        auto values = random_tensors<T>(kSizes, 22);
        if (bad != 0.0F) values[10][place] = from_float<T>(bad);
        const DeviceTensors<T> tensors(values, shifted);
        const List<T> list(tensors);
        const DeviceBuffer<float> inv_scale(std::vector<float>{0.3F}), found_inf(1);
        std::string first;
        emulator::for_each_order([&] {
          tensors.assign(values);
          found_inf.data()[0] = 0.0F;
          multi_tensor_unscale(list.table(), inv_scale.data(), found_inf.data(), nullptr);
          if (first.empty()) first = tensors.bytes();
          CHECK(tensors.bytes() == first);
          CHECK(found_inf[0] == (bad == 0.0F ? 0.0F : 1.0F));
        });
        const auto got = tensors.values();
        for (size_t i = 0; i < values.size(); ++i) {
          for (size_t at = 0; at < values[i].size(); ++at) {
            const float want = to_float(from_float<T>(to_float(values[i][at]) * 0.3F)), value = to_float(got[i][at]);
            if (value != want && !(std::isnan(value) && std::isnan(want))) FAIL(i << ", " << at << ": " << value);
          }
        }
        CHECK(tensors.intact());
      }
    }
  }
}

TEST_CASE("Unscaling leaves a found_inf of another list", "[unit][cuda_emulator]") {
  const DeviceTensors<float> tensors(std::vector<std::vector<float>>{{2.0F}});
  const List<float> list(tensors);
  const DeviceBuffer<float> inv_scale(std::vector<float>{0.5F}), found_inf(std::vector<float>{1.0F});
  multi_tensor_unscale(list.table(), inv_scale.data(), found_inf.data(), nullptr);
  CHECK(found_inf[0] == 1.0F);
  CHECK(tensors.values()[0][0] == 1.0F);
}

/// One tensor of the scalar twin.
struct Twin {
  std::vector<double> param, grad, exp_avg, exp_avg_sq, ema;
};

/// The formulas of multi_tensor.h, in double.
void twin_step(UpdateRule rule, const UpdateOptions& o, double lr, double multiplier, int64_t step, Twin& t) {
  const double correction1 = o.bias_correction ? 1.0 - std::pow(o.beta1, static_cast<double>(step)) : 1.0;
  const double correction2 = o.bias_correction ? 1.0 - std::pow(o.beta2, static_cast<double>(step)) : 1.0;
  std::vector<double> update(t.param.size());
  double param_squares = 0.0, update_squares = 0.0, ratios = 0.0;
  for (size_t i = 0; i < t.param.size(); ++i) {
    double g = t.grad[i] * multiplier;
    if (!o.decoupled) g += o.weight_decay * t.param[i];
    t.exp_avg[i] = o.beta1 * t.exp_avg[i] + o.beta3 * g;
    t.exp_avg_sq[i] = o.beta2 * t.exp_avg_sq[i] + (1.0 - o.beta2) * g * g;
    const double v = t.exp_avg_sq[i] / correction2;
    update[i] = t.exp_avg[i] / correction1 / (std::sqrt(v) + o.eps);
    if (o.decoupled) update[i] += o.weight_decay * t.param[i];
    param_squares += t.param[i] * t.param[i];
    update_squares += update[i] * update[i];
    ratios += g * g / std::max(v, o.eps * o.eps);
  }
  double rate = lr * o.lr_scale;
  if (rule == UpdateRule::kLamb && o.trust_ratio && param_squares != 0.0 && update_squares != 0.0) {
    rate *= std::sqrt(param_squares / update_squares);
  }
  if (rule == UpdateRule::kStableAdamw) rate /= std::max(1.0, std::sqrt(ratios / static_cast<double>(t.param.size())));
  const double share = std::max(1.0 / static_cast<double>(step), 1.0 - o.ema_decay);
  for (size_t i = 0; i < t.param.size(); ++i) {
    t.param[i] -= rate * update[i];
    t.ema[i] += share * (t.param[i] - t.ema[i]);
  }
}

std::vector<double> as_double(const std::vector<float>& values) { return {values.begin(), values.end()}; }

/// An optimizer's device memory, with copies of type C (float: none). Tensor i belongs to group i % groups; the first
/// two of three have a moving average.
template <class C>
struct Optimizer {
  using Values = std::vector<std::vector<float>>;
  UpdateRule rule;
  std::vector<UpdateOptions> options;
  Values param_values, grad_values, exp_avg_values, exp_avg_sq_values, ema_values;
  DeviceTensors<float> params, grads, exp_avg, exp_avg_sq, ema;
  DeviceTensors<C> copies;
  List<float> list;
  std::unique_ptr<DeviceBuffer<OptimEntry>> entries;
  DeviceBuffer<UpdateOptions> device_options;
  DeviceBuffer<OptimScalars> scalars;
  DeviceBuffer<double> update_sums;
  DeviceBuffer<float> rates;
  DeviceBuffer<int64_t> step{1};
  DeviceBuffer<float> grad_norm{1}, skipped{1}, lr{1}, inv_scale{1}, found_inf{1};
  DeviceBuffer<double> lr_double{1};
  bool with_lr = true;

  Optimizer(UpdateRule which, const std::vector<size_t>& sizes, const std::vector<UpdateOptions>& group_options,
            bool shifted)
      : rule(which),
        options(group_options),
        param_values(random_tensors<float>(sizes, 31)),
        grad_values(random_tensors<float>(sizes, 32)),
        exp_avg_values(random_tensors<float>(sizes, 33)),
        exp_avg_sq_values(random_tensors<float>(sizes, 34, 2.0)),
        ema_values(random_tensors<float>(sizes, 36)),
        params(param_values),
        grads(grad_values, shifted),
        exp_avg(exp_avg_values),
        exp_avg_sq(exp_avg_sq_values),
        ema(ema_values),
        copies(random_tensors<C>(sizes, 35), shifted),
        list(grads),
        device_options(options),
        scalars(options.size()),
        update_sums(2 * list.chunk_list.size()),
        rates(sizes.size()) {
    std::vector<OptimEntry> all;
    for (size_t i = 0; i < sizes.size(); ++i) {
      all.push_back({.param = params.data(i),
                     .exp_avg = exp_avg.data(i),
                     .exp_avg_sq = exp_avg_sq.data(i),
                     .ema = averaged(i) ? ema.data(i) : nullptr,
                     .grad = grads.data(i),
                     .copy = kCopyType<C> == CopyType::kNone ? nullptr : copies.data(i),
                     .copy_type = kCopyType<C>,
                     .aligned = aligned(grads.data(i), 16),
                     .group = static_cast<int32_t>(i % options.size()),
                     .first_chunk = (*list.entries)[i].first_chunk,
                     .chunks = (*list.entries)[i].chunks});
    }
    entries = std::make_unique<DeviceBuffer<OptimEntry>>(all);
    lr.data()[0] = 0.02F;
    lr_double.data()[0] = 0.02;
    inv_scale.data()[0] = 0.25F;
    found_inf.data()[0] = 0.0F;
    reset();
  }
  static bool averaged(size_t tensor) { return tensor % 3 != 2; }
  void reset() const {
    params.assign(param_values);
    grads.assign(grad_values);
    exp_avg.assign(exp_avg_values);
    exp_avg_sq.assign(exp_avg_sq_values);
    ema.assign(ema_values);
    step.data()[0] = 2;
  }
  void run(bool double_lr = false) const {
    scalars.fill_with_nan();
    update_sums.fill_with_nan();
    rates.fill_with_nan();
    const ScalarInput rate = double_lr ? ScalarInput{lr_double.data(), true} : ScalarInput{lr.data(), false};
    optimizer_step({.rule = rule,
                    .groups = static_cast<int64_t>(options.size()),
                    .grads = list.table(),
                    .norms = list.workspace(),
                    .entries = entries->data(),
                    .options = device_options.data(),
                    .scalars = scalars.data(),
                    .update_sums = update_sums.data(),
                    .rates = rates.data()},
                   {.lr = with_lr ? rate : ScalarInput{},
                    .inv_scale = {inv_scale.data(), false},
                    .found_inf = {found_inf.data(), false},
                    .step = step.data(),
                    .grad_norm = grad_norm.data(),
                    .skipped = skipped.data()},
                   nullptr);
  }
  [[nodiscard]] std::string state() const {
    return params.bytes() + exp_avg.bytes() + exp_avg_sq.bytes() + ema.bytes() + copies.bytes() +
           std::string(reinterpret_cast<const char*>(step.data()), sizeof(int64_t));
  }
  [[nodiscard]] bool intact() const {
    return params.intact() && grads.intact() && exp_avg.intact() && exp_avg_sq.intact() && ema.intact() &&
           copies.intact();
  }
};

UpdateOptions options_of(double weight_decay) {
  return {.lr = 0.05,
          .beta1 = 0.9,
          .beta2 = 0.999,
          .beta3 = 0.1,
          .eps = 1e-6,
          .weight_decay = weight_decay,
          .max_grad_norm = 1.0,
          .ema_decay = 0.9};
}

template <class C>
void check_step(UpdateRule rule, const std::vector<size_t>& sizes, const std::vector<UpdateOptions>& options,
                bool shifted, bool own_lr = false) {
  Optimizer<C> optimizer(rule, sizes, options, shifted);
  optimizer.with_lr = !own_lr;
  std::string first;
  const auto two_steps = [&] {
    optimizer.reset();
    optimizer.run();
    optimizer.run(/*double_lr=*/true);  // the second step uses the memory of the first
    if (first.empty()) first = optimizer.state();
    CHECK(optimizer.state() == first);
  };
  if (sizes.size() < 100) {
    emulator::for_each_order(two_steps);
  } else {
    two_steps();
  }
  CHECK(optimizer.intact());
  CHECK(optimizer.step[0] == 4);
  CHECK(optimizer.skipped[0] == 0.0F);
  double squares = 0.0;
  for (const auto& grad : optimizer.grad_values) {
    for (const float g : grad) squares += static_cast<double>(g) * g;
  }
  const double norm = 0.25 * std::sqrt(squares);
  CHECK(optimizer.grad_norm[0] == testing::Approx(norm).epsilon(1e-6));
  const auto params = optimizer.params.values(), exp_avg = optimizer.exp_avg.values(),
             exp_avg_sq = optimizer.exp_avg_sq.values(), ema = optimizer.ema.values();
  const auto copies = optimizer.copies.values();
  for (size_t i = 0; i < sizes.size(); ++i) {
    CAPTURE(i, sizes[i], shifted);
    const UpdateOptions& o = options[i % options.size()];
    Twin twin{as_double(optimizer.param_values[i]), as_double(optimizer.grad_values[i]),
              as_double(optimizer.exp_avg_values[i]), as_double(optimizer.exp_avg_sq_values[i]),
              as_double(optimizer.ema_values[i])};
    double multiplier = 0.25, clipped_norm = norm;
    if (o.clip_per_tensor) {
      double own_squares = 0.0;
      for (const double g : twin.grad) own_squares += g * g;
      clipped_norm = 0.25 * std::sqrt(own_squares);
    }
    if (o.max_grad_norm > 0.0) {
      multiplier *= 1.0 / std::max(1.0, (clipped_norm + o.clip_eps) / o.max_grad_norm);
    }
    for (const int64_t step : {3, 4}) twin_step(rule, o, own_lr ? o.lr : 0.02, multiplier, step, twin);
    check_close("param", params[i], twin.param);
    check_close("exp_avg", exp_avg[i], twin.exp_avg);
    check_close("exp_avg_sq", exp_avg_sq[i], twin.exp_avg_sq);
    if (optimizer.averaged(i)) {
      check_close("ema", ema[i], twin.ema);
    } else {
      CHECK(ema[i] == optimizer.ema_values[i]);
    }
    if constexpr (kCopyType<C> != CopyType::kNone) {
      for (size_t at = 0; at < sizes[i]; ++at) {
        if (to_float(copies[i][at]) != to_float(from_float<C>(params[i][at])))
          FAIL("copy[" << at << "] is not rounded");
      }
    }
  }
}

TEMPLATE_TEST_CASE("LAMB, AdamW and StableAdamW kernels equal their scalar twin", "[unit][cuda_emulator]", float,
                   c10::Half, c10::BFloat16) {
  for (const UpdateRule rule : {UpdateRule::kLamb, UpdateRule::kAdamw, UpdateRule::kStableAdamw}) {
    for (const bool shifted : {false, true}) {
      check_step<TestType>(rule, kSizes, {options_of(0.01), options_of(0.0)}, shifted);
    }
  }
}

TEST_CASE("The optimizer's kernels follow each group's options", "[unit][cuda_emulator]") {
  std::vector<UpdateOptions> options(8, options_of(0.01));
  options[1].trust_ratio = false;
  options[2].decoupled = false;
  options[3].bias_correction = false;
  options[3].max_grad_norm = 0.0;
  options[4].beta3 = 1.0;
  options[4].lr = 0.001;
  options[5].eps = 0.01;
  options[6].clip_per_tensor = true;
  options[7].lr_scale = 0.5;
  options[0].ema_decay = 0.4;  // the other side of a half
  options[0].clip_eps = 10.0;
  check_step<float>(UpdateRule::kLamb, kSizes, options, false);
  check_step<float>(UpdateRule::kLamb, kSizes, options, false, /*own_lr=*/true);
  options[4].beta3 = 0.1;
  check_step<float>(UpdateRule::kAdamw, kSizes, options, false, /*own_lr=*/true);
  check_step<float>(UpdateRule::kStableAdamw, kSizes, options, false, /*own_lr=*/true);
}

TEST_CASE("More tensors and groups than a block has threads", "[unit][cuda_emulator]") {
  std::vector<UpdateOptions> options;
  for (int i = 0; i < 260; ++i) options.push_back(options_of(0.001 * i));
  for (const UpdateRule rule : {UpdateRule::kLamb, UpdateRule::kAdamw, UpdateRule::kStableAdamw}) {
    check_step<c10::BFloat16>(rule, std::vector<size_t>(300, 9), options, true);
  }
}

TEST_CASE("LAMB and the norm add each chunk once, in fp64", "[unit][cuda_emulator]") {
  // Integers, so that the sums of squares are exact in fp64. In fp32 they are not: they have more than 24 bits. The
  // chunks have different sizes, so that a chunk left out or added twice changes the trust ratio.
  constexpr size_t kChunks = 3, kElements = kChunks * kOptimChunk + 5;
  const std::vector<float> of_chunk{1.0F, 4095.0F, 7.0F, 61.0F};
  std::vector<float> values(kElements);
  for (size_t i = 0; i < kElements; ++i) values[i] = i % 3 == 0 ? of_chunk[i / kOptimChunk] : 1.0F;
  Optimizer<float> optimizer(UpdateRule::kLamb, {kElements}, {options_of(0.01)}, false);
  optimizer.param_values = {values};
  std::vector<double> exact(kChunks + 1);
  double total = 0.0, fp32_total = 0.0;
  for (size_t i = 0; i < kElements; ++i) {
    exact[i / kOptimChunk] += static_cast<double>(values[i]) * values[i];
    fp32_total = static_cast<float>(fp32_total + static_cast<double>(values[i]) * values[i]);
  }
  for (const double sum : exact) total += sum;
  REQUIRE(fp32_total != total);
  const DeviceTensors<float> list_values(std::vector<std::vector<float>>{values});
  const List<float> list(list_values);
  const DeviceBuffer<double> norm(1), norms(1);
  Twin twin{as_double(values), as_double(optimizer.grad_values[0]), as_double(optimizer.exp_avg_values[0]),
            as_double(optimizer.exp_avg_sq_values[0]), as_double(optimizer.ema_values[0])};
  double grad_squares = 0.0;
  for (const double g : twin.grad) grad_squares += g * g;
  twin_step(UpdateRule::kLamb, optimizer.options[0], 0.02, 0.25 / std::max(1.0, 0.25 * std::sqrt(grad_squares)), 3,
            twin);
  emulator::for_each_order([&] {
    optimizer.reset();
    optimizer.run();
    double update_squares = 0.0;
    for (size_t chunk = 0; chunk <= kChunks; ++chunk) {
      CAPTURE(chunk);
      CHECK(optimizer.update_sums[2 * chunk] == exact[chunk]);
      update_squares += optimizer.update_sums[2 * chunk + 1];
    }
    CHECK(optimizer.rates[0] == testing::Approx(0.02 * std::sqrt(total / update_squares)).epsilon(2e-7));
    check_close("param", optimizer.params.values()[0], twin.param);
    multi_tensor_norm(list.table(), list.workspace(), norm.data(), norms.data(), nullptr);
    CHECK(norm[0] == std::sqrt(total));
    CHECK(norms[0] == std::sqrt(total));
  });
  // Without a gradient and with a decay of 1/2 the update is half the parameter, exactly.
  const std::vector<float> zeros(kElements);
  optimizer.grad_values = optimizer.exp_avg_values = optimizer.exp_avg_sq_values = {zeros};
  optimizer.device_options.data()[0].weight_decay = 0.5;
  optimizer.reset();
  optimizer.run();
  for (size_t chunk = 0; chunk <= kChunks; ++chunk) {
    CAPTURE(chunk);
    CHECK(optimizer.update_sums[2 * chunk + 1] == exact[chunk] / 4.0);
  }
}

TEST_CASE("A skipped step leaves every bit", "[unit][cuda_emulator]") {
  for (const UpdateRule rule : {UpdateRule::kLamb, UpdateRule::kAdamw, UpdateRule::kStableAdamw}) {
    for (const float bad : {kNan, kInf, 0.0F}) {
      Optimizer<c10::Half> optimizer(rule, kSizes, {options_of(0.01)}, false);
      if (bad != 0.0F) optimizer.grads.data(7)[16383] = bad;
      if (bad == 0.0F) optimizer.found_inf.data()[0] = 1.0F;
      const std::string before = optimizer.state();
      optimizer.run();
      CHECK(optimizer.state() == before);
      CHECK(optimizer.skipped[0] == 1.0F);
      CHECK(std::isfinite(optimizer.grad_norm[0]) == (bad == 0.0F));
      optimizer.reset();
      optimizer.found_inf.data()[0] = 0.0F;
      optimizer.run();
      CHECK(optimizer.state() != before);
      CHECK(optimizer.skipped[0] == 0.0F);
    }
  }
}

TEST_CASE("A NaN in a parameter goes through", "[unit][cuda_emulator]") {
  for (const UpdateRule rule : {UpdateRule::kLamb, UpdateRule::kAdamw, UpdateRule::kStableAdamw}) {
    Optimizer<c10::BFloat16> optimizer(rule, kSizes, {options_of(0.01)}, false);
    optimizer.params.data(10)[40002] = kNan;
    optimizer.run();
    CHECK(std::isnan(optimizer.params.data(10)[40002]));
    CHECK(std::isnan(to_float(optimizer.copies.data(10)[40002])));
    CHECK(std::isfinite(optimizer.params.data(8)[16384]));
  }
}

TEST_CASE("LAMB and StableAdamW take three launches, AdamW two, the lists one", "[unit][cuda_emulator]") {
  const auto launches_of = [](const auto& body) {
    const int64_t before = emulator::launches();
    body();
    return emulator::launches() - before;
  };
  const Optimizer<c10::Half> lamb(UpdateRule::kLamb, kSizes, {options_of(0.01), options_of(0.0)}, false);
  const Optimizer<c10::Half> adamw(UpdateRule::kAdamw, kSizes, {options_of(0.01), options_of(0.0)}, false);
  const Optimizer<c10::Half> stable(UpdateRule::kStableAdamw, kSizes, {options_of(0.01), options_of(0.0)}, false);
  CHECK(launches_of([&] { lamb.run(); }) == 3);
  CHECK(launches_of([&] { stable.run(); }) == 3);
  CHECK(launches_of([&] { adamw.run(); }) == 2);
  const DeviceBuffer<double> norm(1);
  const DeviceBuffer<float> found_inf(1);
  const TensorTable table = lamb.list.table();
  CHECK(launches_of([&] { multi_tensor_norm(table, lamb.list.workspace(), norm.data(), nullptr, nullptr); }) == 1);
  CHECK(launches_of([&] { multi_tensor_unscale(table, lamb.inv_scale.data(), found_inf.data(), nullptr); }) == 1);
  CHECK(launches_of([&] { multi_tensor_unscale({}, lamb.inv_scale.data(), found_inf.data(), nullptr); }) == 0);
}

}  // namespace
}  // namespace bert::kernels
