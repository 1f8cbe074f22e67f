// Threads that do pieces of a stream's work, whose results are taken in the order of the pieces.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace bert {

/// `num_threads` threads, of which the caller's is one: it works while it waits for a result. Tasks never wait for each
/// other. One thread uses a pool.
class WorkerPool {
 public:
  explicit WorkerPool(int64_t num_threads);
  /// Drops the tasks that have not begun.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  [[nodiscard]] int64_t num_threads() const { return static_cast<int64_t>(threads_.size()) + 1; }

  /// Runs `work` on some thread. Its result, or its exception, is for wait().
  template <class Work>
  auto submit(Work work) -> std::future<decltype(work())> {
    auto task = std::make_shared<std::packaged_task<decltype(work())()>>(std::move(work));
    auto future = task->get_future();
    {
      const std::lock_guard lock(mutex_);
      tasks_.emplace_back([task] { (*task)(); });
    }
    changed_.notify_one();
    return future;
  }

  /// The result of a submitted task. Does other tasks until it is there.
  template <class Result>
  Result wait(std::future<Result>& future) {
    while (future.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
      if (!run_one()) future.wait();  // a thread has begun it
    }
    return future.get();
  }

 private:
  bool run_one();
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace bert
