#include "app/cli/transfer_progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace bert {
namespace {

constexpr std::chrono::milliseconds kBetweenLines{200};
constexpr int64_t kTenths = 10;

std::string time_text(double seconds) {
  if (seconds < 100) return fmt::format("{:.0f} s", seconds);
  if (seconds < 100 * 60) return fmt::format("{:.0f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

}  // namespace

void TransferProgress::update(const std::string& name, int64_t bytes, std::optional<int64_t> of_bytes) {
  const auto now = now_();
  if (name != name_) {
    end_line();
    name_ = name;
    first_bytes_ = bytes;
    tenths_ = 0;
    start_ = now;
    shown_ = now - kBetweenLines;
  }
  first_bytes_ = std::min(first_bytes_, bytes);  // a transfer may start at the beginning again
  const bool terminal = isatty(STDERR_FILENO) != 0, whole = of_bytes && bytes >= *of_bytes;
  if (terminal && !whole && now - shown_ < kBetweenLines) return;
  const int64_t tenths = of_bytes && *of_bytes > 0 ? kTenths * bytes / *of_bytes : 0;
  if (!terminal && tenths <= tenths_) return;
  shown_ = now;
  tenths_ = tenths;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const double rate = seconds > 0 ? static_cast<double>(bytes - first_bytes_) / seconds : 0;
  std::string text = name_ + ": ";
  text += of_bytes ? fmt::format("{} %", *of_bytes > 0 ? 100 * bytes / *of_bytes : 100)
                   : fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
  if (rate > 0) text += fmt::format(", {:.1f} MB/s", rate / 1e6);
  if (rate > 0 && of_bytes && !whole)
    text += fmt::format(", {} left", time_text(static_cast<double>(*of_bytes - bytes) / rate));
  if (!terminal) {
    fmt::print(stderr, "{}\n", text);
    return;
  }
  line_begun_ = true;
  fmt::print(stderr, "\r{}\x1b[K", text);  // and clears what is left of a longer line
  if (whole) end_line();
}

void TransferProgress::end_line() {
  if (line_begun_) std::fputc('\n', stderr);
  line_begun_ = false;
}

}  // namespace bert
