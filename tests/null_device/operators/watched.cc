#include <c10/core/DispatchKeySet.h>
#include <c10/cuda/CUDAGuard.h>

#include <mutex>

#include "tests/null_device/operators/operators.h"

namespace null_device {
namespace {

/// The kernels of the watched operators, by their names.
struct Originals {
  std::mutex mutex;
  std::unordered_map<std::string, c10::SafeKernelFunction> kernels;
};
Originals& originals() {
  static auto* const instance = new Originals;
  return *instance;
}

const c10::SafeKernelFunction& original_of(const std::string& name) {
  const std::lock_guard<std::mutex> lock(originals().mutex);
  return originals().kernels.at(name);  // it stays where it is
}

void note(c10::Device device, std::string what, std::vector<Access> accesses) {
  if (accesses.empty()) return;
  const c10::cuda::CUDAGuard guard(device);  // the operator's kernel may have to set the device itself
  Work work;
  work.name = std::move(what);
  work.accesses = std::move(accesses);
  work.run = [] {};
  enqueue(current_stream(device), std::move(work));
}

/// The kernel's own work follows what it reads and writes, and new results follow that.
void run_watched(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const c10::ArrayRef<c10::IValue> arguments = torch::jit::last(*stack, schema.arguments().size());
  const c10::Device device = device_of(arguments);
  const std::string name = name_of(op.operator_name());
  std::vector<Access> accesses;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::AliasInfo* const alias = schema.arguments()[i].alias_info();
    const bool written = alias != nullptr && alias->isWrite();
    for_each_tensor(arguments[i], [&](const at::Tensor& tensor) {
      if (tensor.is_cuda() && tensor.device() != device) {
        fault(name + " on " + device.str() + " got a tensor of " + tensor.device().str());
      }
      add_accesses(accesses, tensor, written);
    });
  }
  note(device, name + " (arguments)", std::move(accesses));
  original_of(name).callBoxed(op, keys, stack);
  std::vector<Access> written;
  const c10::ArrayRef<c10::IValue> results = torch::jit::last(*stack, schema.returns().size());
  for (size_t i = 0; i < results.size(); ++i) {
    if (schema.returns()[i].alias_info() != nullptr) continue;
    for_each_tensor(results[i], [&](const at::Tensor& tensor) { add_accesses(written, tensor, /*write=*/true); });
  }
  note(device, name + " (results)", std::move(written));
}

}  // namespace

void watch_operators(const std::string& name_space, const std::set<std::string>& names) {
  auto* const library = new torch::Library(torch::Library::IMPL, name_space, c10::DispatchKey::CUDA, "null_device", 0);
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  for (const std::string& full : names) {
    const size_t dot = full.find('.');
    const auto op = dispatcher.findSchema({full.substr(0, dot), dot == std::string::npos ? "" : full.substr(dot + 1)});
    if (!op) continue;
    {
      const std::lock_guard<std::mutex> lock(originals().mutex);
      const auto kernel = op->getComputedKernelForDispatchKey(c10::DispatchKey::CUDA);
      if (!originals().kernels.emplace(full, kernel).second) continue;
    }
    library->impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&run_watched>());
  }
}

void watch_operators(const std::string& name_space) {
  std::set<std::string> names;
  for (const c10::OperatorName& name :
       c10::Dispatcher::singleton().getAllOpNamesForDispatchKey(c10::DispatchKey::CUDA)) {
    if (name.name.rfind(name_space + "::", 0) == 0) names.insert(name_of(name));
  }
  watch_operators(name_space, names);
}

}  // namespace null_device
