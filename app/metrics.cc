#include "app/metrics.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <filesystem>

#include "data/error.h"
#include "data/files.h"

namespace bert {

MetricsFile::MetricsFile(const std::string& path, int64_t last_step) : path_(path) {
  if (std::filesystem::exists(path)) {
    const std::string old = read_file(path);
    std::string kept;
    for (size_t begin = 0, end; (end = old.find('\n', begin)) != std::string::npos; begin = end + 1) {
      const std::string line = old.substr(begin, end - begin);
      const auto parsed = nlohmann::json::parse(line, nullptr, false);
      if (parsed.is_object() && parsed.value("step", int64_t{0}) <= last_step) kept += line + "\n";
    }
    if (kept != old) {
      AtomicFile file(path);
      file.write(kept);
      file.commit();
    }
  }
  file_.open(path, std::ios::app);
  if (!file_) throw IoError(path + ": cannot open for writing; is the run directory writable?");
}

void MetricsFile::write(const nlohmann::ordered_json& line) {
  file_ << line.dump() << '\n' << std::flush;
  if (!file_) throw IoError(path_ + ": write failed; is the disk full?");
}

double FlopCounter::forward_of_sequence(int64_t length) const {
  const auto h = static_cast<double>(config_.hidden_size), s = static_cast<double>(length);
  const auto i = static_cast<double>(config_.intermediate_size),
             layers = static_cast<double>(config_.num_hidden_layers);
  return layers * ((8 * h * h + 4 * h * i) * s + 4 * h * s * s);
}

double FlopCounter::forward_of_heads(int64_t masked, int64_t sequences) const {
  const auto h = static_cast<double>(config_.hidden_size), v = static_cast<double>(config_.vocab_size);
  return static_cast<double>(masked) * (2 * h * h + 2 * h * v) + static_cast<double>(sequences) * (2 * h * h + 4 * h);
}

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

Progress::Progress(int64_t first_step, int64_t last_step)
    : terminal_(isatty(STDERR_FILENO) == 1 && std::getenv("CI") == nullptr),
      first_step_(first_step),
      last_step_(last_step) {}

void Progress::update(const StepMetrics& m) {
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  const auto done = static_cast<double>(m.step - first_step_), all = static_cast<double>(last_step_ - first_step_);
  const double eta = done > 0 ? seconds / done * (all - done) : 0;
  char figures[256];
  std::snprintf(figures, sizeof figures,
                "step %ld/%ld  loss %.4f (mlm %.4f nsp %.4f)  lr %.3g  |g| %.3f  %.1f seq/s  %.0f tok/s  mfu %.1f%%%s",
                static_cast<long>(m.step), static_cast<long>(m.max_steps), m.loss, m.mlm_loss, m.nsp_loss,
                m.learning_rate, m.grad_norm, m.sequences_per_second, m.tokens_per_second, 100 * m.mfu,
                m.skipped > 0 ? ("  skipped " + std::to_string(m.skipped)).c_str() : "");
  if (!terminal_) {
    std::fprintf(stderr, "%s  eta %s\n", figures, format_duration(eta).c_str());
    return;
  }
  constexpr int kWidth = 24;
  const int filled = all > 0 ? static_cast<int>(kWidth * done / all) : kWidth;
  std::string bar;
  for (int i = 0; i < kWidth; ++i) bar += i < filled ? "█" : "░";
  std::fprintf(stderr, "\r\033[K%s %s  eta %s", bar.c_str(), figures, format_duration(eta).c_str());
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
