#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>

#include "tests/null_device/operators/call.h"

namespace null_device {
namespace {

const std::set<std::string>& always_waiting() {
  static const std::set<std::string> names = {"aten::nonzero",
                                              "aten::nonzero.out",
                                              "aten::masked_select",
                                              "aten::masked_select.out",
                                              "aten::equal",
                                              "aten::_unique2",
                                              "aten::unique_dim",
                                              "aten::unique_consecutive",
                                              "aten::unique_dim_consecutive",
                                              "aten::bincount",
                                              "aten::_linalg_check_errors"};
  return names;
}

const std::set<std::string>& index_operators() {
  static const std::set<std::string> names = {"aten::index.Tensor", "aten::index.Tensor_out", "aten::_index_put_impl_"};
  return names;
}

/// native_dropout has no generator among its arguments, so the CPU's kernel would draw from the CPU's generator.
std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input, double p, std::optional<bool> train) {
  if (!train.value_or(true)) return {input.clone(), at::ones_like(input, input.options().dtype(at::kBool))};
  const at::Tensor mask = at::empty_like(input, input.options().dtype(at::kBool)).bernoulli_(1.0 - p);
  const double scale = p == 1.0 ? 0.0 : 1.0 / (1.0 - p);
  return {input.mul(mask).mul_(scale), mask};
}

/// True if the operator returns a view of an argument.
bool returns_view(const c10::FunctionSchema& schema) {
  return std::any_of(schema.returns().begin(), schema.returns().end(),
                     [](const auto& r) { return r.alias_info() != nullptr && !r.alias_info()->isWrite(); });
}

/// Names that get other kernels than run_on_host().
const std::set<std::string>& special_operators() {
  static const std::set<std::string> names = {
      "aten::copy_",         "aten::native_dropout",           "aten::empty.memory_format",
      "aten::empty_strided", "aten::_cudnn_attention_forward", "aten::_cudnn_attention_backward"};
  return names;
}

}  // namespace

bool waits(const std::string& name, const Stack& arguments) {
  if (always_waiting().count(name) > 0) return true;
  if (name == "aten::repeat_interleave.Tensor") return arguments.at(1).isNone();  // no output_size
  if (index_operators().count(name) == 0) return false;
  bool masks = false;  // they become numbers by nonzero()
  for (const c10::IValue& argument : arguments) {
    if (!argument.isOptionalTensorList()) continue;
    for_each_tensor(argument, [&](const at::Tensor& index) {
      masks = masks || index.scalar_type() == at::kBool || index.scalar_type() == at::kByte;
    });
  }
  return masks;
}

const std::set<std::string>& kept_operators() {
  static const std::set<std::string> names = {
      // views, allocation, and copies to the host
      "aten::as_strided", "aten::view", "aten::view.dtype", "aten::_reshape_alias", "aten::unfold",
      "aten::view_as_real", "aten::view_as_complex", "aten::set_", "aten::set_.source_Storage",
      "aten::set_.source_Storage_storage_offset", "aten::set_.source_Tensor", "aten::resize_", "aten::record_stream",
      "aten::_local_scalar_dense", "aten::is_set_to", "aten::is_pinned", "aten::_pin_memory",
      "aten::_nested_view_from_buffer", "aten::_copy_from", "aten::_copy_from_and_resize", "aten::_efficientzerotensor",
      // products
      "aten::mm", "aten::mm.out", "aten::addmm", "aten::addmm.out", "aten::addmm_", "aten::bmm", "aten::bmm.out",
      "aten::baddbmm", "aten::baddbmm.out", "aten::baddbmm_", "aten::mm.dtype", "aten::mm.dtype_out",
      "aten::addmm.dtype", "aten::addmm.dtype_out", "aten::bmm.dtype", "aten::bmm.dtype_out", "aten::baddbmm.dtype",
      "aten::baddbmm.dtype_out", "aten::_addmm_activation", "aten::_addmm_activation.out", "aten::_int_mm",
      "aten::_int_mm.out", "aten::_cslt_sparse_mm", "aten::_scaled_mm", "aten::_scaled_mm.out",
      // attention
      "aten::_flash_attention_forward", "aten::_flash_attention_backward", "aten::_efficient_attention_forward",
      "aten::_efficient_attention_backward", "aten::_fused_sdp_choice", "aten::_scaled_dot_product_flash_attention",
      "aten::_scaled_dot_product_flash_attention_backward", "aten::_scaled_dot_product_efficient_attention",
      "aten::_scaled_dot_product_efficient_attention_backward", "aten::_scaled_dot_product_cudnn_attention",
      "aten::_scaled_dot_product_cudnn_attention_backward"};
  return names;
}

void run_on_host(const c10::OperatorHandle& op, Stack* stack) {
  const size_t count = op.schema().arguments().size();
  Stack arguments = torch::jit::pop(*stack, count);
  const c10::cuda::CUDAGuard guard(device_of(arguments));
  for (c10::IValue& result : Call(op, std::move(arguments)).run()) stack->push_back(std::move(result));
}

void replace_operators(torch::Library& aten) {
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNamesForDispatchKey(c10::DispatchKey::CUDA)) {
    const auto op = dispatcher.findSchema(name);
    if (!op || name.name.rfind("aten::", 0) != 0) continue;
    const std::string full = name_of(name);
    if (kept_operators().count(full) > 0 || special_operators().count(full) > 0 || returns_view(op->schema())) continue;
    aten.impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
  }
  aten.impl("native_dropout", TORCH_FN(native_dropout));
}

}  // namespace null_device
