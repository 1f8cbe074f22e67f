// bert_mutations: damages valid files of every format that the program reads, and frames of the launcher, and reads
// each copy in a child process. The n-th mutation of a format depends only on the seed.
//
// Note [Mutations]
//
// A read may accept the copy, or refuse it as a verb would: exit codes 65, 66, 74 and 78. Any other result is an error:
// - crash: the child ends in any other way. Examples are a signal, a sanitizer's report, an exception for a mistake of
//   the program, and lack of memory, because no damage may make the program ask for more than kMostMemory.
// - timeout: the child, with the processes that it waited for, uses more than kMostProcessorSeconds of processor time,
//   or sleeps for kMostSeconds. Processor time is used so that a busy machine does not fail the test.
// - silent: the child accepts a change that checksums or MACs cover (Format::sealed). In other formats damage cannot be
//   told: a flipped bit of a vocabulary makes another vocabulary.
//
// bert_mutations_without_checksums is the negative twin. It has the same objects, but hashes that are always zero
// (tests/fuzz/zero_checksums.cc). It must report silent changes, and no crash: code behind the checksums must be safe
// too, because an attacker can make the checksums of a file match.
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "app/cli/command_line.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "data/io/descriptor.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "data/random/permutation.h"
#include "tests/fuzz/mutation_formats.h"

// Sanitizers reserve more address space than RLIMIT_AS allows, and have a limit of their own.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define BERT_SANITIZED 1
extern "C" const char* __asan_default_options() { return "max_allocation_size_mb=1024:exitcode=1"; }  // NOLINT
extern "C" const char* __tsan_default_options() { return "max_allocation_size_mb=1024:exitcode=1"; }  // NOLINT
#else
#define BERT_SANITIZED 0
#endif

namespace bert::testing {
namespace {

namespace fs = std::filesystem;

constexpr rlim_t kMostMemory = rlim_t{1} << 30;  // bytes of address space beyond that at the start of a read
constexpr rlim_t kMostProcessorSeconds = BERT_SANITIZED == 0 ? 2 : 20;
constexpr unsigned kMostSeconds = 300;  // for a child that sleeps

enum class Outcome { kRefused, kAccepted, kCrash, kTimeout };

struct Attempt {
  Outcome outcome = Outcome::kCrash;
  double processor_seconds = 0;  // of the child and the processes that it waited for
};

struct Counts {
  int64_t mutations = 0, refused = 0, accepted = 0, crashes = 0, silent = 0, timeouts = 0;
  double slowest = 0;      // processor seconds of one mutation
  int64_t slowest_at = 0;  // its number

