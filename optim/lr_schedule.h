// Learning-rate schedules by name. The formulas stand at LrSchedule in cuda_ext/lr_schedule.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "cuda_ext/lr_schedule.h"
#include "optim/config.h"

namespace bert {

/// config.type       decay           warm-up ends at            k of the first step
/// poly              kPoly           warmup_proportion          1      NVIDIA's PolyWarmUpScheduler (PyTorch, LAMB)
/// poly_rebased      kPolyRebased    warmup_proportion          1      ours: poly without the jump
/// linear            kLinear         warmup_proportion          1      NVIDIA's LinearWarmUpScheduler
/// cosine            kCosine         warmup_proportion          1      Hugging Face's curve; see below
/// constant          kConstant       warmup_proportion          1      NVIDIA's ConstantWarmUpScheduler
/// tensorflow        kPoly           a whole step, rounded down 0      NVIDIA's TensorFlow recipe with LAMB
/// wsd               decay_type      warmup_proportion          1      Hugging Face's get_wsd_schedule
/// The shape 1-sqrt of wsd is that of Haegele et al. 2024 (arXiv:2405.18392), which torchtitan calls sqrt. Its shape
/// sqrt, sqrt(1 - p), is poly_rebased's curve, which Hugging Face's function lacks.
/// Missing are two kinds of NVIDIA's schedules. Those of BertAdam for PyTorch (optimization.py) count k from 0 and do
/// not round the warm-up (nearest: linear, a step ahead of theirs); their cosine is one of the
/// share of all steps, (1 + cos(pi x)) / 2, which drops where warm-up ends. CosineWarmUpScheduler rises to the end with
/// cos(pi + x).
/// A schedule that counts from 0 has the rate 0 in the first step, and not 0 in the last, because theirs reads the
/// counter before it moves. All others give exactly 0 at step max_steps, and all give 0 after it (constant: lr);
/// min_lr_ratio lr takes the place of 0, in wsd at the begin of the warm-up too. With it cosine is transformers'
/// cosine_with_min_lr, poly_rebased its polynomial with lr_end. A skipped step does not advance k. lr is the peak;
/// max_steps counts applied steps. Throws c10::Error if a value is out of its range or max_steps < 1. Source: NVIDIA
/// DeepLearningExamples, LanguageModeling/BERT.
[[nodiscard]] LrSchedule make_schedule(const ScheduleConfig& config, double lr, int64_t max_steps);

/// `schedule`, a wsd or constant, whose warm-up ends at step `end`.
[[nodiscard]] LrSchedule with_warmup(LrSchedule schedule, int64_t end);

/// `schedule`, a wsd, with its decay from step `begin` to step `end`. The warm-up keeps its steps before `begin`.
[[nodiscard]] LrSchedule with_decay(LrSchedule schedule, int64_t begin, int64_t end);

/// The rate after `applied_steps` (int64 scalar, BertOptimizer::applied_steps()), as an fp32 scalar on its device. Does
/// not synchronise, on CPU or CUDA. ops::learning_rate_out() writes it into a given tensor.
[[nodiscard]] at::Tensor learning_rate(const LrSchedule& schedule, const at::Tensor& applied_steps);

}  // namespace bert
