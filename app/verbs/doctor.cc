#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "app/cli/command_line.h"
#include "app/system/exit_codes.h"
#include "app/system/machine/libbert.h"
#include "app/verbs/torch_verbs.h"
#include "app/verbs/verbs.h"
#include "data/io/files.h"

namespace bert {
namespace {

/// The text after the colon in the first line of `path` that starts with `key`; empty if there is no such line.
std::string field_of(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(key, 0) == 0) return line.substr(std::min(line.size(), line.find(':') + 2));
  }
  return "";
}

class Report {
 public:
  void ok(const std::string& what, const std::string& detail) { line("ok", what, detail); }
  void note(const std::string& what, const std::string& detail) { line("note", what, detail); }
  void bad(const std::string& what, const std::string& detail, const std::string& remedy) {
    line("BAD", what, detail + " -> " + remedy);
    ++problems_;
  }
  /// Counts a problem that is already printed.
  void add_problem() { ++problems_; }
  [[nodiscard]] int problems() const { return problems_; }

 private:
  static void line(const char* mark, const std::string& what, const std::string& detail) {
    std::printf("%-5s %-12s %s\n", mark, what.c_str(), detail.c_str());
  }
  int problems_ = 0;
};

void check_machine(Report& report) {
  const std::string flags = " " + field_of("/proc/cpuinfo", "flags") + " ";
  const auto has = [&](const char* flag) { return flags.find(std::string(" ") + flag + " ") != std::string::npos; };
  std::string sets;
  for (const char* flag : {"avx2", "fma", "avx512f", "avx512bw", "avx512_bf16", "amx_bf16"})
    sets += has(flag) ? std::string(flag) + " " : "";
  const std::string cpu = field_of("/proc/cpuinfo", "model name") + ", " +
                          std::to_string(std::thread::hardware_concurrency()) + " threads, " + sets;
  if (has("avx2") && has("fma")) {
    report.ok("processor", cpu);
  } else {
    report.bad("processor", cpu, "an x86-64 processor with AVX2 and FMA is needed");
  }
  const std::string free_memory = field_of("/proc/meminfo", "MemAvailable");
  report.ok("memory", "available" + free_memory);
  struct statvfs disk {};
  if (statvfs(".", &disk) == 0) {
    const double free_gb = 1e-9 * static_cast<double>(disk.f_bavail) * static_cast<double>(disk.f_frsize);
    char text[64];
    std::snprintf(text, sizeof text, "%.1f GB free in the current directory", free_gb);
    if (free_gb >= 3.0) {
      report.ok("disk", text);
    } else {
      report.bad("disk", text, "set-up needs 3 GB (9 GB with CUDA), a BERT-base checkpoint 1.3 GB");
    }
  }
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  if (files.rlim_cur >= 1024) {
    report.ok("open files", "limit " + std::to_string(files.rlim_cur));
  } else {
    report.bad("open files", "limit " + std::to_string(files.rlim_cur), "raise it: ulimit -n 4096");
  }
  if (const char* threads = std::getenv("OMP_NUM_THREADS"))
    report.note("threads", std::string("OMP_NUM_THREADS=") + threads);
  const auto year =
      std::chrono::duration_cast<std::chrono::hours>(std::chrono::system_clock::now().time_since_epoch()).count() /
      8766;
  if (year < 55)
    report.bad("clock", "says " + std::to_string(1970 + year), "set the clock: TLS downloads fail with a wrong date");
}

void check_driver(Report& report) {
  std::ifstream driver("/proc/driver/nvidia/version");
  std::string line;
  if (std::getline(driver, line)) {
    report.ok("driver", line);
  } else if (std::filesystem::exists("/dev/nvidiactl")) {  // a sandbox may hide /proc/driver
    report.ok("driver", "NVIDIA's; its version is not visible");
  } else {
    report.note("driver", "no NVIDIA driver is loaded: training runs on the processor");
  }
}

void check_libtorch(Report& report) {
  LoadProblem problem;
  const auto command = reinterpret_cast<BertTorchCommand>(torch_library_symbol(kBertTorchCommandSymbol, problem));
  if (command == nullptr) {
    report.bad("LibTorch", problem.reason, problem.remedy);
    return;
  }
  std::fflush(stdout);
  char name[] = "doctor";
  char* arguments[] = {name, nullptr};
  const int code = command(1, arguments);
  if (code == kInputMissing) {
    report.add_problem();  // it has said what
  } else if (code != kOk) {
    report.bad("LibTorch", "loads, but a small computation fails", "run app/setup.sh again");
  }
}

/// Runs check_libtorch() in a child process: a truncated library kills the process that loads it.
void check_libtorch_apart(Report& report) {
  flush_standard_output();  // an error that remains in the stream would be the child's too
  const pid_t child = fork();
  if (child < 0) {
    check_libtorch(report);
    return;
  }
  if (child == 0) {
    _exit(guarded("bert doctor", [] {
      Report own;
      check_libtorch(own);
      flush_standard_output();
      return own.problems() == 0 ? kOk : kInputMissing;
    }));
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) {
    report.bad("LibTorch", std::string("the process that loads it is killed: ") + strsignal(WTERMSIG(status)),
               kInstallAgain);
  } else if (WEXITSTATUS(status) == kInputMissing) {
    report.add_problem();
  } else if (WEXITSTATUS(status) != kOk) {
    report.bad("LibTorch", "the process that loads it ends with code " + std::to_string(WEXITSTATUS(status)),
               kInstallAgain);
  }
}

}  // namespace

int doctor_command(int argc, char** argv) {
  CLI::App app(
      "Checks the machine and the installation, and says what to do about what is BAD; exit code 66 then.\nExample: "
      "bert doctor",
      "bert doctor");
  if (!parse_command_line(app, argc, argv)) return kOk;
  Report report;
  report.ok("bert", BERT_VERSION);
  check_machine(report);
  check_driver(report);
  // XXH3-128 of the empty string, from xxHash's specification.
  if (checksum("", 0) == "99aa06d3014798d86001c324468d497f") {
    report.ok("checksum", "XXH3-128 self-test");
  } else {
    report.bad("checksum", "XXH3-128 self-test failed", "reinstall libxxhash; do not trust checkpoints written here");
  }
  check_libtorch_apart(report);
  flush_standard_output();
  return report.problems() == 0 ? kOk : kInputMissing;
}

}  // namespace bert
