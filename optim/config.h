// Options of the optimizers, the schedule and the loss scaler.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cuda_ext/names.h"

namespace bert {

/// The precision of a run: bf16 and fp16 are autocast; the *-weights keep the weights in it, with fp32 masters; fp8 is
/// bf16 with the encoder's products in FP8, in training.
enum class Precision : uint8_t { kFp32, kTf32, kBf16, kFp16, kBf16Weights, kFp16Weights, kFp8 };
inline std::span<const char* const> names_of(Precision /*type*/) {
  static constexpr std::array<const char*, 7> kNames = {"fp32",         "tf32",         "bf16", "fp16",
                                                        "bf16-weights", "fp16-weights", "fp8"};
  return kNames;
}

/// The dtype in which ranks send gradients; kNone: theirs.
enum class GradientCompression : uint8_t { kNone, kFp16, kBf16 };
inline std::span<const char* const> names_of(GradientCompression /*type*/) {
  static constexpr std::array<const char*, 3> kNames = {"none", "fp16", "bf16"};
  return kNames;
}

/// The library over which ranks send; kOfDevice: NCCL on GPUs, Gloo on CPUs.
enum class CollectiveBackend : uint8_t { kOfDevice, kGloo, kNccl };
inline std::span<const char* const> names_of(CollectiveBackend /*type*/) {
  static constexpr std::array<const char*, 3> kNames = {"auto", "gloo", "nccl"};
  return kNames;
}

/// The optimizers of optim/lamb.h and optim/adam.h.
enum class OptimizerType : uint8_t { kLamb, kAdamW, kAdam, kBertAdam, kStableAdamW };
inline std::span<const char* const> names_of(OptimizerType /*type*/) {
  static constexpr std::array<const char*, 5> kNames = {"lamb", "adamw", "adam", "bert_adam", "stable_adamw"};
  return kNames;
}

/// The gradient of a step: the mean of its micro-batches' means, or the mean over their masked tokens.
enum class GradientAverage : uint8_t { kMicroBatches, kMaskedTokens };
inline std::span<const char* const> names_of(GradientAverage /*type*/) {
  static constexpr std::array<const char*, 2> kNames = {"micro_batches", "masked_tokens"};
  return kNames;
}

/// The schedules of optim/lr_schedule.h.
enum class ScheduleType : uint8_t { kPoly, kPolyRebased, kLinear, kCosine, kConstant, kTensorflow, kWsd };
inline std::span<const char* const> names_of(ScheduleType /*type*/) {
  static constexpr std::array<const char*, 7> kNames = {"poly",     "poly_rebased", "linear", "cosine",
                                                        "constant", "tensorflow",   "wsd"};
  return kNames;
}

/// The shapes of the decay of ScheduleType::kWsd.
enum class WsdDecay : uint8_t { kLinear, kCosine, kSqrt, kOneMinusSqrt };
inline std::span<const char* const> names_of(WsdDecay /*type*/) {
  static constexpr std::array<const char*, 4> kNames = {"linear", "cosine", "sqrt", "1-sqrt"};
  return kNames;
}

/// The defaults are the reference's values for pre-training with LAMB.
struct OptimizerConfig {
  OptimizerType type = OptimizerType::kLamb;
  double lr = 6e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-6;
  double weight_decay = 0.01;
  double max_grad_norm = 1.0;
  bool bias_correction = true;
  bool use_nvlamb = false;
  double layer_lr_decay = 1.0;
  std::vector<std::string> no_decay = {"bias", "gamma", "beta", "LayerNorm"};
  double ema_decay = 0.0;
  GradientAverage average = GradientAverage::kMicroBatches;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit(
        "type", self.type,
        "lamb (NVLAMB), adamw (Google's with bias_correction false), adam (decay added to the gradient), bert_adam "
        "(NVIDIA's BertAdam: no bias correction, max_grad_norm for each tensor by itself) or stable_adamw (adamw with "
        "smaller updates of tensors whose gradients jump; max_grad_norm=0 is meant)");
    visit("lr", self.lr, "peak learning rate", 0.0, 10.0);
    visit("beta1", self.beta1, "decay of the first moment", 0.0, 0.999999);
    visit("beta2", self.beta2, "decay of the second moment", 0.0, 0.99999999);
    visit("eps", self.eps, "added to the root of the second moment", 1e-20, 1.0);
    visit("weight_decay", self.weight_decay, "decay, but for the parameters of no_decay", 0.0, 10.0);
    visit("max_grad_norm", self.max_grad_norm, "global gradient norm above which gradients are scaled down; 0 = never",
          0.0, 1e9);
    visit("bias_correction", self.bias_correction, "not bert_adam: divide the moments by 1 - beta^step");
    visit("use_nvlamb", self.use_nvlamb, "lamb only: trust ratio on every tensor, also without weight decay");
    visit("layer_lr_decay", self.layer_lr_decay,
          "each layer's rate is that of the layer above times this, embeddings last; 1 = one rate for all", 0.001, 1.0);
    visit("no_decay", self.no_decay, "parameters with one of these in their name do not decay");
    visit("ema_decay", self.ema_decay,
          "moving average of the weights, which is evaluated; this much of it stays at a step; 0 = none", 0.0,
          0.99999999);
    visit("average", self.average,
          "gradient of a step: micro_batches (mean of means) or masked_tokens (exactly the large batch)");
  }

