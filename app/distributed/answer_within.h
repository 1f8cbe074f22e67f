// A wait with a deadline for work that may never end, such as a call to a store whose holder is stopped.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

namespace bert {

/// The additional time after the work's own timeout. The work's own error comes first, as it knows more.
inline constexpr std::chrono::milliseconds kAfterOwnTimeout{1000};

/// Returns the result of `work`, or throws its exception. `work` runs in a thread of its own. After `timeout` there is
/// no result, and the thread is abandoned, as it is if `look`, which is called every 20 ms, throws. So `work` must own
/// everything that it uses.
template <class Result>
std::optional<Result> answer_within(
    std::chrono::milliseconds timeout, std::function<Result()> work, const std::function<void()>& look = [] {}) {
  constexpr std::chrono::milliseconds kLook(20);
  auto promise = std::make_shared<std::promise<Result>>();
  auto result = promise->get_future();
  std::thread([promise, work = std::move(work)] {
    try {
      promise->set_value(work());
    } catch (...) {
      promise->set_exception(std::current_exception());
    }
  }).detach();
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (result.wait_for(kLook) != std::future_status::ready) {
    look();
    if (std::chrono::steady_clock::now() > deadline) return std::nullopt;
  }
  return result.get();
}

}  // namespace bert
