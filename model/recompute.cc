#include "model/recompute.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/Generator.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <mutex>
#include <utility>

namespace bert {
namespace {

using torch::autograd::variable_list;

/// The autocast settings of a device type at the time of construction.
struct AutocastSettings {
  explicit AutocastSettings(at::DeviceType type)
      : device_type(type),
        enabled(at::autocast::is_autocast_enabled(type)),
        dtype(at::autocast::get_autocast_dtype(type)),
        cache_enabled(at::autocast::is_autocast_cache_enabled()) {}

  void set() const {
    at::autocast::set_autocast_enabled(device_type, enabled);
    at::autocast::set_autocast_dtype(device_type, dtype);
    at::autocast::set_autocast_cache_enabled(cache_enabled);
  }

  at::DeviceType device_type;
  bool enabled;
  at::ScalarType dtype;
  bool cache_enabled;
};

/// Sets these settings for a scope, without the cache of cast weights: a cast made without gradients must not serve one
/// that needs them, and a layer casts each of its weights once anyway.
class AutocastScope {
 public:
  explicit AutocastScope(AutocastSettings settings) : previous_(settings.device_type) {
    settings.cache_enabled = false;
    settings.set();
  }
  ~AutocastScope() { previous_.set(); }
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  AutocastSettings previous_;
};

/// The state of the device's generator. Undefined on the CPU, where no operator of ours draws from a generator.
at::Tensor generator_state(c10::Device device) {
  if (!device.is_cuda()) return {};
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

void set_generator_state(c10::Device device, const at::Tensor& state) {
  if (!state.defined()) return;
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state);
}

/// Sets a generator's state for a scope.
class GeneratorScope {
 public:
  GeneratorScope(c10::Device device, const at::Tensor& state) : device_(device), previous_(generator_state(device)) {
    set_generator_state(device, state);
  }
  ~GeneratorScope() { set_generator_state(device_, previous_); }
  GeneratorScope(const GeneratorScope&) = delete;
  GeneratorScope& operator=(const GeneratorScope&) = delete;

 private:
  c10::Device device_;
  at::Tensor previous_;
};

/// Its next edges are those of x and of the parameters. So gradients continue through the graph as if the function's
/// own nodes stood here, and the parameters' own accumulation and hooks run.
class Recomputation : public torch::autograd::Node {
 public:
  Recomputation(const at::Tensor& x, std::vector<at::Tensor> parameters,
                std::function<at::Tensor(const at::Tensor&)> function)
      : torch::autograd::Node(torch::autograd::collect_next_edges(x, parameters)),
        x_(x, /*is_output=*/false),
        parameters_(std::move(parameters)),
        function_(std::move(function)),
        autocast_(x.device().type()),
        generator_state_(generator_state(x.device())) {}

  variable_list apply(variable_list&& gradients) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    TORCH_CHECK(function_, "recompute_in_backward: a second backward through one graph; run forward again");
    TORCH_CHECK(!at::GradMode::is_enabled(), "recompute_in_backward: gradients of gradients are not kept");
    variable_list result(1 + parameters_.size());
    if (!gradients.front().defined()) return result;

    const at::Tensor x = x_.unpack().detach();
    x.requires_grad_(task_should_compute_output(0));
    variable_list inputs;
    std::vector<size_t> places;  // of the inputs in `result`
    const auto want = [&](const at::Tensor& input, size_t place) {
      if (!task_should_compute_output(place)) return;
      inputs.push_back(input);
      places.push_back(place);
    };
    want(x, 0);
    for (size_t i = 0; i < parameters_.size(); ++i) want(parameters_[i], i + 1);
    at::Tensor y;
    {
      const at::AutoGradMode with_gradients(true);
      const AutocastScope autocast(autocast_);
      const GeneratorScope generator(x.device(), generator_state_);
      y = function_(x);
    }
    const variable_list found = torch::autograd::grad({y}, inputs, {gradients.front()}, /*retain_graph=*/false,
                                                      /*create_graph=*/false, /*allow_unused=*/true);
    for (size_t i = 0; i < places.size(); ++i) result[places[i]] = found[i];
    return result;
  }

  void release_variables() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    x_.reset_data();
    parameters_.clear();
    function_ = nullptr;
  }

  [[nodiscard]] std::string name() const override { return "Recomputation"; }

 private:
  torch::autograd::SavedVariable x_;
  std::vector<at::Tensor> parameters_;
  std::function<at::Tensor(const at::Tensor&)> function_;
  AutocastSettings autocast_;
  at::Tensor generator_state_;
};

}  // namespace

at::Tensor recompute_in_backward(const at::Tensor& x, const std::vector<at::Tensor>& parameters,
                                 const std::function<at::Tensor(const at::Tensor&)>& function) {
  if (!torch::autograd::compute_requires_grad(x, parameters)) return function(x);
  const std::shared_ptr<torch::autograd::Node> node(new Recomputation(x, parameters, function),
                                                    torch::autograd::deleteNode);
  at::Tensor y;
  {
    const at::NoGradGuard no_grad;
    const AutocastScope autocast{AutocastSettings(x.device().type())};
    y = function(x);
  }
  torch::autograd::create_gradient_edge(y, node);
  return y;
}

}  // namespace bert