  /// Calls report(field, value, wanted, other field, other value) for each pair of fields that contradict each other.
  template <class Report>
  static void check_relations(const OptimizerConfig& self, Report&& report) {
    static const OptimizerConfig defaults;
    const auto only = [&](bool used, const char* name, auto OptimizerConfig::*field, const char* want) {
      if (!used && self.*field != defaults.*field) report(name, self.*field, want, "type", self.type);
    };
    only(self.type == OptimizerType::kLamb, "use_nvlamb", &OptimizerConfig::use_nvlamb,
         "the default (only lamb uses it) with");
    only(self.type != OptimizerType::kBertAdam, "bias_correction", &OptimizerConfig::bias_correction,
         "the default (bert_adam never corrects) with");
  }
};

struct ScheduleConfig {
  ScheduleType type = ScheduleType::kPoly;
  double warmup_proportion = 0.2843;
  double degree = 0.5;
  WsdDecay decay_type = WsdDecay::kLinear;
  double decay_proportion = 0.1;
  double min_lr_ratio = 0.0;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit("type", self.type,
          "after a linear warm-up: poly (NVIDIA's for PyTorch, with its jump), poly_rebased (without), linear, cosine, "
          "constant, NVIDIA's for TensorFlow, or wsd (stable at lr, then a decay)");
    visit("warmup_proportion", self.warmup_proportion,
          "share of max_steps, or of max_hours, spent warming up; below 1, but for constant", 0.0, 1.0);
    visit("degree", self.degree, "poly, poly_rebased and tensorflow only: exponent of the decay", 0.0, 10.0);
    visit("decay_type", self.decay_type,
          "wsd only: shape of the decay at its share p: 1 - p (linear), (1 + cos(pi p)) / 2, sqrt(1 - p) (sqrt) or "
          "1 - sqrt(p)");
    visit("decay_proportion", self.decay_proportion,
          "wsd only: share of max_steps, the last ones, in which the rate decays", 0.0, 1.0);
    visit("min_lr_ratio", self.min_lr_ratio,
          "not constant: the decay ends at this share of lr, where the warm-up of wsd begins", 0.0, 1.0);
  }

  /// Calls report(field, value, wanted, other field, other value) for each pair of fields that contradict each other.
  template <class Report>
  static void check_relations(const ScheduleConfig& self, Report&& report) {
    const bool has_degree = self.type == ScheduleType::kPoly || self.type == ScheduleType::kPolyRebased ||
                            self.type == ScheduleType::kTensorflow;
    if (!has_degree && self.degree != ScheduleConfig().degree) {
      report("degree", self.degree, "the default (only poly, poly_rebased and tensorflow use it) with", "type",
             self.type);
    }
    if (self.type == ScheduleType::kWsd) {
      if (self.warmup_proportion + self.decay_proportion > 1.0 + 1e-9) {
        report("decay_proportion", self.decay_proportion, "at most 1 minus warmup_proportion with", "warmup_proportion",
               self.warmup_proportion);
      }
    } else {
      static const ScheduleConfig defaults;
      const auto only_wsd = [&](const char* name, auto ScheduleConfig::*field) {
        if (self.*field != defaults.*field)
          report(name, self.*field, "the default (only wsd uses it) with", "type", self.type);
      };
      only_wsd("decay_type", &ScheduleConfig::decay_type);
      only_wsd("decay_proportion", &ScheduleConfig::decay_proportion);
    }
    if (self.type == ScheduleType::kConstant && self.min_lr_ratio != 0)
      report("min_lr_ratio", self.min_lr_ratio, "0 (there is no decay) with", "type", self.type);
    if (self.type != ScheduleType::kConstant && self.warmup_proportion >= 1.0)
      report("warmup_proportion", self.warmup_proportion, "less than 1 (a schedule goes on after its warm-up) with",
             "type", self.type);
  }
};

