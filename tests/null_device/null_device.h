// A CUDA device made of host memory: what its libraries, its operators and tests ask of its runtime
// (libcudart.so.13, in runtime/) besides CUDA's own functions. tests/README.md, "A device of host memory".
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

struct CUstream_st;

namespace null_device {

/// A range of memory that some work reads or writes. Ranges outside of device memory are ignored.
struct Access {
  const void* data = nullptr;
  size_t bytes = 0;
  bool write = false;
};

/// Work for a stream. `run` sees device memory through host_view(), or, with `opens_memory`, at its own addresses.
struct Work {
  std::string name;
  std::vector<Access> accesses;
  bool opens_memory = false;
  std::function<void()> run;
};

/// True if the pointer lies in the memory of a device.
bool is_device(const void* pointer);
/// True if it lies in a block that is in use, or at its end.
bool is_allocated(const void* pointer);

/// The address at which the host reads and writes the memory behind a device pointer; other pointers as they are. Host
/// code that uses a device pointer itself gets SIGSEGV, and the process ends with a sentence.
void* host_view(const void* device_pointer);
template <class T>
T* host_view_of(T* device_pointer) {
  return static_cast<T*>(host_view(device_pointer));
}

/// Queues work on a stream: it runs before the function returns, or becomes a node of the graph that the stream
/// captures. Until the host has waited for it, nothing but the order of streams and events makes its results known.
void enqueue(CUstream_st* stream, Work work);

/// Queues work in which other processes take part. It runs on a thread of `lane`, and what is ordered after it waits
/// for it: if it hangs, so do they, as on a device. It returns early when `aborted` becomes true.
void enqueue_collective(CUstream_st* stream, const void* lane, Work work,
                        std::function<void(const std::atomic<bool>& aborted)> run);
void abort_lane(const void* lane);

bool is_capturing(CUstream_st* stream);

/// "stream 3 of device 0", as faults and the log name it.
std::string in_words(CUstream_st* stream);

/// Reports a broken rule. It prints the text and the place of the caller, and ends the process with SIGABRT, unless a
/// FaultCollector lives.
void fault(const std::string& text);

/// While one lives, faults are collected instead of ending the process. There is one at a time.
class FaultCollector {
 public:
  FaultCollector();
  ~FaultCollector();
  FaultCollector(const FaultCollector&) = delete;
  FaultCollector& operator=(const FaultCollector&) = delete;
  /// The texts since the call before, with their places.
  std::vector<std::string> take();
};

/// While one lives, work is queued and checked, and not run: memory keeps its content, and what a program allocates takes
/// no room on the host. So a test sees the memory of models that this machine could not compute.
class DryRun {
 public:
  DryRun();
  ~DryRun();
  DryRun(const DryRun&) = delete;
  DryRun& operator=(const DryRun&) = delete;
};
bool is_dry();

/// Counts `name` once more, and the number of counts so far. The names: a function of CUDA; "launch" (a kernel, or an
/// operator of LibTorch), "product", "wait" (the host waits for the device), "allocation" (cudaMalloc), "host
/// allocation"; copies: "pageable to device", "pinned to device", "device to pageable", "device to pinned", "device to
/// device"; "collective", "captured" (nodes of graphs), "context" (a device used for the first time by this process).
void add_count(const std::string& name);
int64_t count(const std::string& name);
void reset_counts();

/// The caching allocator hands out or takes back a block of device memory. A new block holds NaN; work on bytes that lie
/// in no block of a known segment is a fault. `for_graphs`: the allocator keeps the memory for replays of graphs, which
/// may use blocks that were freed.
void block_allocated(const void* begin, size_t bytes, bool for_graphs = false);
void block_freed(const void* begin);

/// Runs kernels of LibTorch that are known by name: returns their work, which has no run function if the kernel is not
/// known. `arguments` are those of cudaLaunchKernel.
using KernelHandler = std::function<Work(const std::string& mangled_name, void** arguments)>;
void set_kernel_handler(KernelHandler handler);

/// D = epilogue(alpha * op(A) op(B) + beta * C), column-major as in cuBLAS. Types are cudaDataType_t's numbers,
/// `epilogue` is cublasLtEpilogue_t's.
struct MatrixProduct {
  const char* function = "";  // that was called
  bool transpose_a = false, transpose_b = false;
  int64_t m = 0, n = 0, k = 0, batch = 1;
  struct Matrix {
    const void* data = nullptr;
    int64_t leading = 0;       // elements from a column to the next
    int64_t batch_stride = 0;  // elements
    int type = 0;
  };
  Matrix a, b, c, d;
  double alpha = 1, beta = 0;
  const float *scale_a = nullptr, *scale_b = nullptr;  // factors beside alpha in device memory: of FP8
  int epilogue = 1;                                    // none
  const void* bias = nullptr;
  int bias_type = -1;  // d's
  void* auxiliary = nullptr;
  int64_t auxiliary_leading = 0;
};
/// The handler computes a product on host views; operators/products.cc sets it.
void set_product_handler(std::function<void(const MatrixProduct&)> handler);
void run_product(CUstream_st* stream, const MatrixProduct& product);

}  // namespace null_device
