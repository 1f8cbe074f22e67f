// Threads that are started when they are needed.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace bert {

/// Runs tasks, each on a thread of its own: a task never waits for another. A thread whose task has ended takes a later
/// one.
class GrowingPool {
 public:
  GrowingPool() = default;
  GrowingPool(const GrowingPool&) = delete;
  GrowingPool& operator=(const GrowingPool&) = delete;
  /// Waits for the tasks.
  ~GrowingPool() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  /// Tasks must not throw. One thread calls this. Throws std::system_error if the system gives no further thread; the
  /// task is then not run.
  void run(std::function<void()> task) {
    {
      const std::lock_guard lock(mutex_);
      if (idle_ > tasks_.size()) {
        tasks_.push_back(std::move(task));
        changed_.notify_one();
        return;
      }
    }
    threads_.emplace_back([this, first = std::move(task)] { work(first); });
  }

 private:
  void work(const std::function<void()>& first) {
    first();
    std::unique_lock lock(mutex_);
    for (;;) {
      ++idle_;
      changed_.wait(lock, [this] { return ended_ || !tasks_.empty(); });
      --idle_;
      if (tasks_.empty()) return;
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  size_t idle_ = 0;  // threads that wait for a task; at most tasks_.size() of them are about to take one
  bool ended_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace bert
