// libcuda.so.1: the functions of the driver that LibTorch takes from the library itself. The runtime has them under the
// same names, for callers of cudaGetDriverEntryPointByVersion.
#include <cuda.h>
#include <cuda_runtime_api.h>

namespace {

template <class Function>
Function* of_runtime(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result{};
  cudaGetDriverEntryPointByVersion(name, &function, CUDA_VERSION, cudaEnableDefault, &result);
  return reinterpret_cast<Function*>(function);
}

}  // namespace

extern "C" {

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  return of_runtime<decltype(cuDeviceGet)>(__func__)(device, ordinal);
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  return of_runtime<decltype(cuDeviceGetAttribute)>(__func__)(value, attribute, device);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  return of_runtime<decltype(cuDevicePrimaryCtxGetState)>(__func__)(device, flags, active);
}

CUresult cuCtxGetCurrent(CUcontext* context) { return of_runtime<decltype(cuCtxGetCurrent)>(__func__)(context); }

CUresult cuGetErrorString(CUresult error, const char** text) {
  return of_runtime<decltype(cuGetErrorString)>(__func__)(error, text);
}

}  // extern "C"
