// Devices and their properties, which are those of an H200. NULL_DEVICE_COUNT devices are in the machine (2);
// CUDA_VISIBLE_DEVICES chooses among them as CUDA reads it: numbers, UUIDs and their beginnings, slices of MIG.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "tests/null_device/runtime/state.h"

namespace null_device {
namespace {

constexpr int kVersion = 13000;  // CUDA 13.0

struct Visible {
  int number = 0;  // in the machine
  bool is_slice = false;
};

/// "GPU-00000000-0000-0000-0000-000000000001"
std::string uuid_of(int number) {
  char text[64];
  std::snprintf(text, sizeof text, "GPU-00000000-0000-0000-0000-%012d", number);
  return text;
}

/// The devices of CUDA_VISIBLE_DEVICES, up to its first entry that names none.
std::vector<Visible> visible_devices() {
  const auto installed = static_cast<int>(std::min<int64_t>(number_setting("NULL_DEVICE_COUNT", 2), kMostDevices));
  std::vector<Visible> result;
  const char* const list = std::getenv("CUDA_VISIBLE_DEVICES");
  for (int i = 0; list == nullptr && i < installed; ++i) result.push_back({.number = i, .is_slice = false});
  std::istringstream entries(list != nullptr ? list : "");
  for (std::string entry; std::getline(entries, entry, ',');) {
    if (entry.starts_with("MIG-") && installed > 0) return {{.number = 0, .is_slice = true}};  // one slice a process
    std::vector<int> found;
    for (int i = 0; i < installed; ++i) {
      if (entry == std::to_string(i) || (entry.starts_with("GPU-") && uuid_of(i).starts_with(entry)))
        found.push_back(i);
    }
    if (found.size() != 1) break;
    result.push_back({.number = found.front(), .is_slice = false});
  }
  return result;
}
const std::vector<Visible>& visible() {
  static const auto* instance = new std::vector<Visible>(visible_devices());
  return *instance;
}

/// The version of CUDA that NULL_DEVICE_DRIVER gives the driver.
int driver_version() { return static_cast<int>(number_setting("NULL_DEVICE_DRIVER", kVersion)); }

std::string bus_id(int device) {
  constexpr int kFirstBus = 0x10;
  char text[32];
  std::snprintf(text, sizeof text, "0000:%02X:00.0", kFirstBus + visible()[static_cast<size_t>(device)].number);
  return text;
}

/// Sizes of compute capability 9.0 (CUDA programming guide) and of an H200 (its data sheet).
void set_sizes(cudaDeviceProp& p) {
  p.sharedMemPerBlock = 48 << 10, p.sharedMemPerBlockOptin = 227 << 10;
  p.sharedMemPerMultiprocessor = 228 << 10, p.reservedSharedMemPerBlock = 1 << 10;
  p.regsPerBlock = p.regsPerMultiprocessor = 1 << 16;
  p.warpSize = 32, p.maxThreadsPerBlock = 1024, p.maxThreadsPerMultiProcessor = 2048, p.maxBlocksPerMultiProcessor = 32;
  p.maxThreadsDim[0] = p.maxThreadsDim[1] = 1024, p.maxThreadsDim[2] = 64;
  p.maxGridSize[0] = 0x7FFFFFFF, p.maxGridSize[1] = p.maxGridSize[2] = 65535;
  p.multiProcessorCount = 132, p.l2CacheSize = 60 << 20, p.memoryBusWidth = 6144, p.totalConstMem = 1 << 16;
  p.textureAlignment = 512, p.memPitch = 0x7FFFFFFF, p.asyncEngineCount = 3;
  p.unifiedAddressing = p.concurrentKernels = p.canMapHostMemory = p.managedMemory = p.cooperativeLaunch = 1;
  p.streamPrioritiesSupported = 1;
}

}  // namespace

int device_count() { return driver_version() < kVersion ? 0 : static_cast<int>(visible().size()); }

size_t memory_bytes(int device) {
  constexpr int64_t kDefaultMegabytes = 8192, kSlices = 7;
  const auto bytes = static_cast<size_t>(number_setting("NULL_DEVICE_MEMORY_MB", kDefaultMegabytes)) << 20;
  return visible()[static_cast<size_t>(device)].is_slice ? bytes / kSlices : bytes;
}

}  // namespace null_device

using namespace null_device;

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = device_count();
  if (driver_version() < kVersion) return failed(cudaErrorInsufficientDriver);
  return *count > 0 ? cudaSuccess : failed(cudaErrorNoDevice);
}
cudaError_t cudaGetDevice(int* device) {
  *device = current_device();
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  BERT_BEGIN_CALL();
  if (device < 0 || device >= device_count()) return failed(cudaErrorInvalidDevice);
  current_device() = device;
  touch_device(__func__);
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = driver_version();
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = kVersion;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  constexpr int kTen = 10, kDefaultCapability = 90;
  if (device < 0 || device >= device_count()) return failed(cudaErrorInvalidDevice);
  *properties = {};
  const Visible& found = visible()[static_cast<size_t>(device)];
  const std::string name =
      setting("NULL_DEVICE_NAME", "device of host memory") + (found.is_slice ? " MIG 1g.18gb" : "");
  std::snprintf(properties->name, sizeof properties->name, "%s", name.c_str());
  properties->uuid.bytes[sizeof properties->uuid.bytes - 1] = static_cast<char>(found.number);
  const auto capability = static_cast<int>(number_setting("NULL_DEVICE_CAPABILITY", kDefaultCapability));
  properties->major = capability / kTen, properties->minor = capability % kTen;
  properties->totalGlobalMem = memory_bytes(device);
  set_sizes(*properties);
  properties->pciBusID = static_cast<int>(std::strtol(bus_id(device).c_str() + std::strlen("0000:"), nullptr, 16));
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp p;
  if (const cudaError_t error = cudaGetDeviceProperties(&p, device); error != cudaSuccess) return error;
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
      *value = p.maxThreadsPerBlock;
      break;
    case cudaDevAttrMultiProcessorCount:
      *value = p.multiProcessorCount;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(p.sharedMemPerBlockOptin);
      break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = static_cast<int>(p.sharedMemPerBlock);
      break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = static_cast<int>(p.sharedMemPerMultiprocessor);
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = p.major;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = p.minor;
      break;
    case cudaDevAttrWarpSize:
      *value = p.warpSize;
      break;
    default:
      *value = 0;
  }
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int bytes, int device) {
  if (device < 0 || device >= device_count()) return failed(cudaErrorInvalidDevice);
  std::snprintf(text, static_cast<size_t>(bytes), "%s", bus_id(device).c_str());
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int /*device*/, int /*peer*/) {
  *can = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int /*peer*/, unsigned /*flags*/) { return cudaSuccess; }
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  constexpr int kGreatest = -5;
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = kGreatest;
  return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* /*kernel*/) {
  constexpr int kThreads = 1024, kRegisters = 64, kArchitecture = 90, kSharedBytes = 48 << 10;
  *attributes = {};
  attributes->maxThreadsPerBlock = kThreads, attributes->numRegs = kRegisters;
  attributes->binaryVersion = attributes->ptxVersion = kArchitecture;
  attributes->maxDynamicSharedSizeBytes = kSharedBytes;
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void* /*kernel*/, cudaFuncAttribute /*attribute*/, int /*value*/) {
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* /*kernel*/, int /*threads*/,
                                                                   size_t /*shared*/, unsigned /*flags*/) {
  *blocks = 2;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* /*kernel*/, int /*threads*/,
                                                          size_t /*shared*/) {
  *blocks = 2;
  return cudaSuccess;
}

}  // extern "C"
