// Helper for tests of code that runs in an event loop.
#pragma once

#include <functional>

#include "app/net/event_loop.h"

namespace bert::testing {

/// Runs the loop until the condition holds, at most ten seconds. Returns false after that time.
inline bool run_until(EventLoop& loop, const std::function<bool()>& condition) {
  bool late = false;
  const auto timer = loop.after(10, [&] { late = true; });
  while (!late && !condition()) loop.run_once();
  loop.cancel(timer);
  return condition();
}

}  // namespace bert::testing
