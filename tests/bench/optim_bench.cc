// The optimizer's loops beside ATen's operators, over the 110 million parameters of BERT-base, fp32:
//   OMP_NUM_THREADS=2 build/tests/bert_bench --benchmark_filter=optim --benchmark_repetitions=5
//   --benchmark_report_aggregates_only
// `copy` is the fraction of a memory copy's bandwidth that these bytes per parameter reach: lamb 44 and adamw 32 with
// the norm, 8 more with a moving average; norm 4, unscale 8; ATen's steps 28, without norm and clipping. */optimizer is
// the step of make_optimizer(), as the trainer calls it; adamw/class is torch::optim::AdamW. A copy reads the lines
// that it writes first, so steps in place can exceed 1. adamw/bound streams the same arrays in the same order with next
// to no arithmetic. Its time over that of adamw/optimizer is the share of the memory's limit
// (--benchmark_filter='optim/adamw/(bound|optimizer)/').
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <benchmark/benchmark.h>
#include <torch/optim/adamw.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cuda_ext/multi_tensor.h"
#include "optim/optimizer.h"
#include "tests/bench/bench.h"

namespace bert {
namespace {

using at::Tensor;

struct Parameters {
  std::vector<Tensor> params, grads, exp_avg, exp_avg_sq, steps;
  int64_t numel = 0;

  Parameters() {
    constexpr int64_t kHidden = 768, kIntermediate = 3072, kLayers = 12, kVocabulary = 30522, kPositions = 512;
    for (const int64_t rows : {kVocabulary, kPositions, int64_t{2}}) add(rows * kHidden);
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      for (int i = 0; i < 4; ++i) add(kHidden * kHidden), add(kHidden);
      for (int i = 0; i < 2; ++i) add(kHidden * kIntermediate), add(i == 0 ? kIntermediate : kHidden);
      for (int i = 0; i < 4; ++i) add(kHidden);
    }
    for (int i = 0; i < 2; ++i) add(kHidden * kHidden), add(kHidden);  // pooler and transform
    for (int i = 0; i < 4; ++i) add(kHidden);
    add(kVocabulary), add(2 * kHidden), add(2);
  }
  void add(int64_t size) {
    numel += size;
    params.push_back(at::randn({size}) * 0.02);
    grads.push_back(at::randn({size}) * 1e-4);
    exp_avg.push_back(at::zeros({size}));
    exp_avg_sq.push_back(at::zeros({size}));
    steps.push_back(at::ones({}));
  }
};

constexpr double kBeta1 = 0.9, kBeta2 = 0.999, kEps = 1e-6, kDecay = 0.01, kLr = 1e-4, kCorrection = 0.5;

std::function<void()> bert_step(UpdateRule rule, const Parameters& p) {
  const auto step = std::make_shared<ops::OptimizerStep>(rule);
  const std::vector<ops::OptimizerTensors> groups{{.params = p.params,
                                                   .copies = std::vector<Tensor>(p.params.size()),
                                                   .grads = p.grads,
                                                   .exp_avg = p.exp_avg,
                                                   .exp_avg_sq = p.exp_avg_sq,
                                                   .ema = std::vector<Tensor>(p.params.size())}};
  const ops::StepTensors scalars{.lr = at::scalar_tensor(kLr),
                                 .inv_scale = {},
                                 .found_inf = {},
                                 .step = at::zeros({}, at::kLong),
                                 .grad_norm = at::zeros({}),
                                 .skipped = at::zeros({})};
  const UpdateOptions options{.beta1 = kBeta1,
                              .beta2 = kBeta2,
                              .beta3 = 1.0 - kBeta1,
                              .eps = kEps,
                              .weight_decay = kDecay,
                              .max_grad_norm = 1.0,
                              .clip_eps = rule == UpdateRule::kLamb ? 0.0 : 1e-6,
                              .trust_ratio = rule == UpdateRule::kLamb};
  return [=] { step->run(groups, {options}, scalars); };
}

/// The optimizer itself, over the same memory.
std::function<void()> optimizer_step(const OptimizerConfig& config, const Parameters& p) {
  std::vector<NamedParameter> named;
  for (size_t i = 0; i < p.params.size(); ++i) {
    named.push_back({std::to_string(i) + ".weight", p.params[i].detach().requires_grad_()});
    named.back().tensor.mutable_grad() = p.grads[i];
  }
  const std::shared_ptr<BertOptimizer> optimizer = make_optimizer(config, named);
  return [optimizer, lr = at::scalar_tensor(kLr)] { optimizer->apply({.lr = lr, .inv_scale = {}, .found_inf = {}}); };
}

/// The step in plain ATen, in place where possible.
void aten_step(UpdateRule rule, const Parameters& p) {
  for (size_t i = 0; i < p.params.size(); ++i) {
    const Tensor &param = p.params[i], &grad = p.grads[i], &m = p.exp_avg[i], &v = p.exp_avg_sq[i];
    m.mul_(kBeta1).add_(grad, 1.0 - kBeta1);
    v.mul_(kBeta2).addcmul_(grad, grad, 1.0 - kBeta2);
    const Tensor denominator = (v.sqrt() / std::sqrt(kCorrection)).add_(kEps);
    if (rule == UpdateRule::kLamb) {
      const Tensor update = (m / denominator).div_(kCorrection).add_(param, kDecay);
      param.sub_(update.mul_(param.norm() / update.norm() * kLr));
    } else {
      param.mul_(1.0 - kLr * kDecay).addcdiv_(m, denominator, -kLr / kCorrection);
    }
  }
}

/// Calls body(tensor, begin, end) for every chunk of the tensors. Threads take chunks one after another, as the step's
/// do.
template <class Body>
void for_each_chunk(const std::vector<Tensor>& tensors, const Body& body) {
  constexpr int64_t kElements = 32768;
  std::vector<std::pair<size_t, int64_t>> chunks;
  for (size_t i = 0; i < tensors.size(); ++i) {
    for (int64_t begin = 0; begin < tensors[i].numel(); begin += kElements) chunks.emplace_back(i, begin);
  }
  std::atomic<size_t> next{0};
  at::parallel_for(0, at::get_num_threads(), 1, [&](int64_t, int64_t) {
    for (size_t c = next++; c < chunks.size(); c = next++) {
      const auto [i, begin] = chunks[c];
      body(i, begin, std::min(begin + kElements, tensors[i].numel()));
    }
  });
}

/// The memory traffic of AdamW's step with its norm, and next to no arithmetic: the gradients are read, then read again
/// with parameters and moments, which are read and written in place.
void stream(const Parameters& p) {
  typedef float Floats __attribute__((vector_size(16), aligned(4), may_alias));
  for_each_chunk(p.grads, [&](size_t i, int64_t begin, int64_t end) {
    const auto* const grad = p.grads[i].const_data_ptr<float>();
    Floats sums[4] = {};
    for (int64_t at = begin; at + 16 <= end; at += 16) {
      for (int64_t lane = 0; lane < 4; ++lane) sums[lane] += reinterpret_cast<const Floats*>(grad + at)[lane];
    }
    benchmark::DoNotOptimize(sums);
  });
  for_each_chunk(p.grads, [&](size_t i, int64_t begin, int64_t end) {
    const float* __restrict g = p.grads[i].const_data_ptr<float>();
    float* __restrict param = p.params[i].mutable_data_ptr<float>();
    float* __restrict m = p.exp_avg[i].mutable_data_ptr<float>();
    float* __restrict v = p.exp_avg_sq[i].mutable_data_ptr<float>();
    for (int64_t at = begin; at < end; ++at) {
      m[at] = 0.5F * (m[at] + g[at]);
      v[at] = 0.5F * (v[at] + g[at]);
      param[at] -= 1e-9F * g[at];
    }
  });
}

void add(const std::string& name, double bytes, const std::function<std::function<void()>(const Parameters&)>& make) {
  benchmark::RegisterBenchmark(
      ("optim/" + name).c_str(),
      [=](benchmark::State& state) {
        const at::NoGradGuard no_grad;
        static const Parameters parameters;
        const std::function<void()> body = make(parameters);
        body();
        for (auto _ : state) body();
        const double total = static_cast<double>(state.iterations()) * static_cast<double>(parameters.numel) * bytes;
        state.counters["copy"] = benchmark::Counter(total / copy_bandwidth(), benchmark::Counter::kIsRate);
      })
      ->Unit(benchmark::kMillisecond)
      ->UseRealTime();
}

}  // namespace

