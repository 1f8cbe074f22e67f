#include "app/system/console.h"

#include <poll.h>
#include <unistd.h>

#include <climits>

namespace bert {

void say(const std::string& text) {
  constexpr int kPatience_ms = 200;
  // A pipe takes up to PIPE_BUF bytes at once or not at all.
  const std::string line = ("bertrun: " + text).substr(0, PIPE_BUF - 1) + "\n";
  pollfd ready{STDERR_FILENO, POLLOUT, 0};
  if (poll(&ready, 1, kPatience_ms) <= 0) return;
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace bert
