// Work: queueing, kernels, products.
#include <cxxabi.h>
#include <library_types.h>

#include <cstdlib>
#include <unordered_map>

#include "tests/null_device/runtime/state.h"
#include "tests/null_device/traffic.h"

namespace null_device {
namespace {

struct Kernel {
  std::string name;  // mangled
};
std::unordered_map<const void*, Kernel*>& kernels() {
  static auto* instance = new std::unordered_map<const void*, Kernel*>;  // by the address of the host's function
  return *instance;
}
KernelHandler& kernel_handler() {
  static auto* instance = new KernelHandler;
  return *instance;
}
std::function<void(const MatrixProduct&)>& product_handler() {
  static auto* instance = new std::function<void(const MatrixProduct&)>;
  return *instance;
}

std::atomic<bool>& dry_runs() {
  static std::atomic<bool> dry{false};
  return dry;
}

struct LaunchConfiguration {
  dim3 grid, block;
  size_t shared = 0;
  cudaStream_t stream = nullptr;
};
thread_local std::vector<LaunchConfiguration> configurations;

std::string demangled(const std::string& name) {
  int status = 0;
  char* const plain = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  std::string text = plain != nullptr ? plain : name;
  std::free(plain);
  return text;
}

bool fits(dim3 grid, dim3 block) {
  constexpr unsigned kMostThreads = 1024, kMostBlocks = 65535;
  return grid.x > 0 && grid.y > 0 && grid.z > 0 && grid.y <= kMostBlocks && grid.z <= kMostBlocks && block.x > 0 &&
         block.y > 0 && block.z > 0 && block.x * block.y * block.z <= kMostThreads;
}

/// `kernel` is the address of a function of the host, or a cudaKernel_t.
cudaError_t launch(const void* kernel, dim3 grid, dim3 block, void** arguments, cudaStream_t stream) {
  std::string name;
  {
    const Lock held = lock();
    add_count("launch");
    const auto found = kernels().find(kernel);
    name = (found != kernels().end() ? found->second : static_cast<const Kernel*>(kernel))->name;
  }
  if (stream_of(stream)->device != current_device()) {
    fault(demangled(name) + " is launched on a stream of device " + std::to_string(stream_of(stream)->device) +
          ", and the current device is " + std::to_string(current_device()));
    return failed(cudaErrorInvalidResourceHandle);
  }
  if (!fits(grid, block)) {
    fault(demangled(name) + " is launched with an invalid configuration");
    return failed(cudaErrorInvalidConfiguration);
  }
  Work work = kernel_handler() ? kernel_handler()(name, arguments) : Work{};
  if (!work.run) {
    fault("a kernel of LibTorch without a twin on the host: " + demangled(name));
    work.run = [] {};
  }
  if (work.name.empty()) work.name = demangled(name);
  enqueue(stream, std::move(work));
  return cudaSuccess;
}

// Bits of cublasLtEpilogue_t.
constexpr int kDerivative = 64, kGradientOfB = 512, kGradients = 16 | 256 | kGradientOfB;  // of a bias

/// The bytes that a matrix of a product spans.
Access span_of(const MatrixProduct& product, const MatrixProduct::Matrix& matrix, int64_t rows, int64_t columns,
               bool write) {
  if (matrix.data == nullptr || rows == 0 || columns == 0) return {};
  const int64_t elements = (product.batch - 1) * matrix.batch_stride + (columns - 1) * matrix.leading + rows;
  int64_t bytes = 4;
  switch (static_cast<cudaDataType_t>(matrix.type)) {
    case CUDA_R_64F:
      bytes = 8;
      break;
    case CUDA_R_16F:
    case CUDA_R_16BF:
      bytes = 2;
      break;
    case CUDA_R_8I:
    case CUDA_R_8U:
    case CUDA_R_8F_E4M3:
    case CUDA_R_8F_E5M2:
      bytes = 1;
      break;
    default:
      break;
  }
  return {.data = matrix.data, .bytes = static_cast<size_t>(elements * bytes), .write = write};
}

}  // namespace

DryRun::DryRun() { dry_runs() = true; }
DryRun::~DryRun() { dry_runs() = false; }
bool is_dry() { return dry_runs(); }

void enqueue(CUstream_st* handle, Work work) {
  keep_signal_handler();
  Stream& stream = *stream_of(handle);
  const Place place = here();
  const std::lock_guard turn(stream.turn);
  {
    const Lock held = lock();
    if (stream.destroyed) fault(work.name + " on stream " + std::to_string(stream.id) + ", which is destroyed");
    if (work.opens_memory && stream.device != current_device())
      fault(work.name + " is launched on stream " + std::to_string(stream.id) + " of device " +
            std::to_string(stream.device) + ", and the current device is " + std::to_string(current_device()));
    for (const Access& access : work.accesses) check_live(access, work.name);
    check_device(stream, work);
    add_traffic(work);
    if (stream.graph != nullptr) return add_node(stream, std::move(work), place);
    if (is_default(&stream)) {  // it would wait for the blocking streams that are captured
      for (Graph* graph : captures()) {
        for (const Stream* captured : graph->streams) {
          if (captured->blocks() && captured->device == stream.device)
            break_capture(*graph, work.name + " on the legacy stream while a blocking stream is captured",
                          cudaErrorStreamCaptureImplicit);
        }
      }
    }
    advance(stream, work, place);
  }
  wait_before(stream);
  if (!work.run || is_dry()) return;
  if (!work.opens_memory) return work.run();
  const OpenMemory open;
  work.run();
}

void set_kernel_handler(KernelHandler handler) {
  const Lock held = lock();
  kernel_handler() = std::move(handler);
}

void set_product_handler(std::function<void(const MatrixProduct&)> handler) {
  const Lock held = lock();
  product_handler() = std::move(handler);
}

void run_product(CUstream_st* stream, const MatrixProduct& product) {
  add_count("product");
  if (!product_handler()) return fault(std::string(product.function) + ": no operators are loaded");
  Work work{.name = product.function, .accesses = {}, .opens_memory = false, .run = [product] {
              product_handler()(product);
            }};
  const auto add = [&](const MatrixProduct::Matrix& matrix, int64_t rows, int64_t columns, bool write = false) {
    work.accesses.push_back(span_of(product, matrix, rows, columns, write));
  };
  if (product.k > 0) {
    product.transpose_a ? add(product.a, product.k, product.m) : add(product.a, product.m, product.k);
    product.transpose_b ? add(product.b, product.n, product.k) : add(product.b, product.k, product.n);
  }
  if (product.beta != 0) add(product.c, product.m, product.n);
  for (const float* scale : {product.scale_a, product.scale_b}) {
    if (scale != nullptr) work.accesses.push_back({.data = scale, .bytes = sizeof(float), .write = false});
  }
  add(product.d, product.m, product.n, /*write=*/true);
  if (product.auxiliary != nullptr) {
    add({product.auxiliary, product.auxiliary_leading, product.d.batch_stride, product.d.type}, product.m, product.n,
        (product.epilogue & kDerivative) == 0);
  }
  if (product.bias != nullptr) {
    const bool of_columns = (product.epilogue & kGradientOfB) != 0;
    const int type = product.bias_type >= 0 ? product.bias_type : product.d.type;
    add({product.bias, 0, 0, type}, of_columns ? product.n : product.m, 1, (product.epilogue & kGradients) != 0);
  }
  enqueue(stream, std::move(work));
}

}  // namespace null_device

