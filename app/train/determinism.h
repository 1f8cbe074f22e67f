// What makes a run on CUDA repeatable to the bit. The CPU needs nothing: its operators add in a fixed order.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>

#include <cstdint>

namespace bert {

/// Makes LibTorch choose algorithms whose results do not change from run to run, or throw where it has none. A setting
/// of the whole process, for CUDA devices only. Throws ConfigError where cuBLAS cannot do its part: Note [cuBLAS's
/// workspaces].
/// What it costs: Note [Deterministic attention] in cuda_ext/cuda/attention.cc, and a sort of the masked positions in the
/// backward of their gather; cuBLAS keeps 32 MiB a stream, as LibTorch does on Hopper anyway.
void use_deterministic_algorithms(c10::Device device);

/// Sets the state of a device's generator for one micro-batch: it is a function of the run's seed and of the number of
/// the micro-batch's first sample. See Note [Random numbers of attention dropout on CUDA] in cuda_ext/cuda/attention.cc.
void seed_for_micro_batch(at::Generator generator, int64_t seed, int64_t first_sample);

}  // namespace bert
