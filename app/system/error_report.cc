#include "app/system/error_report.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <nlohmann/json.hpp>
#include <utility>

#include "app/system/fail_point.h"
#include "app/system/rank_state.h"

namespace bert {
namespace {

std::atomic<Phase> phase_now{Phase::kStarting};

struct LastCollective {
  std::mutex mutex;
  std::string text;
};

LastCollective& collective() {
  static LastCollective instance;
  return instance;
}

}  // namespace

void set_phase(Phase phase) {
  phase_now = phase;
  publish_phase(name_of(phase));
  fail_point(phase);
}

Phase current_phase() { return phase_now; }

void set_last_collective(std::string text) {
  const std::lock_guard lock(collective().mutex);
  publish_last_collective(text);
  collective().text = std::move(text);
}

std::string last_collective() {
  const std::lock_guard lock(collective().mutex);
  return collective().text;
}

void write_error_file(const std::string& type, const std::string& message, int exit_code) {
  const char* path = std::getenv("TORCHELASTIC_ERROR_FILE");
  if (path == nullptr || *path == '\0') return;
  std::FILE* file = std::fopen(path, "wx");
  if (file == nullptr) return;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const std::string seconds = std::to_string(std::chrono::duration_cast<std::chrono::seconds>(now).count());
  const nlohmann::ordered_json error = {
      {"message", {{"message", type + ": " + message}, {"extraInfo", {{"timestamp", seconds}}}}},
      {"phase", name_of(current_phase())},
      {"last_collective", last_collective()},
      {"exit_code", exit_code}};
  const std::string text = error.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  std::fwrite(text.data(), 1, text.size(), file);
  std::fclose(file);
}

}  // namespace bert
