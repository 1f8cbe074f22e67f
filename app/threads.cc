#include "app/threads.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <thread>

namespace bert {

void use_threads(int64_t threads) {
  constexpr int64_t kThreadsPerCore = 4;
  if (threads <= 0) return;
  const int64_t most = kThreadsPerCore * std::max<int64_t>(1, std::thread::hardware_concurrency());
  if (threads > most) {
    fmt::print(stderr, "{} threads are too many for {} processors: using {}\n", threads, most / kThreadsPerCore, most);
  }
  at::set_num_threads(static_cast<int>(std::min(threads, most)));
}

}  // namespace bert
