#include "app/report/metrics.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

namespace bert {
namespace {

/// True for a line of metrics of a step up to `last_step`.
LineFile::Keep up_to(int64_t last_step) {
  return [last_step](std::string_view line) {
    const auto parsed = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!parsed.is_object()) return false;
    const auto step = parsed.value("step", nlohmann::json(0));
    return step.is_number_integer() && step.get<int64_t>() <= last_step;
  };
}

}  // namespace

MetricsFile::MetricsFile(const std::string& path, int64_t last_step) : file_(path, up_to(last_step)) {}

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
  if (m.terms.size() > 1) {
    std::string terms;
    for (const auto& [name, loss] : m.terms) terms += fmt::format("{}{} {:.4f}", terms.empty() ? "" : " ", name, loss);
    parts.push_back({"(" + terms + ")", 2});
  }
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
    const auto least = std::ranges::min_element(parts, [](const Part& a, const Part& b) { return a.rank < b.rank; });
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

namespace {

int terminal_columns() {
  constexpr int kUsualColumns = 80;
  winsize window{};
  const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0;
  return known ? window.ws_col : kUsualColumns;
}

}  // namespace

std::string life_line(int64_t step, int64_t first_step, int64_t last_step, double seconds,
                      const std::string& activity) {
  std::string line = fmt::format("step {}/{}  {}", step, last_step, activity);
  if (step > first_step) {
    const double seconds_a_step = seconds / static_cast<double>(step - first_step);
    line += seconds_a_step < 1 ? fmt::format("  {:.3g} steps/s", 1 / seconds_a_step)
                               : fmt::format("  {:.3g} s a step", seconds_a_step);
    line += "  eta " + format_duration(seconds_a_step * static_cast<double>(last_step - step));
  }
  return line;
}

Progress::Progress(std::function<std::string()> activity, Record record, Clock::duration longest_silence)
    : terminal_(isatty(STDERR_FILENO) == 1 && std::getenv("CI") == nullptr),
      activity_(std::move(activity)),
      record_(std::move(record)),
      longest_silence_(longest_silence),
      watcher_([this] { watch(); }) {}

Progress::~Progress() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_one();
  watcher_.join();
}

void Progress::watch() {
  std::unique_lock lock(mutex_);
  while (!ended_) {
    changed_.wait_until(lock, shown_ + longest_silence_);
    if (!ended_ && Clock::now() >= shown_ + longest_silence_) sign_of_life();
  }
}

void Progress::sign_of_life() {
  if (terminal_ && training_ && metrics_.max_steps > 0) {  // there has been an update
    metrics_.step = reached_;
    show_bar(metrics_);
    return;
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  line(training_ ? life_line(reached_, first_step_, last_step_, seconds, activity_()) : activity_());
}

double Progress::seconds_left(int64_t step) const {
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  const int64_t done = step - first_step_;
  return done > 0 ? seconds / static_cast<double>(done) * static_cast<double>(last_step_ - step) : 0;
}

void Progress::line(const std::string& text) {
  erase_bar();
  std::fprintf(stderr, "%s\n", text.c_str());
  record_(text);
  shown_ = Clock::now();
}

void Progress::erase_bar() {
  if (bar_columns_ == 0) return;
  if (const int64_t above = (bar_columns_ - 1) / terminal_columns(); above > 0)
    std::fprintf(stderr, "\033[%ldA", static_cast<long>(above));
  std::fprintf(stderr, "\r\033[J");
  bar_columns_ = 0;
}

void Progress::show_bar(const StepMetrics& m) {
  const int64_t steps = last_step_ - first_step_;
  const double share = steps > 0 ? static_cast<double>(m.step - first_step_) / static_cast<double>(steps) : 1;
  // One column less: a terminal moves to the next line after a character in the last column.
  const std::string bar = progress_line(m, share, seconds_left(m.step), terminal_columns() - 1);
  erase_bar();
  std::fprintf(stderr, "%s", bar.c_str());
  std::fflush(stderr);
  bar_columns_ = std::ranges::count_if(bar, [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; });
  shown_ = Clock::now();
}

void Progress::start(int64_t first_step, int64_t last_step) {
  const std::lock_guard lock(mutex_);
  first_step_ = reached_ = first_step;
  last_step_ = last_step;
  start_ = Clock::now();
  training_ = true;
}

void Progress::reached(int64_t step) {
  const std::lock_guard lock(mutex_);
  reached_ = step;
}

void Progress::update(const StepMetrics& m) {
  const std::lock_guard lock(mutex_);
  metrics_ = m;
  reached_ = m.step;
  const std::string text = line_of(parts_of(m, seconds_left(m.step)));
  if (!terminal_) return line(text);
  record_(text);
  show_bar(m);
}

void Progress::message(const std::string& text) {
  const std::lock_guard lock(mutex_);
  line(text);
}

void Progress::finish() {
  const std::lock_guard lock(mutex_);
  if (bar_columns_ > 0) std::fprintf(stderr, "\n");
  bar_columns_ = 0;
  training_ = false;
}

}  // namespace bert
