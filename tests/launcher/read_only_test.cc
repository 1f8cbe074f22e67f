// A machine without a directory for temporary files: bertrun, and `bert` under it, in a mount namespace.
#include <sched.h>
#include <sys/mount.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "app/system/environment.h"
#include "app/system/exit_codes.h"
#include "tests/places.h"
// Last, because it includes Catch2.
#include "tests/support/launcher_network_testing.h"

using namespace bert;
using namespace bert::testing;

namespace {

constexpr int kNoNamespace = 99;

/// Directory that stays writable. The launchers' own files are in it, since TMPDIR names it while it lives.
struct Writable {
  Writable() { setenv("TMPDIR", directory.path().c_str(), 1); }
  ~Writable() { was.empty() ? unsetenv("TMPDIR") : setenv("TMPDIR", was.c_str(), 1); }
  const std::string was = variable_or("TMPDIR", "");
  const TemporaryDirectory directory;
};

/// For Launcher's `first`: of the places for temporary files, and of all below them, only `writable` can be written to.
std::function<void()> leave_only(const std::string& writable) {
  return [writable] {
    bool works = unshare(CLONE_NEWNS) == 0 && mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                 mount(writable.c_str(), writable.c_str(), nullptr, MS_BIND, nullptr) == 0;
    for (const char* directory : {"/tmp", "/var/tmp", "/dev/shm"}) {
      works = works && mount(directory, directory, nullptr, MS_BIND | MS_REC, nullptr) == 0 &&
              mount(nullptr, directory, nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY, nullptr) == 0;
    }
    if (!works) _exit(kNoNamespace);
    for (const char* name : {"TMPDIR", "TEMP", "TMP", "XDG_RUNTIME_DIR", "BERTRUN_TOKEN", "BERTRUN_TOKEN_FILE"})
      unsetenv(name);
  };
}

bool can_leave_only(const std::string& writable) {
  return Launcher({}, leave_only(writable), "/bin/true").wait() != kNoNamespace;
}

constexpr const char* kNeedsNamespace = "a read-only /tmp needs a mount namespace, which this user may not make";

}  // namespace

TEST_CASE("Without a directory for temporary files bertrun keeps no files of its own, or names the remedy", "[unit]") {
  const Writable place;
  const TemporaryDirectory& directory = place.directory;
  const std::function<void()> enter = leave_only(directory.path());
  if (!can_leave_only(directory.path())) BERT_SKIP(kNeedsNamespace);

  Launcher works(shell({"--nproc-per-node", "2"}, "test -z \"$TORCHELASTIC_ERROR_FILE\" && exit 3"), enter);
  CHECK(works.wait() == 3);
  CHECK(works.err().find("note: the errors of ranks are kept in no file: /tmp/torchelastic_") != std::string::npos);
  CHECK(works.err().find("Read-only file system; TMPDIR or --log-dir names a directory that can be written to") !=
        std::string::npos);
  CHECK(run(shell({"--tee", "3", "--log-dir", directory.path("logs")}, "exit 0")) == 0);

  Launcher teed(shell({"--tee", "3"}, "exit 0"), enter);
  CHECK(teed.wait() == kIo);
  CHECK(teed.err().find("TMPDIR or --log-dir names") != std::string::npos);

  // Two agents on loopback share a token in a directory of their user, not in TMPDIR, which may differ between them.
  const std::vector<std::string> elastic = {"--nnodes",
                                            "1:2",
                                            "--rdzv-endpoint",
                                            "localhost:29399",
                                            "--rdzv-backend",
                                            "c10d",
                                            "--rdzv-conf",
                                            "last_call_timeout=1",
                                            "sh",
                                            "-c",
                                            "exit 0"};
  Launcher agent(elastic, enter);
  CHECK(agent.wait() == kIo);
  CHECK(agent.err().find("set XDG_RUNTIME_DIR to a directory of your own that can be written to, or give the token in "
                         "BERTRUN_TOKEN") != std::string::npos);
}

TEST_CASE("Two ranks train without a directory for temporary files", "[distributed]") {
  if (!std::filesystem::exists(BERT_BINARY_DIR "/libbert.so")) BERT_SKIP("bert is built without LibTorch");
  const Writable place;
  const TemporaryDirectory& directory = place.directory;
  if (!can_leave_only(directory.path())) BERT_SKIP(kNeedsNamespace);
  PretrainConfig config = tiny(directory, "run");
  config.max_steps = 2;
  config.global_batch_size = 2 * config.micro_batch_size;
  Launcher ranks({"--standalone", "--nproc-per-node", "2", BERT_EXECUTABLE, "pretrain", write_config(config)},
                 leave_only(directory.path()));
  CHECK(ranks.wait() == kOk);
  CHECK(std::filesystem::exists(config.run_directory + "/latest"));
}

TEST_CASE("A benchmark of data names the remedy where nothing can be written", "[distributed]") {
  if (!std::filesystem::exists(BERT_BINARY_DIR "/libbert.so")) BERT_SKIP("bert is built without LibTorch");
  const Writable place;
  const TemporaryDirectory& directory = place.directory;
  if (!can_leave_only(directory.path())) BERT_SKIP(kNeedsNamespace);
  for (const char* given : {"", "/nowhere"}) {
    CAPTURE(given);
    const auto enter = [&] {
      leave_only(directory.path())();
      if (*given != '\0') setenv("TMPDIR", given, 1);
    };
    Launcher benchmark({"benchmark", "data"}, enter, BERT_EXECUTABLE);
    CHECK(benchmark.wait() == kIo);
    CHECK(benchmark.err().find("/tmp/bert-benchmark-") != std::string::npos);
    CHECK(benchmark.err().find("Read-only file system; TMPDIR names a directory that can be written to") !=
          std::string::npos);
  }
}
