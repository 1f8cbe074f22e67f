// Ranks as threads of a test. Each has its own Gloo process group on 127.0.0.1.
#pragma once

#include <cstdlib>
#include <exception>
#include <functional>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <vector>

namespace bert::testing {

inline c10::intrusive_ptr<c10d::ProcessGroup> gloo_group(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                                         int size) {
  auto options = c10d::ProcessGroupGloo::Options::create();
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  auto backend = c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options);
  auto group = c10::make_intrusive<c10d::ProcessGroup>(store, rank, size);
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
  group->setBackend(at::kCPU, c10d::ProcessGroup::BackendType::GLOO, backend);
  // A rank that ended at once would cut those that still connect. ProcessGroup::barrier() is not for threads: it has a
  // static tensor.
  backend->barrier()->wait();
  return group;
}

/// Runs `run` on `size` ranks and rethrows the exception of the first failing rank. `run` must not use assertions:
/// Catch2 is not thread-safe.
inline void on_ranks(int size, const std::function<void(int, const c10::intrusive_ptr<c10d::ProcessGroup>&)>& run) {
  setenv("TORCH_FR_BUFFER_SIZE", "0", 1);  // LibTorch's record of collectives expects one rank in a process
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::exception_ptr> errors(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        run(rank, gloo_group(store, rank, size));
      } catch (...) {
        errors[static_cast<size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace bert::testing
