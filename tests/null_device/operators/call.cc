#include "tests/null_device/operators/call.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/native/Resize.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <mutex>

namespace null_device {
namespace {

// The steps by which a call that draws advances its generator. It does not depend on the call, unlike on a device.
constexpr uint64_t kDrawnNumbers = 4;

bool takes_generator(const c10::Argument& argument) {
  const c10::TypePtr& type = argument.type();
  if (type->kind() == c10::TypeKind::GeneratorType) return true;
  return type->kind() == c10::TypeKind::OptionalType &&
         type->castRaw<c10::OptionalType>()->getElementType()->kind() == c10::TypeKind::GeneratorType;
}

/// Calls the operator's kernel for a backend, without autograd.
Stack call_kernel(const c10::OperatorHandle& op, c10::DispatchKey key, Stack stack) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  op.redispatchBoxed(c10::DispatchKeySet(key), &stack);
  return stack;
}

/// Puts CPU generators of the drawn state in the place of CUDA's.
void set_generator(const c10::FunctionSchema& schema, const std::optional<at::PhiloxCudaState>& drawn, Stack& stack) {
  if (!drawn) return;
  const auto [seed, offset] = unpacked(*drawn);
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(seed * 0x9E3779B97F4A7C15ULL + offset);
  for (size_t i = 0; i < stack.size(); ++i) {
    if (takes_generator(schema.arguments()[i])) stack[i] = generator;
  }
}

at::Tensor meta_like(const at::Tensor& tensor) {
  at::Tensor meta = at::empty_strided(tensor.sizes(), tensor.strides(),
                                      tensor.options().device(at::kMeta).pinned_memory(false).requires_grad(false));
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) meta.unsafeGetTensorImpl()->set_wrapped_number(true);
  return meta;
}

/// A CPU tensor of the same form with values that are legal as indices and as probabilities.
at::Tensor harmless_like(const at::Tensor& tensor) {
  const at::TensorOptions options = tensor.options().device(at::kCPU).pinned_memory(false).requires_grad(false);
  at::Tensor result = tensor.is_non_overlapping_and_dense()
                          ? at::empty_strided(tensor.sizes(), tensor.strides(), options)
                          : at::empty(tensor.sizes(), options);
  result.fill_(tensor.is_floating_point() ? 1 : 0);
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) result.unsafeGetTensorImpl()->set_wrapped_number(true);
  return result;
}

}  // namespace

Call::Call(const c10::OperatorHandle& op, Stack arguments)
    : op_(op),
      schema_(op.schema()),
      name_(name_of(op.operator_name())),
      arguments_(std::move(arguments)),
      device_(device_of(arguments_)),
      stream_(current_stream(device_)),
      capturing_(is_capturing(stream_)) {}

bool Call::is_written(size_t argument) const {
  const c10::AliasInfo* const alias = schema_.arguments()[argument].alias_info();
  return alias != nullptr && alias->isWrite();
}

bool Call::is_in_place() const {
  const auto& returns = schema_.returns();
  const auto& arguments = schema_.arguments();
  return std::all_of(returns.begin(), returns.end(), [](const auto& r) { return r.alias_info() != nullptr; }) &&
         std::none_of(arguments.begin(), arguments.end(), [](const auto& a) { return a.is_out(); });
}

void Call::check_devices() const {
  const bool lists_of_any_device = name_.rfind("aten::_foreach", 0) == 0;
  if (lists_of_any_device) return check_lists();
  for (size_t i = 0; i < arguments_.size(); ++i) {
    for_each_tensor(arguments_[i], [&](const at::Tensor& tensor) {
      if (tensor.is_cuda() && tensor.device() != device_) {
        fault(name_ + " on " + device_.str() + " got a tensor of " + tensor.device().str() + " (argument " +
              schema_.arguments()[i].name() + ")");
      }
      TORCH_CHECK(tensor.device() == device_ || (tensor.is_cpu() && tensor.dim() == 0),
                  "Expected all tensors to be on the same device, but found at least two devices, ", device_, " and ",
                  tensor.device(), "! (when checking argument ", schema_.arguments()[i].name(), " of ", name_, ")");
    });
  }
}

