// Waiting for work that may never come back, as a call of a store whose holder is stopped.
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

/// How much later than a timeout of its own a wait is given up: that one comes first, with what it knows.
inline constexpr std::chrono::milliseconds kAfterOwnTimeout{1000};

/// The result of `work`, or what it throws. It runs in a thread of its own, which is left alone after `timeout` (then
/// there is no result) or when `look`, which is called now and then meanwhile, throws: it must own what it uses.
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