void register_optimizer_benchmarks() {
  for (const auto& [name, rule, bytes] :
       {std::tuple{"lamb", UpdateRule::kLamb, 44.0}, {"adamw", UpdateRule::kAdamw, 32.0}}) {
    add(name + std::string("/bert"), bytes, [rule = rule](const Parameters& p) { return bert_step(rule, p); });
    add(name + std::string("/aten"), bytes,
        [rule = rule](const Parameters& p) { return [&p, rule] { aten_step(rule, p); }; });
  }
  for (const auto& [type, bytes] : {std::pair{"lamb", 44.0}, {"adamw", 32.0}}) {
    for (const double ema_decay : {0.0, 0.999}) {
      add(type + std::string(ema_decay > 0.0 ? "/optimizer_ema" : "/optimizer"), ema_decay > 0.0 ? bytes + 8.0 : bytes,
          [type = type, ema_decay](const Parameters& p) {
            return optimizer_step({.type = type, .lr = kLr, .ema_decay = ema_decay}, p);
          });
    }
  }
  add("adamw/bound", 32.0, [](const Parameters& p) { return [&p] { stream(p); }; });
  add("adamw/class", 28.0, [](const Parameters& p) {
    std::vector<Tensor> params;
    for (size_t i = 0; i < p.params.size(); ++i) {
      params.push_back(p.params[i].detach().requires_grad_());
      params.back().mutable_grad() = p.grads[i];
    }
    return [optimizer = std::make_shared<torch::optim::AdamW>(params, torch::optim::AdamWOptions(kLr).eps(kEps))] {
      optimizer->step();
    };
  });
  add("adamw/aten_fused", 28.0, [](const Parameters& p) {
    return [&p] {
      at::_fused_adamw_(p.params, p.grads, p.exp_avg, p.exp_avg_sq, {}, p.steps, kLr, kBeta1, kBeta2, kDecay, kEps,
                        /*amsgrad=*/false, /*maximize=*/false);
    };
  });
  add("norm/bert", 4.0, [](const Parameters& p) {
    return [&p, multi = std::make_shared<ops::MultiTensor>()] { benchmark::DoNotOptimize(multi->norm(p.grads)); };
  });
  add("norm/aten", 4.0, [](const Parameters& p) {
    return [&p] { benchmark::DoNotOptimize(at::stack(at::_foreach_norm(p.grads)).norm()); };
  });
  const Tensor one = at::ones({});
  add("unscale/bert", 8.0, [one](const Parameters& p) {
    return [&p, multi = std::make_shared<ops::MultiTensor>(), one, found = at::zeros({})] {
      multi->unscale_(p.grads, one, found);
    };
  });
  add("unscale/aten", 8.0, [one](const Parameters& p) {
    return [&p, one, found = at::zeros({})]() mutable {
      at::_amp_foreach_non_finite_check_and_unscale_(p.grads, found, one);
    };
  });
}

}  // namespace bert
