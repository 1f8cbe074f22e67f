#include <ATen/ATen.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <numeric>

#include "tests/null_device/operators/operators.h"

namespace null_device {
namespace {

constexpr size_t kMostRows = 4096;  // of a tensor with gaps

/// A dimension of a tensor, without those of size 1 and stride 0.
struct Dimension {
  int64_t size, stride;
};

/// The dimensions from the largest stride to the smallest; those that follow each other without gaps are one.
std::vector<Dimension> dimensions_of(const at::Tensor& tensor) {
  std::vector<Dimension> all;
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.size(d) > 1 && tensor.stride(d) != 0) all.push_back({tensor.size(d), tensor.stride(d)});
  }
  std::stable_sort(all.begin(), all.end(), [](const Dimension& a, const Dimension& b) { return a.stride > b.stride; });
  std::vector<Dimension> joined;
  for (const Dimension& next : all) {
    if (!joined.empty() && joined.back().stride == next.size * next.stride) {
      joined.back() = {joined.back().size * next.size, next.stride};
    } else {
      joined.push_back(next);
    }
  }
  return joined;
}

}  // namespace

at::Tensor HostViews::operator()(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_cuda()) return tensor;
  TORCH_CHECK(tensor.layout() == at::kStrided, "a device of host memory has no tensors of layout ", tensor.layout());
  const c10::Storage& device = tensor.storage();
  c10::Storage& host = storages_[device.unsafeGetStorageImpl()];
  if (!host) {
    void* const data = device.nbytes() == 0 ? nullptr : host_view(device.data());
    host = c10::Storage(c10::Storage::use_byte_size_t(), device.nbytes(), at::DataPtr(data, at::kCPU));
  }
  at::Tensor view = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(host), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  c10::TensorImpl* const implementation = view.unsafeGetTensorImpl();
  implementation->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) implementation->set_wrapped_number(true);
  view._set_conj(tensor.is_conj());
  view._set_neg(tensor.is_neg());
  return view;
}

at::Tensor cpu_view(const at::Tensor& tensor) { return HostViews()(tensor); }

void add_accesses(std::vector<Access>& accesses, const at::Tensor& tensor, bool write) {
  if (!tensor.defined() || !tensor.is_cuda() || tensor.layout() != at::kStrided || tensor.numel() == 0) return;
  const auto element = static_cast<size_t>(tensor.element_size());
  const auto* const data = static_cast<const char*>(tensor.const_data_ptr());
  std::vector<Dimension> outer = dimensions_of(tensor);
  size_t bytes = element;  // of a piece without gaps
  if (!outer.empty() && outer.back().stride == 1) {
    bytes *= static_cast<size_t>(outer.back().size);
    outer.pop_back();
  }
  const auto times = [](size_t count, const Dimension& d) { return count * static_cast<size_t>(d.size); };
  const size_t pieces = std::accumulate(outer.begin(), outer.end(), size_t{1}, times);
  if (pieces > kMostRows) {
    for (const Dimension& d : outer) bytes += static_cast<size_t>((d.size - 1) * d.stride) * element;
    accesses.push_back({data, bytes, write});
    return;
  }
  for (size_t piece = 0; piece < pieces; ++piece) {
    int64_t offset = 0;
    auto rest = static_cast<int64_t>(piece);
    for (auto d = outer.rbegin(); d != outer.rend(); ++d) {
      offset += rest % d->size * d->stride;
      rest /= d->size;
    }
    accesses.push_back({data + offset * static_cast<int64_t>(element), bytes, write});
  }
}

std::vector<Access> accesses_of(const at::Tensor& tensor, bool write) {
  std::vector<Access> accesses;
  add_accesses(accesses, tensor, write);
  return accesses;
}

std::string name_of(const c10::OperatorName& name) {
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

void for_each_tensor(const c10::IValue& value, const std::function<void(const at::Tensor&)>& visit) {
  const auto one = [&](const at::Tensor& tensor) {
    if (tensor.defined()) visit(tensor);
  };
  if (value.isTensor()) {
    one(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) one(tensor);
  } else if (value.isOptionalTensorList()) {
    for (const auto& tensor : value.toOptionalTensorVector()) one(tensor.value_or(at::Tensor()));
  }
}

c10::IValue map_tensors(const c10::IValue& value, const std::function<at::Tensor(const at::Tensor&)>& replace) {
  const auto one = [&](const at::Tensor& tensor) { return tensor.defined() ? replace(tensor) : tensor; };
  if (value.isTensor()) return one(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(one(tensor));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const auto& tensor : value.toOptionalTensorVector()) {
      list.push_back(tensor ? std::optional<at::Tensor>(one(*tensor)) : std::nullopt);
    }
    return list;
  }
  return value;
}

c10::Device device_of(c10::ArrayRef<c10::IValue> arguments) {
  std::optional<c10::Device> found;
  for (const c10::IValue& argument : arguments) {
    for_each_tensor(argument, [&](const at::Tensor& tensor) {
      if (!found && tensor.is_cuda()) found = tensor.device();
    });
  }
  for (const c10::IValue& argument : arguments) {
    if (!found && argument.isDevice() && argument.toDevice().is_cuda() && argument.toDevice().has_index()) {
      found = argument.toDevice();
    }
  }
  return found.value_or(c10::Device(at::kCUDA, c10::cuda::current_device()));
}

CUstream_st* current_stream(c10::Device device) { return c10::cuda::getCurrentCUDAStream(device.index()).stream(); }

std::pair<uint64_t, uint64_t> unpacked(const at::PhiloxCudaState& state) {
  if (!state.captured_) return {state.seed_.val, state.offset_.val};
  return {static_cast<uint64_t>(*host_view_of(state.seed_.ptr)),
          static_cast<uint64_t>(*host_view_of(state.offset_.ptr)) + state.offset_intragraph_};
}

void add_accesses(std::vector<Access>& accesses, const at::PhiloxCudaState& state) {
  if (!state.captured_) return;
  accesses.push_back({state.seed_.ptr, sizeof(int64_t), false});
  accesses.push_back({state.offset_.ptr, sizeof(int64_t), false});
}

}  // namespace null_device