void Call::check_lists() const {
  std::vector<c10::Device> devices;  // of the tensors at each place
  for (const c10::IValue& argument : arguments_) {
    if (!argument.isTensorList()) continue;
    const std::vector<at::Tensor> list = argument.toTensorVector();
    for (size_t i = 0; i < list.size(); ++i) {
      if (!list[i].defined() || (list[i].is_cpu() && list[i].dim() == 0)) continue;
      if (devices.size() <= i) devices.resize(i + 1, list[i].device());
      TORCH_CHECK(devices[i] == list[i].device(),
                  "Expected all tensors to be on the same device, but found at least two devices, ", devices[i],
                  " and ", list[i].device(), "! (when checking place ", i, " of the lists of ", name_, ")");
    }
  }
}

void Call::adapt_arguments() {
  const auto argument = [&](const char* name) -> c10::IValue* {
    const auto index = schema_.argumentIndexWithName(name);
    return index ? &arguments_[static_cast<size_t>(*index)] : nullptr;
  };
  // Indices may be on the host; a device copies them.
  if (name_.find("index") != std::string::npos) {
    if (c10::IValue* const indices = argument("indices")) {
      *indices = map_tensors(*indices, [&](const at::Tensor& t) { return t.is_cpu() ? t.to(device_) : t; });
    }
  }
  // CUDA's softmax of fp16 gives fp32.
  c10::IValue* const half_to_float = argument("half_to_float");
  c10::IValue* const self = argument("self");
  if (half_to_float != nullptr && half_to_float->isBool() && half_to_float->toBool() && self != nullptr) {
    *self = self->toTensor().to(at::kFloat);
    *half_to_float = false;
  }
  if (capturing_) {  // a launch holds copies of the host's values
    for (c10::IValue& value : arguments_) {
      value = map_tensors(value, [](const at::Tensor& t) { return t.is_cpu() ? t.clone() : t; });
    }
  }
}

void Call::draw() {
  const auto& arguments = schema_.arguments();
  if (std::none_of(arguments.begin(), arguments.end(), takes_generator)) return;
  std::optional<at::Generator> given;
  for (const c10::IValue& argument : arguments_) {
    if (argument.isGenerator() && argument.toGenerator().defined()) given = argument.toGenerator();
  }
  const at::Generator generator = given ? *given : at::globalContext().defaultGenerator(device_);
  auto* const implementation = at::check_generator<at::CUDAGeneratorImpl>(generator);
  const std::lock_guard<std::mutex> lock(implementation->mutex_);
  drawn_ = implementation->philox_cuda_state(kDrawnNumbers);
}

void Call::note_arguments() {
  for (size_t i = 0; i < arguments_.size(); ++i) {
    for_each_tensor(arguments_[i], [&](const at::Tensor& t) { add_accesses(accesses_, t, is_written(i)); });
  }
  if (drawn_) add_accesses(accesses_, *drawn_);
}

std::optional<Call::Shapes> Call::shapes_by_meta() const {
  if (!op_.hasKernelForDispatchKey(c10::DispatchKey::Meta)) return std::nullopt;
  for (const c10::Argument& result : schema_.returns()) {
    if (result.type()->kind() != c10::TypeKind::TensorType) return std::nullopt;  // a number of the data
  }
  Shapes shapes;
  for (const c10::IValue& argument : arguments_) shapes.arguments.push_back(map_tensors(argument, meta_like));
  try {
    shapes.results = call_kernel(op_, c10::DispatchKey::Meta, shapes.arguments);
  } catch (const c10::Error&) {
    return std::nullopt;  // the CPU's kernel tells whether the call is wrong
  }
  return shapes;
}

