// Errors: the last one of each thread, the failure of the device, and their names.
#include <cstdlib>

#include "tests/null_device/runtime/state.h"

namespace null_device {
namespace {

thread_local cudaError_t last_error = cudaSuccess;

/// The failure that NULL_DEVICE_FAIL asks for: after so many launches of this process the device reports this error.
struct Failure {
  Failure() {
    const std::string text = setting("NULL_DEVICE_FAIL", "");
    if (text.empty()) return;
    launches = std::atoll(text.c_str());
    error = static_cast<cudaError_t>(std::atoi(text.c_str() + text.find(':') + 1));
  }
  int64_t launches = -1;
  cudaError_t error = cudaSuccess;
  int64_t launched = 0;
  bool has_failed = false;
};
Failure& failure() {
  static auto* instance = new Failure;
  return *instance;
}

}  // namespace

cudaError_t failed(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

cudaError_t begin_call(const char* function) {
  const Lock held = lock();
  add_count(function);
  return failure().has_failed ? failed(failure().error) : cudaSuccess;
}

void count_towards_failure() {
  if (failure().launches >= 0 && ++failure().launched >= failure().launches) failure().has_failed = true;
}

}  // namespace null_device

using namespace null_device;

extern "C" {

// cudaGetLastError() clears the error of the thread, but not that of a device that has failed.
cudaError_t cudaGetLastError() {
  const Lock held = lock();
  const cudaError_t error = std::exchange(last_error, cudaSuccess);
  return failure().has_failed ? failure().error : error;
}
cudaError_t cudaPeekAtLastError() {
  const Lock held = lock();
  return failure().has_failed ? failure().error : last_error;
}

// The texts are those of the CUDA runtime's documentation.
const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInvalidConfiguration:
      return "invalid configuration argument";
    case cudaErrorInsufficientDriver:
      return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorDevicesUnavailable:
      return "CUDA-capable device(s) is/are busy or unavailable";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    case cudaErrorECCUncorrectable:
      return "uncorrectable ECC error encountered";
    case cudaErrorInvalidResourceHandle:
      return "invalid resource handle";
    case cudaErrorNotReady:
      return "device not ready";
    case cudaErrorIllegalAddress:
      return "an illegal memory access was encountered";
    case cudaErrorAssert:
      return "device-side assert triggered";
    case cudaErrorLaunchFailure:
      return "unspecified launch failure";
    case cudaErrorNotSupported:
      return "operation not supported";
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated:
      return "operation failed due to a previous error during capture";
    case cudaErrorStreamCaptureMerge:
      return "operation would result in a merge of separate capture sequences";
    case cudaErrorStreamCaptureUnmatched:
      return "capture was not ended in the same stream as it began";
    case cudaErrorStreamCaptureUnjoined:
      return "capturing stream has unjoined work";
    case cudaErrorStreamCaptureIsolation:
      return "dependency created on uncaptured work in another stream";
    case cudaErrorStreamCaptureImplicit:
      return "operation would make the legacy stream depend on a capturing blocking stream";
    case cudaErrorCapturedEvent:
      return "operation not permitted on an event last recorded in a capturing stream";
    case cudaErrorStreamCaptureWrongThread:
      return "attempt to terminate a thread-local capture sequence from another thread";
    default:
      return "unknown error";
  }
}
const char* cudaGetErrorName(cudaError_t error) { return cudaGetErrorString(error); }

}  // extern "C"
