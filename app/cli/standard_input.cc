#include "app/cli/standard_input.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "data/io/error.h"

namespace bert {

std::string read_standard_input(const std::function<void(std::string_view)>& check_start) {
  constexpr size_t kFirstBytes = 1 << 16;
  std::string text;
  bool checked = false;
  for (size_t used = 0;;) {
    if (used >= kFirstBytes && !checked) {
      check_start(std::string_view(text).substr(0, used));
      checked = true;
    }
    if (used == text.size()) text.resize(std::max(kFirstBytes, 2 * used));
    const ssize_t got = ::read(STDIN_FILENO, text.data() + used, text.size() - used);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw IoError(fmt::format("standard input: cannot read: {}", std::strerror(errno)));
    used += static_cast<size_t>(got);
    if (got > 0) continue;
    text.resize(used);
    if (!checked) check_start(text);
    return text;
  }
}

}  // namespace bert
