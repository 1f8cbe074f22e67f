// Settings, counts, faults and the log.
#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "tests/null_device/runtime/state.h"
#include "tests/null_device/traffic.h"

namespace null_device {
namespace {

constexpr size_t kShownFrames = 12;
constexpr size_t kMostLetters = 140;  // of a name
constexpr size_t kMostFaults = 100;   // kept by a collector

std::map<std::string, int64_t>& counts() {
  static auto* instance = new std::map<std::string, int64_t>;  // outlives the threads that still count at the end
  return *instance;
}

std::map<std::string, Traffic>& traffic_by_name() {
  static auto* instance = new std::map<std::string, Traffic>;
  return *instance;
}

struct Collected {
  bool collecting = false;
  std::vector<std::string> texts;
};
Collected& collected() {
  static auto* instance = new Collected;
  return *instance;
}

thread_local const Place* queued_at = nullptr;  // the work that this thread runs

std::string demangled(const char* name) {
  int status = 0;
  char* const plain = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string text = plain != nullptr ? plain : name;
  std::free(plain);
  return text.size() > kMostLetters ? text.substr(0, kMostLetters) + "..." : text;
}

struct Frame {
  std::string text;
  bool of_libtorch = false;
};

/// Without text for frames of the device's own libraries.
Frame frame_in_words(void* frame) {
  Dl_info info{};
  if (dladdr(frame, &info) == 0 || info.dli_fname == nullptr) return {};
  const char* const slash = std::strrchr(info.dli_fname, '/');
  const std::string file = slash != nullptr ? slash + 1 : info.dli_fname;
  if (file.find("libcudart") == 0 || file.find("libnull_device") == 0) return {};
  const bool of_libtorch = file.find("libtorch") == 0 || file.find("libc10") == 0;
  if (info.dli_sname != nullptr) {
    std::string name = demangled(info.dli_sname);
    if (name.find("null_device::") != std::string::npos) return {};
    return {.text = std::move(name), .of_libtorch = of_libtorch};
  }
  if (file.find("libnccl") == 0 || file.find("libcublas") == 0) return {};
  char offset[32];
  std::snprintf(offset, sizeof offset, "+0x%zx",
                static_cast<size_t>(static_cast<char*>(frame) - static_cast<char*>(info.dli_fbase)));
  return {.text = file + offset, .of_libtorch = of_libtorch};
}

/// Writes the counts into the file that NULL_DEVICE_REPORT names ("%p" is the process) when the process ends.
struct ReportAtExit {
  ~ReportAtExit() {
    std::string name = setting("NULL_DEVICE_REPORT", "");
    if (name.empty()) return;
    if (const size_t at = name.find("%p"); at != std::string::npos) name.replace(at, 2, std::to_string(getpid()));
    std::FILE* const file = std::fopen(name.c_str(), "w");
    if (file == nullptr) return;
    const Lock held = lock();
    const char* separator = "{";
    for (const auto& [what, number] : counts()) {
      std::fprintf(file, "%s\"%s\": %lld", separator, what.c_str(), static_cast<long long>(number));
      separator = ", ";
    }
    std::fprintf(file, "%s}\n", counts().empty() ? "{" : "");
    std::fclose(file);
  }
};
const ReportAtExit report_at_exit;

[[noreturn]] void stop(const std::string& text) {
  std::fprintf(stderr, "null device: %s\n", text.c_str());
  std::fflush(stderr);
  std::abort();
}

/// Null without NULL_DEVICE_LOG.
std::FILE* log_file() {
  static std::FILE* const file = [] {
    const std::string name = setting("NULL_DEVICE_LOG", "");
    return name.empty() ? nullptr : std::fopen(name.c_str(), "w");
  }();
  return file;
}

void report(const std::string& text) {
  const Lock held = lock();
  ++counts()["fault"];
  log_line("FAULT " + text);
  if (collected().collecting) {
    if (collected().texts.size() < kMostFaults) collected().texts.push_back(text);
    return;
  }
  stop(text);
}

/// Of a fault.
std::string places() {
  std::string text = "\n    at" + in_words(here());
  if (queued_at != nullptr) text += "\n    and it was queued at" + in_words(*queued_at);
  return text;
}

}  // namespace

Lock lock() {
  static auto* mutex = new std::recursive_mutex;
  return Lock(*mutex);
}

std::string setting(const char* name, const char* fallback) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : fallback;
}
int64_t number_setting(const char* name, int64_t fallback) {
  const char* const value = std::getenv(name);
  return value != nullptr && *value != '\0' ? std::atoll(value) : fallback;
}

Place here() {
  Place place;
  place.count = backtrace(place.frames.data(), static_cast<int>(place.frames.size()));
  return place;
}

std::string in_words(const Place& place) {
  std::vector<Frame> frames;
  for (int i = 0; i < place.count; ++i) {
    Frame frame = frame_in_words(place.frames[static_cast<size_t>(i)]);
    if (frame.text.empty()) continue;
    // Of LibTorch's frames the one that the program called says most.
    if (!frames.empty() && frames.back().of_libtorch && frame.of_libtorch) frames.pop_back();
    frames.push_back(std::move(frame));
  }
  std::string text;
  for (size_t i = 0; i < frames.size() && i < kShownFrames; ++i) text += "\n      " + frames[i].text;
  return text.empty() ? "\n      (unknown)" : text;
}

void fault(const std::string& text) { report(text + places()); }
void fault_of_two(const std::string& text, const Place& other) {
  report(text + places() + "\n    and the other at" + in_words(other));
}
void last_fault(const std::string& text) { stop(text + places()); }

RunsQueued::RunsQueued(const Place& place) : before_(std::exchange(queued_at, &place)) {}
RunsQueued::~RunsQueued() { queued_at = before_; }

FaultCollector::FaultCollector() {
  const Lock held = lock();
  collected() = {.collecting = true, .texts = {}};
}
FaultCollector::~FaultCollector() {
  const Lock held = lock();
  collected() = {};
}
std::vector<std::string> FaultCollector::take() {
  const Lock held = lock();
  return std::exchange(collected().texts, {});
}

bool is_logging() { return log_file() != nullptr; }
void log_line(const std::string& line) {
  if (!is_logging()) return;
  std::fprintf(log_file(), "%s\n", line.c_str());
  std::fflush(log_file());
}

void add_count(const std::string& name) {
  const Lock held = lock();
  ++counts()[name];
  if (name == "launch" || name == "product" || name == "collective" || name == "replay") count_towards_failure();
}
int64_t count(const std::string& name) {
  const Lock held = lock();
  const auto found = counts().find(name);
  return found == counts().end() ? 0 : found->second;
}
void reset_counts() {
  const Lock held = lock();
  counts().clear();
  traffic_by_name().clear();
}

std::map<std::string, Traffic> traffic() {
  const Lock held = lock();
  return traffic_by_name();
}
void add_traffic(const Work& work) {
  Traffic& sum = traffic_by_name()[work.name];
  ++sum.works;
  for (const Access& access : work.accesses) sum.bytes += static_cast<int64_t>(access.bytes);
}

}  // namespace null_device
