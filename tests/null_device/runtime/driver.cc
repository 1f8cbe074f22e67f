// The driver's functions. LibTorch takes some by name through the runtime, and some from libcuda.so.1
// (libraries/cuda_driver.cc), which calls these.
#include <cstring>
#include <map>

#include "tests/null_device/runtime/state.h"

using namespace null_device;

extern "C" {

int null_device_primary_context_state(int device, unsigned* flags, int* active) {
  if (flags != nullptr) *flags = 0;
  *active = device >= 0 && device < device_count() && is_touched(device) ? 1 : 0;
  return 0;
}
int null_device_device_get(int* out, int device) {
  *out = device;
  return 0;
}
int null_device_current_context(void** context) {
  *context = reinterpret_cast<void*>(static_cast<intptr_t>(current_device()) + 1);
  return 0;
}
int null_device_error_string(int /*error*/, const char** text) {
  *text = "an error of the device of host memory";
  return 0;
}
int null_device_device_attribute(int* value, int /*attribute*/, int /*device*/) {
  *value = 0;
  return 0;
}
int null_device_refuse() {
  constexpr int kNotSupported = 801;  // CUDA_ERROR_NOT_SUPPORTED
  fault("a function of the driver is called that is not made");
  return kNotSupported;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned /*version*/,
                                             unsigned long long /*flags*/, cudaDriverEntryPointQueryResult* result) {
  static const std::map<std::string, void*> kFunctions = {
      {"cuDevicePrimaryCtxGetState", reinterpret_cast<void*>(null_device_primary_context_state)},
      {"cuDeviceGet", reinterpret_cast<void*>(null_device_device_get)},
      {"cuCtxGetCurrent", reinterpret_cast<void*>(null_device_current_context)},
      {"cuGetErrorString", reinterpret_cast<void*>(null_device_error_string)},
      {"cuDeviceGetAttribute", reinterpret_cast<void*>(null_device_device_attribute)}};
  const auto found = kFunctions.find(name);
  *function = found != kFunctions.end() ? found->second : reinterpret_cast<void*>(null_device_refuse);
  if (result != nullptr) *result = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

// Memory pools and handles for other processes: no program of ours uses them.
#define BERT_REFUSED(function, ...) \
  cudaError_t function(__VA_ARGS__) { return failed(cudaErrorNotSupported); }
BERT_REFUSED(cudaDeviceGetDefaultMemPool, cudaMemPool_t*, int)
BERT_REFUSED(cudaMemPoolGetAttribute, cudaMemPool_t, cudaMemPoolAttr, void*)
BERT_REFUSED(cudaMemPoolSetAccess, cudaMemPool_t, const cudaMemAccessDesc*, size_t)
BERT_REFUSED(cudaMemPoolSetAttribute, cudaMemPool_t, cudaMemPoolAttr, void*)
BERT_REFUSED(cudaMemPoolTrimTo, cudaMemPool_t, size_t)
BERT_REFUSED(cudaIpcCloseMemHandle, void*)
BERT_REFUSED(cudaIpcGetEventHandle, cudaIpcEventHandle_t*, cudaEvent_t)
BERT_REFUSED(cudaIpcGetMemHandle, cudaIpcMemHandle_t*, void*)
BERT_REFUSED(cudaIpcOpenEventHandle, cudaEvent_t*, cudaIpcEventHandle_t)
BERT_REFUSED(cudaIpcOpenMemHandle, void**, cudaIpcMemHandle_t, unsigned)

}  // extern "C"