  void add(const Counts& other) {
    mutations += other.mutations, refused += other.refused, accepted += other.accepted;
    crashes += other.crashes, silent += other.silent, timeouts += other.timeouts;
  }
  [[nodiscard]] bool bad() const { return crashes + silent + timeouts > 0; }
};

/// The bytes of address space that this process has. Arrow's library alone reserves a gigabyte.
rlim_t address_space() {
  std::ifstream file("/proc/self/statm");
  rlim_t pages = 0;
  file >> pages;
  return pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
}

/// Called in the child. Reads and prints the exception to standard error. Returns the exit code.
int read_once(const Format& format, Mutator* mutator) {
  try {
    format.read(mutator);
    return kOk;
  } catch (...) {
    std::string type, message;
    const int code = exit_code_of_current_exception(type, message);
    constexpr size_t kLongest = 2000;  // a message may contain the whole text
    const std::string line = fmt::format("{}: {}\n", type, message.substr(0, kLongest));
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
    return code;
  }
}

/// Called in the child. Reads with limits, standard error being `log`, and ends the process.
[[noreturn]] void read_with_limits(const Format& format, Mutator* mutator, int log) {
  dup2(log, STDERR_FILENO);
  const rlim_t bytes = address_space() + kMostMemory;
  const rlimit processor{kMostProcessorSeconds, kMostProcessorSeconds + 5}, no_core{0, 0}, memory{bytes, bytes};
  setrlimit(RLIMIT_CPU, &processor);
  setrlimit(RLIMIT_CORE, &no_core);
  if (BERT_SANITIZED == 0) setrlimit(RLIMIT_AS, &memory);
  alarm(kMostSeconds);
  _exit(read_once(format, mutator));
}

Outcome outcome_of(int status) {
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    return signal == SIGXCPU || signal == SIGALRM ? Outcome::kTimeout : Outcome::kCrash;
  }
  switch (WEXITSTATUS(status)) {
    case kOk:
      return Outcome::kAccepted;
    case kBadData:
    case kInputMissing:
    case kIo:
    case kBadConfiguration:
      return Outcome::kRefused;
    default:
      return Outcome::kCrash;
  }
}

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

/// Reads in a child process whose standard error is `log`.
Attempt attempt(const Format& format, Mutator* mutator, int log) {
  if (ftruncate(log, 0) != 0 || lseek(log, 0, SEEK_SET) != 0) throw IoError("cannot empty the log");
  const pid_t child = fork();
  if (child < 0) throw IoError(fmt::format("cannot fork: {}", std::strerror(errno)));
  if (child == 0) read_with_limits(format, mutator, log);
  int status = 0;
  rusage usage{};
  while (wait4(child, &status, 0, &usage) < 0 && errno == EINTR) {
  }
  const double seconds = seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
  const Outcome outcome = outcome_of(status);
  const bool late = outcome != Outcome::kCrash && seconds > static_cast<double>(kMostProcessorSeconds);
  return {.outcome = late ? Outcome::kTimeout : outcome, .processor_seconds = seconds};
}

/// Runs mutations 0 .. count - 1 of a format. Prints each error, and copies its file to `keep` if that is not empty.
Counts mutate(const Format& format, int64_t count, uint64_t seed, const std::string& directory,
              const std::string& keep) {
  const Descriptor log(memfd_create("log", MFD_CLOEXEC));
  const auto logged = [&] { return read_file(fmt::format("/proc/self/fd/{}", log.get())); };
  if (attempt(format, nullptr, log.get()).outcome != Outcome::kAccepted) {
    throw std::runtime_error(fmt::format("{}: what is valid is not accepted: {}", format.name, logged()));
  }
  Counts counts;
  for (int64_t i = 0; i < count; ++i) {
    Mutator mutator(mix_bits(seed) + mix_bits(static_cast<uint64_t>(i)));
    const auto [outcome, seconds] = attempt(format, &mutator, log.get());
    ++counts.mutations;
    if (seconds > counts.slowest) counts.slowest = seconds, counts.slowest_at = i;
    std::string wrong;
    if (outcome == Outcome::kRefused) ++counts.refused;
    if (outcome == Outcome::kAccepted) ++counts.accepted;
    if (outcome == Outcome::kAccepted && format.sealed) ++counts.silent, wrong = "silent";
    if (outcome == Outcome::kCrash) ++counts.crashes, wrong = "crash";
    if (outcome == Outcome::kTimeout) ++counts.timeouts, wrong = "timeout";
    if (wrong.empty()) continue;
    fmt::print(stderr, "{}, mutation {}: {}\n{}", format.name, i, wrong, logged());
    if (!keep.empty() && fs::exists(directory + "/" + format.name)) {
      fs::copy(directory + "/" + format.name, fmt::format("{}/{}-{}", keep, format.name, i),
               fs::copy_options::recursive | fs::copy_options::overwrite_existing);
    }
  }
  return counts;
}

int run(int argc, char** argv) {
  CLI::App app("Reads damaged files of every format; exit code 1 when one crashes, is silent or runs out of time.",
               "bert_mutations");
  int64_t count = 200;
  uint64_t seed = 1;
  std::string only, keep;
  app.add_option("--count", count, "mutations of each format")->check(number_in<int64_t>(1, kManyTimes));
  app.add_option("--seed", seed, "of all mutations");
  app.add_option("--format", only, "this format alone");
  app.add_option("--keep", keep, "directory for a copy of what is read wrongly");
  if (!parse_command_line(app, argc, argv)) return kOk;
  if (!keep.empty()) fs::create_directories(keep);

  // Uses a directory in memory if there is one, because nothing here has to be kept.
  const fs::path parent = access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : fs::temp_directory_path();
  std::string directory = (parent / "bert-mutations-XXXXXX").string();
  if (mkdtemp(directory.data()) == nullptr) throw IoError("cannot make " + directory);
  struct Remove {
    const std::string& path;
    ~Remove() {
      std::error_code ignored;
      fs::remove_all(path, ignored);
    }
  } remove{directory};

  Counts total;
  for (const Format& format : mutation_formats(directory)) {
    if (!only.empty() && format.name != only) continue;
    const Counts counts = mutate(format, count, seed, directory, keep);
    total.add(counts);
    fmt::print(
        "{}: {} mutations, {} refused, {} accepted, {} crashes, {} silent, {} timeouts; the slowest, number {}, took "
        "{:.2f} s\n",
        format.name, counts.mutations, counts.refused, counts.accepted, counts.crashes, counts.silent, counts.timeouts,
        counts.slowest_at, counts.slowest);
    std::fflush(stdout);
  }
  if (total.mutations == 0) throw UsageError("no format \"" + only + "\"");
  fmt::print("{} mutations, {} crashes, {} silent, {} timeouts\n", total.mutations, total.crashes, total.silent,
             total.timeouts);
  return total.bad() ? 1 : kOk;
}

}  // namespace
}  // namespace bert::testing

int main(int argc, char** argv) {
  return bert::guarded("bert_mutations", [&] { return bert::testing::run(argc, argv); });
}
