#include "app/report/metrics.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <vector>

namespace bert {
namespace {

/// Drops the lines of steps after `last_step` and lines that are not metrics from the file `path`. Returns `path`.
const std::string& without_later_lines(const std::string& path, int64_t last_step) {
  if (!std::filesystem::exists(path)) return path;
  const std::string old = read_file(path);
  std::string kept;
  for (size_t begin = 0, end; (end = old.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string line = old.substr(begin, end - begin);
    const auto parsed = nlohmann::json::parse(line, nullptr, false);
    if (!parsed.is_object()) continue;
    const auto step = parsed.value("step", nlohmann::json(0));
    if (step.is_number_integer() && step.get<int64_t>() <= last_step) kept += line + "\n";
  }
  if (kept == old) return path;
  AtomicFile file(path);
  file.write(kept);
  file.commit();
  return path;
}

}  // namespace

MetricsFile::MetricsFile(const std::string& path, int64_t last_step) : file_(without_later_lines(path, last_step)) {}

std::string format_duration(double seconds) {
  const auto total = static_cast<int64_t>(std::lround(seconds));
  char text[32];
  if (total >= 3600) {
    std::snprintf(text, sizeof text, "%ld:%02ld:%02ld", static_cast<long>(total / 3600),
                  static_cast<long>(total / 60 % 60), static_cast<long>(total % 60));
  } else {
    std::snprintf(text, sizeof text, "%02ld:%02ld", static_cast<long>(total / 60), static_cast<long>(total % 60));
  }
  return text;
}

namespace {

/// A figure of the progress line. On a narrow terminal the figures of the lowest rank are dropped first.
struct Part {
  std::string text;
  int rank;
};

constexpr int kAlways = 9;

std::vector<Part> parts_of(const StepMetrics& m, double eta) {
  std::vector<Part> parts = {
      {fmt::format("step {}/{}", m.step, m.max_steps), kAlways},
      {fmt::format("loss {:.4f}", m.loss), 8},
  };
  if (!m.pairs.empty()) parts.push_back({fmt::format("(mlm {:.4f} {} {:.4f})", m.mlm_loss, m.pairs, m.pair_loss), 2});
  parts.insert(parts.end(), {{fmt::format("lr {:.3g}", m.learning_rate), 5},
                             {fmt::format("|g| {:.3f}", m.grad_norm), 3},
                             {fmt::format("{:.1f} seq/s", m.sequences_per_second), 7},
                             {fmt::format("{:.0f} tok/s", m.tokens_per_second), 1},
                             {fmt::format("mfu {:.1f}%", 100 * m.mfu), 4}});
  if (m.skipped > 0) parts.push_back({fmt::format("skipped {}", m.skipped), 6});
  parts.push_back({"eta " + format_duration(eta), kAlways});
  return parts;
}

std::string line_of(const std::vector<Part>& parts) {
  std::string line;
  for (const Part& part : parts) line += (line.empty() ? "" : part.text.starts_with('(') ? " " : "  ") + part.text;
  return line;
}

}  // namespace

std::string progress_line(const StepMetrics& metrics, double share, double eta, int columns) {
  constexpr size_t kLongestBar = 24, kShortestBar = 6;
  const auto room = static_cast<size_t>(std::max(0, columns));
  std::vector<Part> parts = parts_of(metrics, eta);
  while (line_of(parts).size() + 1 + kShortestBar > room) {
    const auto least =
        std::min_element(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.rank < b.rank; });
    if (least->rank == kAlways) return line_of(parts).substr(0, room);
    parts.erase(least);
  }
  const std::string figures = line_of(parts);
  const size_t cells = std::min(kLongestBar, room - figures.size() - 1);
  std::string bar;
  for (size_t i = 0; i < cells; ++i)
    bar += static_cast<double>(i) < std::floor(static_cast<double>(cells) * share) ? "█" : "░";
  return bar + " " + figures;
}

Progress::Progress(int64_t first_step, int64_t last_step)
    : terminal_(isatty(STDERR_FILENO) == 1 && std::getenv("CI") == nullptr),
      first_step_(first_step),
      last_step_(last_step) {}

void Progress::update(const StepMetrics& m) {
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  const auto done = static_cast<double>(m.step - first_step_), all = static_cast<double>(last_step_ - first_step_);
  const double eta = done > 0 ? seconds / done * (all - done) : 0;
  if (!terminal_) {
    std::fprintf(stderr, "%s\n", line_of(parts_of(m, eta)).c_str());
    return;
  }
  constexpr int kUsualColumns = 80;
  winsize window{};
  const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0;
  const int columns = known ? window.ws_col : kUsualColumns;
  // One column less: a terminal moves to the next line after a character in the last column.
  std::fprintf(stderr, "\r\033[K%s", progress_line(m, all > 0 ? done / all : 1, eta, columns - 1).c_str());
  std::fflush(stderr);
  bar_shown_ = true;
}

void Progress::message(const std::string& text) {
  if (bar_shown_) std::fprintf(stderr, "\r\033[K");
  std::fprintf(stderr, "%s\n", text.c_str());
  bar_shown_ = false;
}

void Progress::finish() {
  if (bar_shown_) std::fprintf(stderr, "\n");
  bar_shown_ = false;
}

}  // namespace bert
