// Launchers of multi_tensor_norm.cu, multi_tensor_optim.cu and lr_schedule.cu: launches over tables in device memory.
// They check nothing (launcher.h). Sums are fp64, in an order that the table alone decides.
#pragma once

#include "cuda_ext/kernels/launcher.h"
#include "cuda_ext/lr_schedule.h"
#include "cuda_ext/scalar/optimizer.h"

namespace bert::kernels {
inline namespace BERT_KERNEL_BUILD {

/// Elements of a chunk, the work of one block: 256 threads go over it 16 times in vectors of four.
inline constexpr int64_t kOptimChunk = 16384;

/// Tensors and their chunks.
struct TensorTable {
  int64_t tensors = 0, chunks = 0;
  const ListEntry* entries = nullptr;  // [tensors]
  const ChunkEntry* chunk = nullptr;   // [chunks]
};

/// Memory between blocks. The tickets are 0 at first; every launch leaves them at 0.
struct NormWorkspace {
  double* chunk_sums = nullptr;   // [chunks]
  double* tensor_sums = nullptr;  // [tensors]
  unsigned* tickets = nullptr;    // [tensors + 1]
};

/// *norm = the l2 norm of all elements; norms [tensors] (or null) those of the tensors. One launch; nothing when there
/// are no tensors.
void multi_tensor_norm(const TensorTable& table, const NormWorkspace& workspace, double* norm, double* norms,
                       Stream stream);

/// Elements *= *inv_scale; *found_inf = 1 when an element was inf or NaN, else it keeps its value. One launch.
void multi_tensor_unscale(const TensorTable& table, const float* inv_scale, float* found_inf, Stream stream);

/// A scalar that the device reads.
struct ScalarInput {
  const void* data = nullptr;  // null: the default, stated at each use
  bool is_double = false;      // else fp32
};

/// Inputs and outputs of a step.
struct StepPointers {
  ScalarInput lr;         // null: the group's
  ScalarInput inv_scale;  // null: 1
  ScalarInput found_inf;  // null: 0; else the step is skipped
  int64_t* step = nullptr;
  float *grad_norm = nullptr, *skipped = nullptr;
};

/// An optimizer's tensors, options and memory between the launches.
struct OptimTable {
  UpdateRule rule = UpdateRule::kLamb;
  int64_t groups = 0;
  TensorTable grads;
  NormWorkspace norms;
  const OptimEntry* entries = nullptr;     // [tensors]; chunks as in grads
  const UpdateOptions* options = nullptr;  // [groups]
  OptimScalars* scalars = nullptr;         // [groups]
  double* update_sums = nullptr;           // [chunks, 2]
  float* rates = nullptr;                  // [tensors]
};

/// One step of the whole optimizer: three launches for LAMB and StableAdamW, two for AdamW. A gradient that is inf or NaN, or
/// found_inf, leaves every bit but grad_norm and skipped.
void optimizer_step(const OptimTable& table, const StepPointers& pointers, Stream stream);

/// *rate = schedule(*applied_steps), one thread.
void learning_rate(const LrSchedule& schedule, const int64_t* applied_steps, float* rate, Stream stream);

}  // namespace BERT_KERNEL_BUILD
}  // namespace bert::kernels
