// The query of c10/cuda/CUDAGraphsC10Utils.h that cuda_ext/multi_tensor/cuda.cc makes, for tests without CUDA.
#pragma once

namespace c10::cuda {

enum class CaptureStatus { None, Active };

inline CaptureStatus capture_status = CaptureStatus::None;  // tests set it

inline CaptureStatus currentStreamCaptureStatusMayInitCtx() { return capture_status; }

}  // namespace c10::cuda