/// Numbers of the loss scaler. The last four are PyTorch's and no keys of a configuration.
struct AmpConfig {
  bool dynamic = true;
  double init_scale = 65536.0;
  int64_t max_consecutive_skips = 100;
  double growth_factor = 2.0;
  double backoff_factor = 0.5;
  int64_t growth_interval = 2000;
  double min_scale = 1.0;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit("dynamic", self.dynamic, "the loss scale follows overflows; false: it stays at init_scale");
    visit("init_scale", self.init_scale,
          "first loss scale (fp16) of a step's loss, of which each micro-batch is a share", 1.0, 4294967296.0);
    visit("max_consecutive_skips", self.max_consecutive_skips,
          "a run that skips this many steps in a row stops, in any precision; 0 = never", 0, 1000000000);
  }
  /// The fields that no configuration sets.
  template <class Self, class Visitor>
  static void visit_constants(Self& self, Visitor&& visit) {
    visit("growth_factor", self.growth_factor,
          "the scale grows by this after growth_interval clean steps; above 1 where dynamic", 1.0, 1024.0);
    visit("backoff_factor", self.backoff_factor, "the scale shrinks by this after an overflow; below 1 where dynamic",
          0.0009765625, 1.0);
    visit("growth_interval", self.growth_interval, "clean steps before the scale grows", 1, 1000000000);
    visit("min_scale", self.min_scale, "a run whose loss scale falls below this stops; 0 = never", 0.0, 4294967296.0);
  }

  /// Calls report(field, value, wanted, other field, other value) for each pair of fields that contradict each other.
  template <class Report>
  static void check_relations(const AmpConfig& self, Report&& report) {
    if (self.dynamic && self.growth_factor <= 1.0)
      report("growth_factor", self.growth_factor, "above 1 with", "dynamic", self.dynamic);
    if (self.dynamic && self.backoff_factor >= 1.0)
      report("backoff_factor", self.backoff_factor, "below 1 with", "dynamic", self.dynamic);
    if (self.min_scale > self.init_scale) report("min_scale", self.min_scale, "at most", "init_scale", self.init_scale);
  }
};

/// Throws c10::Error that lists every problem: values out of range (NaN is always out of range), and the
/// reports of check_relations().
void validate(const OptimizerConfig& config);
void validate(const ScheduleConfig& config);
void validate(const AmpConfig& config);

}  // namespace bert
