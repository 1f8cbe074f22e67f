#include "app/cli/standard_input.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "data/io/error.h"

namespace bert {

std::string read_standard_input() {
  constexpr size_t kFirstBytes = 1 << 16;
  std::string text;
  for (size_t used = 0;;) {
    if (used == text.size()) text.resize(std::max(kFirstBytes, 2 * used));
    const ssize_t got = ::read(STDIN_FILENO, text.data() + used, text.size() - used);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw IoError(fmt::format("standard input: cannot read: {}", std::strerror(errno)));
    used += static_cast<size_t>(got);
    if (got > 0) continue;
    text.resize(used);
    return text;
  }
}

}  // namespace bert
