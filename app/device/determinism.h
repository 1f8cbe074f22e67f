// Repeatable runs on CUDA, to the bit. The CPU needs no setting: its operators add in a fixed order.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>

#include <cstdint>

namespace bert {

/// Makes LibTorch choose algorithms whose results do not change from run to run; operators without such an algorithm
/// throw. The setting is for the whole process and does nothing for a CPU device. Throws ConfigError if cuBLAS's
/// workspaces have no fixed size: Note [cuBLAS's workspaces].
/// Costs: Note [Deterministic attention] in cuda_ext/cuda/attention.cc; a sort of the masked positions in the backward
/// of their gather; 32 MiB of workspace for each stream, which LibTorch uses on Hopper in any case.
void use_deterministic_algorithms(c10::Device device);

/// Sets the state of a device's generator for one micro-batch, as a function of the run's seed and the number of the
/// micro-batch's first sequence. See Note [Random numbers of attention dropout on CUDA] in cuda_ext/cuda/attention.cc.
void seed_for_micro_batch(at::Generator generator, int64_t seed, int64_t first_sequence);

}  // namespace bert
