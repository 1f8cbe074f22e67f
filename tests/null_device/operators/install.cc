#include "tests/null_device/operators/operators.h"

namespace null_device {
namespace {

/// LibTorch warns that kernels are replaced.
class Silence : public c10::WarningHandler {
 public:
  void process(const c10::Warning& /*warning*/) override {}
};

Work attention_kernel(const std::string& mangled_name, void** arguments) {
  Work work = flash_attention_kernel(mangled_name, arguments);
  return work.run ? work : efficient_attention_kernel(mangled_name, arguments);
}

/// Before any program runs. It does not start CUDA: programs without a device stay programs without a device.
[[maybe_unused]] const bool kInstalled = [] {
  Silence silence;
  const c10::WarningUtils::WarningHandlerGuard guard(&silence);
  auto* const aten = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::CUDA, "null_device", 0);
  replace_operators(*aten);
  replace_copy(*aten);
  replace_cudnn_attention(*aten);
  replace_allocation(*aten);
  watch_operators("aten", {"aten::_flash_attention_forward", "aten::_flash_attention_backward",
                           "aten::_efficient_attention_forward", "aten::_efficient_attention_backward"});
  set_kernel_handler(attention_kernel);
  set_product_handler(multiply);
  return true;
}();

}  // namespace
}  // namespace null_device
