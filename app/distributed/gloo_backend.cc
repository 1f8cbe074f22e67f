#include "app/distributed/gloo_backend.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <latch>
#include <memory>
#include <vector>

namespace bert {
namespace {

class GlooOnDevice : public c10d::ProcessGroupGloo {
 public:
  using ProcessGroupGloo::ProcessGroupGloo;

  void set_device_of_threads(c10::Device device) {
    const auto all_have_one = std::make_shared<std::latch>(options_->threads);
    std::vector<c10::intrusive_ptr<SetDevice>> works;
    for (int i = 0; i < options_->threads; ++i) {
      works.push_back(c10::make_intrusive<SetDevice>(contexts_.front(), options_->timeout, device, all_have_one));
      enqueue(works.back());
    }
    for (const auto& work : works) work->wait();
  }

 private:
  class SetDevice : public AsyncWork {
   public:
    SetDevice(std::shared_ptr<gloo::Context> context, std::chrono::milliseconds timeout, c10::Device device,
              std::shared_ptr<std::latch> all_have_one)
        : AsyncWork(std::move(context), {}, c10d::OpType::UNKNOWN, 0, timeout),
          device_(device),
          all_have_one_(std::move(all_have_one)) {}
    void run() override {
      all_have_one_->arrive_and_wait();  // each thread takes one of these works
      c10::impl::VirtualGuardImpl(device_.type()).setDevice(device_);
    }
    const std::vector<at::Tensor> getInputTensors() override { return {}; }
    const std::vector<at::Tensor> getOutputTensors() override { return {}; }

   private:
    c10::Device device_;
    std::shared_ptr<std::latch> all_have_one_;
  };
};

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_gloo_backend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                                    const c10::intrusive_ptr<c10d::ProcessGroupGloo::Options>& options,
                                                    c10::Device device) {
  auto backend = c10::make_intrusive<GlooOnDevice>(store, rank, size, options);
  if (device.has_index() && !device.is_cpu()) backend->set_device_of_threads(device);
  return backend;
}

}  // namespace bert