Call::Shapes Call::shapes_by_trial() const {
  Shapes shapes;
  for (const c10::IValue& argument : arguments_) {
    shapes.arguments.push_back(argument.isDevice() ? c10::IValue(c10::Device(at::kCPU))
                                                   : map_tensors(argument, harmless_like));
  }
  set_generator(schema_, std::optional<at::PhiloxCudaState>({uint64_t{0}, uint64_t{0}}), shapes.arguments);
  shapes.results = call_kernel(op_, c10::DispatchKey::CPU, shapes.arguments);
  return shapes;
}

std::optional<Call::Shapes> Call::shapes() const {
  if (is_in_place()) return Shapes{arguments_, arguments_};
  if (auto shapes = shapes_by_meta()) return shapes;
  if (capturing_ || is_dry()) return shapes_by_trial();
  return std::nullopt;
}

Stack Call::host_arguments() const {
  HostViews views;
  Stack stack;
  for (size_t i = 0; i < arguments_.size(); ++i) {
    stack.push_back(map_tensors(arguments_[i], [&](const at::Tensor& tensor) {
      // An empty out tensor may have to grow.
      if (tensor.is_cuda() && tensor.numel() == 0 && is_written(i)) {
        return at::empty(tensor.sizes(), tensor.options().device(at::kCPU));
      }
      return views(tensor);
    }));
    if (arguments_[i].isDevice()) stack.back() = c10::Device(at::kCPU);
  }
  // Softmax's backward from fp32 to fp16: the result is converted.
  const auto input_type = schema_.argumentIndexWithName("input_dtype");
  const auto grad = schema_.argumentIndexWithName("grad_output");
  if (input_type && grad) {
    stack[static_cast<size_t>(*input_type)] = stack[static_cast<size_t>(*grad)].toTensor().scalar_type();
  }
  return stack;
}

void Call::resize_out(const Stack& like) {
  for (size_t i = 0; i < arguments_.size(); ++i) {
    if (!schema_.arguments()[i].is_out() || !arguments_[i].isTensor() || !like[i].isTensor()) continue;
    const at::Tensor out = arguments_[i].toTensor(), want = like[i].toTensor();
    if (!out.defined() || out.sizes() == want.sizes()) continue;
    at::native::resize_output(out, want.sizes());
    if (want.is_non_overlapping_and_dense()) out.as_strided_(want.sizes(), want.strides());
  }
}

at::Tensor Call::new_result(const at::Tensor& like, size_t place) {
  if (!like.defined()) return like;
  const at::TensorOptions options = like.options().device(device_);
  const at::Tensor result = like.is_non_overlapping_and_dense()
                                ? at::empty_strided(like.sizes(), like.strides(), options)
                                : at::empty(like.sizes(), options);
  if (like.unsafeGetTensorImpl()->is_wrapped_number()) result.unsafeGetTensorImpl()->set_wrapped_number(true);
  add_accesses(accesses_, result, /*write=*/true);
  results_.push_back({place, cpu_view(result)});
  return result;
}

c10::IValue Call::argument_of_alias(size_t result) const {
  const c10::AliasInfo& alias = *schema_.returns()[result].alias_info();
  for (size_t i = 0; i < arguments_.size(); ++i) {
    const c10::AliasInfo* const of = schema_.arguments()[i].alias_info();
    if (of != nullptr && of->beforeSets() == alias.beforeSets()) return arguments_[i];
  }
  TORCH_CHECK(false, name_, " returns a view, which is no work for a device");
}

Stack Call::results_like(const Stack& like) {
  Stack results;
  size_t place = 0;
  for (size_t r = 0; r < schema_.returns().size(); ++r) {
    if (schema_.returns()[r].alias_info() != nullptr) {
      results.push_back(argument_of_alias(r));
      continue;
    }
    results.push_back(map_tensors(like[r], [&](const at::Tensor& tensor) { return new_result(tensor, place++); }));
  }
  return results;
}

