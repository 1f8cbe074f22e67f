#include "app/system/machine/threads.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "app/system/machine/processors.h"

namespace bert {

void use_threads(int64_t threads) {
  constexpr int64_t kThreadsPerCore = 4;
  const int64_t usable = usable_processors(), most = kThreadsPerCore * usable;
  if (threads <= 0) {
    // LibTorch ignores a container's quota.
    if (std::getenv("OMP_NUM_THREADS") == nullptr && at::get_num_threads() > usable) {
      at::set_num_threads(static_cast<int>(usable));
    }
    return;
  }
  if (threads > most) {
    fmt::print(stderr, "{} threads are too many for {} processors: using {}\n", threads, usable, most);
  }
  at::set_num_threads(static_cast<int>(std::min(threads, most)));
}

}  // namespace bert
