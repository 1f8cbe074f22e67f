// A stand-in for NCCL's backend on a machine without GPUs. Its works do not block the host, and it hangs and fails where
// NCCL does.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>
#include <vector>

#include "app/distributed/collective_monitor.h"
#include "app/distributed/monitored_backend.h"
#include "app/distributed/process_group.h"

namespace bert::testing {

struct FakeNccl {
  bool forms = true;         // false: the first call that needs the communicator never returns
  bool shuts_down = true;    // false: shutdown() never returns
  bool aborts = true;        // false: abort() and the destructor never return
  std::exception_ptr error;  // what each work fails with, half a second after it is issued
  bool kills_after_error =
      false;  // ends the process with SIGABRT three seconds after the error, like LibTorch's watchdog
  std::shared_ptr<std::atomic<int>> shutdowns = std::make_shared<std::atomic<int>>(0);
};

[[noreturn]] inline void hang() {
  for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}

/// Like c10d's WorkNCCL: wait() returns at once, and a failed work counts as completed.
class FakeNcclWork : public c10d::Work {
 public:
  explicit FakeNcclWork(std::exception_ptr error) : Work(0, c10d::OpType::ALLREDUCE), error_(std::move(error)) {}
  bool wait(std::chrono::milliseconds) override { return true; }
  bool isCompleted() override { return error_ == nullptr || exception() != nullptr; }
  std::exception_ptr exception() const override {
    const bool yet = std::chrono::steady_clock::now() - issued_ > std::chrono::milliseconds(500);
    return yet ? error_ : nullptr;
  }

 private:
  std::exception_ptr error_;
  std::chrono::steady_clock::time_point issued_ = std::chrono::steady_clock::now();
};

class FakeNcclBackend : public c10d::Backend {
 public:
  FakeNcclBackend(int rank, int size, FakeNccl how) : Backend(rank, size), how_(std::move(how)) {}
  ~FakeNcclBackend() override {
    if (!how_.aborts) hang();
  }
  const std::string getBackendName() const override { return "fake"; }
  void eagerConnectSingleDevice(at::Device) override {
    if (!how_.forms) hang();
  }
  void shutdown() override {
    ++*how_.shutdowns;
    if (!how_.shuts_down) hang();
  }
  void abort() override {
    if (!how_.aborts) hang();
  }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>&, const c10d::AllreduceOptions&) override {
    if (!how_.forms) hang();
    if (how_.kills_after_error) {
      std::thread([] {
        std::this_thread::sleep_for(std::chrono::milliseconds(3500));
        std::abort();
      }).detach();
    }
    return c10::make_intrusive<FakeNcclWork>(how_.error);
  }

 private:
  FakeNccl how_;
};

/// A group of such backends, monitored as NCCL's are. `timeout` is that of a collective.
inline ProcessGroupPtr fake_nccl_group(const c10::intrusive_ptr<c10d::Store>& store, const Member& member,
                                       std::chrono::milliseconds timeout, const FakeNccl& how) {
  using Type = c10d::ProcessGroup::BackendType;
  const auto monitor = std::make_shared<CollectiveMonitor>(store, member.rank, member.size, timeout);
  auto group = c10::make_intrusive<c10d::ProcessGroup>(store, member.rank, member.size);
  group->setDefaultBackend(Type::CUSTOM);
  group->setBackend(at::kCPU, Type::CUSTOM,
                    make_monitored_backend(c10::make_intrusive<FakeNcclBackend>(member.rank, member.size, how), monitor,
                                           {.works_block = false}));
  return group;
}

}  // namespace bert::testing