namespace {

/// The tensors among the results that are no arguments, in the order in which results_like() counts them.
std::vector<at::Tensor> new_tensors(const c10::FunctionSchema& schema, const Stack& results) {
  std::vector<at::Tensor> all;
  for (size_t r = 0; r < schema.returns().size(); ++r) {
    if (schema.returns()[r].alias_info() != nullptr) continue;
    for_each_tensor(results[r], [&](const at::Tensor& tensor) { all.push_back(tensor); });
  }
  return all;
}

}  // namespace

void count_launch() {
  add_count("launch");
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

void Call::run_with_shapes() {
  auto error = std::make_shared<std::exception_ptr>();
  const auto run = [op = op_, arguments = host_arguments(), drawn = drawn_, results = results_] {
    Stack stack = arguments;
    set_generator(op.schema(), drawn, stack);
    const std::vector<at::Tensor> computed = new_tensors(op.schema(), call_kernel(op, c10::DispatchKey::CPU, stack));
    const at::AutoDispatchBelowADInplaceOrView guard;
    for (const Result& result : results) result.view.copy_(computed.at(result.place));
  };
  const auto guarded = [run, error, name = name_, replays = capturing_] {
    try {
      run();
    } catch (const std::exception& e) {
      if (replays) return fault(name + " in a graph: " + e.what());
      *error = std::current_exception();
    }
  };
  if (!accesses_.empty()) count_launch();
  enqueue(stream_, {.name = name_, .accesses = accesses_, .run = guarded});
  if (*error) std::rethrow_exception(*error);
}

Stack Call::run_at_once() {
  Stack arguments = host_arguments();
  Stack computed;
  std::exception_ptr error;
  const auto run = [&] {
    try {
      Stack stack = arguments;
      set_generator(schema_, drawn_, stack);
      computed = call_kernel(op_, c10::DispatchKey::CPU, stack);
    } catch (const std::exception&) {
      error = std::current_exception();
    }
  };
  if (!accesses_.empty()) count_launch();
  enqueue(stream_, {.name = name_, .accesses = std::exchange(accesses_, {}), .run = run});
  if (error) std::rethrow_exception(error);
  if (waits(name_, arguments_)) c10::cuda::getCurrentCUDAStream(device_.index()).synchronize();

  resize_out(arguments);
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;  // to, from
  for (size_t i = 0; i < arguments_.size(); ++i) {        // out tensors that had no memory before
    if (!schema_.arguments()[i].is_out() || !arguments_[i].isTensor()) continue;
    const at::Tensor out = cpu_view(arguments_[i].toTensor()), from = arguments[i].toTensor();
    if (!out.defined() || out.data_ptr() == from.data_ptr()) continue;
    add_accesses(accesses_, arguments_[i].toTensor(), /*write=*/true);
    copies.emplace_back(out, from);
  }
  const Stack results = results_like(computed);
  const std::vector<at::Tensor> from = new_tensors(schema_, computed);
  for (const Result& result : results_) copies.emplace_back(result.view, from.at(result.place));
  if (copies.empty()) return results;
  enqueue(stream_, {.name = name_ + " (results)", .accesses = accesses_, .run = [&] {
                      for (const auto& [to, source] : copies) to.copy_(source);
                    }});
  return results;
}

Stack Call::run() {
  const at::AutoDispatchBelowADInplaceOrView guard;
  adapt_arguments();
  check_devices();
  draw();
  if (capturing_ && waits(name_, arguments_)) c10::cuda::getCurrentCUDAStream(device_.index()).synchronize();
  if (const auto known = shapes()) {
    resize_out(known->arguments);
    note_arguments();
    const Stack results = results_like(known->results);
    run_with_shapes();
    if (!capturing_ && waits(name_, arguments_)) c10::cuda::getCurrentCUDAStream(device_.index()).synchronize();
    return results;
  }
  note_arguments();
  return run_at_once();
}

}  // namespace null_device
