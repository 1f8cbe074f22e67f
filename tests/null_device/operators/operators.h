// LibTorch's operators for a device made of host memory. The real libtorch_cuda.so has registered its kernels for CUDA,
// and their device code cannot run. This library puts other kernels over them; device guards, streams, the allocator,
// generators, autograd and autocast stay LibTorch's own. install.cc does all this when the library is loaded.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/cuda/PhiloxCudaState.h>
#include <torch/library.h>

#include <functional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/null_device/null_device.h"

namespace null_device {

using torch::jit::Stack;

/// Counts the launch of a kernel. Throws as LibTorch does after each launch if the device has failed.
void count_launch();

/// CPU tensors over the memory of CUDA tensors, with their sizes, strides and offsets. Tensors that share memory share
/// it here, so that LibTorch finds overlaps. They do not keep the memory alive. CPU tensors come back as they are.
class HostViews {
 public:
  at::Tensor operator()(const at::Tensor& tensor);

 private:
  std::unordered_map<const void*, c10::Storage> storages_;
};

/// One such tensor.
at::Tensor cpu_view(const at::Tensor& tensor);

/// The memory of a CUDA tensor: its rows, if there are gaps between them and they are not too many. Nothing for others.
void add_accesses(std::vector<Access>& accesses, const at::Tensor& tensor, bool write);
std::vector<Access> accesses_of(const at::Tensor& tensor, bool write);

/// "aten::add.Tensor".
std::string name_of(const c10::OperatorName& name);

/// Calls `visit` for every defined tensor in a value: a tensor, or a list of tensors.
void for_each_tensor(const c10::IValue& value, const std::function<void(const at::Tensor&)>& visit);
/// The value with every defined tensor replaced.
c10::IValue map_tensors(const c10::IValue& value, const std::function<at::Tensor(const at::Tensor&)>& replace);

/// The device that runs a call: that of its first CUDA tensor, else of a device argument, else the current one.
c10::Device device_of(c10::ArrayRef<c10::IValue> arguments);
CUstream_st* current_stream(c10::Device device);

/// Seed and offset of a CUDA generator inside of work. While a graph is captured they lie in device memory.
std::pair<uint64_t, uint64_t> unpacked(const at::PhiloxCudaState& state);
/// The memory that unpacked() reads.
void add_accesses(std::vector<Access>& accesses, const at::PhiloxCudaState& state);

/// The kernel of all operators of ATen that compute: the CPU's.
void run_on_host(const c10::OperatorHandle& op, Stack* stack);

/// Operators whose kernels for CUDA stay LibTorch's own: their code runs on the host, or ends in a library.
const std::set<std::string>& kept_operators();

// Each puts kernels into the library for (aten, CUDA).
void replace_operators(torch::Library& aten);
void replace_copy(torch::Library& aten);
void replace_cudnn_attention(torch::Library& aten);
void replace_allocation(torch::Library& aten);

/// Notes what the operators of a namespace, or these operators, read and write on CUDA, as far as they are registered.
/// They keep their kernels. What is registered on top later is not seen.
void watch_operators(const std::string& name_space);
void watch_operators(const std::string& name_space, const std::set<std::string>& names);

/// Tells the runtime of the blocks of LibTorch's allocator, and calls what at_start() got. It starts CUDA.
void follow_allocator();
/// Calls `start` before the first tensor on CUDA, when all operators are registered.
void at_start(std::function<void()> start);

/// The work of LibTorch's attention kernels, without run function for other names.
Work flash_attention_kernel(const std::string& mangled_name, void** arguments);
Work efficient_attention_kernel(const std::string& mangled_name, void** arguments);

/// The handler of products.
void multiply(const MatrixProduct& product);

}  // namespace null_device
