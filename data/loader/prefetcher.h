// Items that one background thread makes before they are needed.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace bert {

/// Calls `make` on a background thread until it returns nothing, and keeps at most `depth` items waiting. The
/// destructor stops the thread after the current item.
template <class Item>
class Prefetcher {
 public:
  Prefetcher(std::function<std::optional<Item>()> make, size_t depth)
      : make_(std::move(make)), depth_(depth), thread_([this] { run(); }) {}

  ~Prefetcher() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  /// The next item, or nothing after the last one. If `make` threw, this and every later call throws the same error
  /// once the items before it are returned.
  std::optional<Item> next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !items_.empty() || finished_; });
    if (items_.empty()) {
      if (error_) std::rethrow_exception(error_);
      return std::nullopt;
    }
    std::optional<Item> item(std::move(items_.front()));
    items_.pop_front();
    lock.unlock();
    changed_.notify_all();
    return item;
  }

 private:
  void run() {
    while (true) {
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return items_.size() < depth_ || stopping_; });
        if (stopping_) return;
      }
      std::optional<Item> item;
      std::exception_ptr error;
      try {
        item = make_();
      } catch (...) {
        error = std::current_exception();
      }
      // `item` is not read after an exception: GCC 12 with -O1 then gives a trivial item the memory of the result of
      // the call.
      const bool last = error != nullptr || !item.has_value();
      {
        const std::lock_guard lock(mutex_);
        if (last) {
          error_ = error;
          finished_ = true;
        } else {
          items_.push_back(std::move(*item));
        }
      }
      changed_.notify_all();
      if (last) return;
    }
  }

  const std::function<std::optional<Item>()> make_;
  const size_t depth_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> items_;
  std::exception_ptr error_;
  bool stopping_ = false, finished_ = false;
  std::thread thread_;  // last, so that the thread starts when all other members exist
};

}  // namespace bert
