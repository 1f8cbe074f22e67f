#include <ATen/ATen.h>
#include <ATen/TensorIterator.h>
#include <ATen/native/Copy.h>
#include <ATen/ops/copy_native.h>
#include <c10/cuda/CUDAGuard.h>

#include "tests/null_device/operators/operators.h"

namespace null_device {
namespace {

/// True if LibTorch copies the bytes by cudaMemcpyAsync, and not by a kernel.
bool copies_bytes(const at::Tensor& to, const at::Tensor& from) {
  if (to.scalar_type() != from.scalar_type() || to.is_conj() != from.is_conj() || to.is_neg() != from.is_neg()) {
    return false;
  }
  at::TensorIteratorConfig config;
  config.add_output(to).add_const_input(from).resize_outputs(false).check_all_same_dtype(false);
  return config.check_all_same_device(false).build().is_contiguous();
}

void copy_by_kernel(const at::Tensor& to, const at::Tensor& from) {
  const c10::cuda::CUDAGuard guard(to.device());
  Work work;
  work.name = "aten::copy_";
  add_accesses(work.accesses, from, /*write=*/false);
  add_accesses(work.accesses, to, /*write=*/true);
  HostViews views;
  work.run = [target = views(to), source = views(from)]() mutable {
    const at::AutoDispatchBelowADInplaceOrView below;
    at::native::copy_(target, source, /*non_blocking=*/false);
  };
  count_launch();
  enqueue(current_stream(to.device()), std::move(work));
}

/// copy_ on one device with a conversion or another order of elements is a kernel, and between two devices a kernel and
/// a copy of bytes. All other copies are LibTorch's own.
at::Tensor& copy(at::Tensor& self, const at::Tensor& from, bool non_blocking) {
  const bool on_devices = self.is_cuda() && from.is_cuda() && self.numel() > 0 && !self.is_same(from);
  if (!on_devices || copies_bytes(self, from)) return at::native::copy_(self, from, non_blocking);
  if (self.device() == from.device()) {
    copy_by_kernel(self, from);
    return self;
  }
  const at::AutoDispatchBelowADInplaceOrView guard;
  const at::Tensor converted = from.expand(self.sizes()).to(self.scalar_type()).contiguous();
  at::Tensor arrived = at::empty(self.sizes(), self.options());
  at::native::copy_(arrived, converted, non_blocking);
  copy_by_kernel(self, arrived);
  return self;
}

at::native::copy_fn& copy_kernel_of_cuda() {
  static at::native::copy_fn kernel = nullptr;
  return kernel;
}

/// The kernel below the operator, which LibTorch's products call by themselves.
void copy_iterated(at::TensorIterator& iterator, bool non_blocking) {
  const at::Tensor &to = iterator.tensor(0), &from = iterator.tensor(1);
  if (to.device() == from.device() && !copies_bytes(to, from)) return copy_by_kernel(to, from);
  copy_kernel_of_cuda()(iterator, non_blocking);
}

}  // namespace

void replace_copy(torch::Library& aten) {
  aten.impl("copy_", TORCH_FN(copy));
  // A stub is its first and only member, which holds the kernels.
  void* const kernel = reinterpret_cast<at::native::DispatchStubImpl&>(at::native::copy_stub).cuda_dispatch_ptr;
  copy_kernel_of_cuda() = reinterpret_cast<at::native::copy_fn>(kernel);
  at::native::copy_stub.set_cuda_dispatch_ptr(copy_iterated);
}

}  // namespace null_device