using namespace null_device;

extern "C" {

void** __cudaRegisterFatBinary(void* /*binary*/) {
  static void* handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void** /*handle*/) {}
void __cudaUnregisterFatBinary(void** /*handle*/) {}
char __cudaInitModule(void** /*handle*/) { return 0; }
void __cudaRegisterFunction(void** /*handle*/, const char* host, char* /*device*/, const char* name, int /*limit*/,
                            uint3* /*thread*/, uint3* /*block*/, dim3* /*block_size*/, dim3* /*grid_size*/,
                            int* /*warp_size*/) {
  const Lock held = lock();
  kernels()[host] = new Kernel{name};
}
void __cudaRegisterVar(void** /*handle*/, char* /*host*/, char* /*address*/, const char* /*name*/, int /*external*/,
                       size_t /*bytes*/, int /*constant*/, int /*global*/) {}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, CUstream_st* stream) {
  configurations.push_back({.grid = grid, .block = block, .shared = shared, .stream = stream});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  if (configurations.empty()) return failed(cudaErrorMissingConfiguration);
  const LaunchConfiguration last = configurations.back();
  configurations.pop_back();
  *grid = last.grid, *block = last.block, *shared = last.shared;
  *static_cast<cudaStream_t*>(stream) = last.stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
  const Lock held = lock();
  Kernel*& found = kernels()[host];
  if (found == nullptr) found = new Kernel{"a kernel that was not registered"};
  *kernel = reinterpret_cast<cudaKernel_t>(found);
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t /*shared*/,
                               cudaStream_t stream) {
  BERT_BEGIN_CALL();
  return launch(kernel, grid, block, arguments, stream);
}
cudaError_t cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** arguments, size_t /*shared*/,
                             cudaStream_t stream) {
  BERT_BEGIN_CALL();
  return launch(kernel, grid, block, arguments, stream);
}
cudaError_t cudaLaunchCooperativeKernel(const void* kernel, dim3 grid, dim3 block, void** arguments, size_t shared,
                                        cudaStream_t stream) {
  return cudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* configuration, const void* kernel, void** arguments) {
  return cudaLaunchKernel(kernel, configuration->gridDim, configuration->blockDim, arguments,
                          configuration->dynamicSmemBytes, configuration->stream);
}

}  // extern "C"
