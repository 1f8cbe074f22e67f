// Exit codes and messages of the programs when standard output is full, a library is damaged, the current directory is
// deleted, or memory runs out.
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "app/checkpoint/files.h"
#include "app/system/exit_codes.h"
#include "app/train/pretrain.h"
#include "data/io/files.h"
#include "tests/places.h"
#include "tests/support/pretrain_process.h"
#include "tests/support/tiny_pretraining.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::Contains;
using bert::testing::TemporaryDirectory;
using bert::testing::tiny;

namespace {

struct Ending {
  int code = 0;
  std::string said;  // standard error
};

/// Runs `bert ARGUMENTS...` with standard output to the file `output`. Calls `prepare` in the new process before.
Ending run(const TemporaryDirectory& directory, std::vector<std::string> arguments, const char* output,
           const std::function<void()>& prepare = {}) {
  arguments.insert(arguments.begin(), "bert");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const std::string errors = directory.path("stderr"), input = directory.path("vocab.txt");
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(open(input.c_str(), O_RDONLY), STDIN_FILENO);
    dup2(open(output, O_WRONLY), STDOUT_FILENO);
    dup2(open(errors.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
    if (prepare) prepare();
    execv(BERT_EXECUTABLE, argv.data());
    _exit(127);
  }
  const int code = testing::result_of(pid);
  return {code, read_file(errors)};
}

int64_t times_in(std::string_view part, std::string_view text) {
  int64_t times = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string_view::npos; at += part.size()) ++times;
  return times;
}

}  // namespace

TEST_CASE("A verb whose standard output is lost ends with 74", "[unit][process]") {
  const TemporaryDirectory directory;
  PretrainConfig config = tiny(directory, "run");
  config.max_steps = config.stop_at_step = 2;
  config.checkpoint_every = 1;
  REQUIRE(pretrain(config, false) == kOk);
  const std::string file = directory.path("run.json"), run_directory = config.run_directory,
                    shard = directory.path("train.shard"), vocabulary = directory.path("vocab.txt"),
                    first = checkpoint_directory(run_directory, 1), second = checkpoint_directory(run_directory, 2);
  std::ofstream(file) << to_json(config);
  std::vector<std::vector<std::string>> commands = {
      {"--help"},
      {"--version"},
      {"version"},
      {"doctor"},
      {"tokenize", "--vocab", vocabulary},
      {"data", "--help"},
      {"data", "create", "--input", vocabulary, "--vocab", vocabulary, "--output", directory.path("made.shard")},
      {"data", "split"},
      {"data", "verify", shard},
      {"data", "show", shard},
      {"data", "stats", shard},
      {"predict", "--checkpoint", run_directory, "5 [MASK] 7"},
      {"predict", "--checkpoint", run_directory, "--task", "features", "5 6 7"},
      {"checkpoint", "list", run_directory},
      {"checkpoint", "verify", run_directory},
      {"checkpoint", "diff", first, second},
      {"config", "validate", file},
      {"config", "show", file},
      {"config", "schema"},
      {"config", "new"},
      {"config", "reference"},
      {"completion", "bash"},
      {"man"},
      {"config", "diff", file, std::string(BERT_SOURCE_DIR) + "/configs/bert-base.json"},
      {"plan", file},
      {"benchmark", "step", "--config", file, "--batch", "2", "--length", "8", "--steps", "1", "--warmup", "0"}};
  for (const char* verb :
       {"vocab", "tokenize", "data create", "data split", "data verify", "data show", "data stats", "pretrain",
        "predict", "export", "checkpoint list", "config show", "benchmark step", "plan", "doctor", "version"}) {
    std::vector<std::string>& command = commands.emplace_back();
    std::istringstream words(verb);
    for (std::string word; words >> word;) command.push_back(word);
    command.emplace_back("--help");
  }
  for (const auto& command : commands) {
    std::string line;
    for (const std::string& word : command) line += " " + word;
    CAPTURE(line);
    const Ending lost = run(directory, command, "/dev/full");
    CHECK(lost.code == kIo);
    CHECK(times_in("cannot write", lost.said) == 1);
    if (command.back() != "--help") continue;
    CHECK(run(directory, command, "/dev/null").code == kOk);
  }
  CHECK(run(directory, {"pretrain", file}, "/dev/full").code == kOk);  // prints nothing on standard output
}

TEST_CASE("A program without /proc says that it cannot find its own path", "[unit][process]") {
  const TemporaryDirectory directory;
  tiny(directory, "run");
  const Ending ending = run(directory, {"pretrain", "none.json"}, "/dev/null", [] {
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("none", "/proc", "tmpfs", 0, nullptr) != 0) {
      _exit(126);
    }
  });
  if (ending.code == 126) BERT_SKIP("hiding /proc needs root");
  CHECK(ending.code == kIo);
  CHECK_THAT(ending.said, Contains("bert pretrain: ") && Contains("/proc/self/exe"));
}

TEST_CASE("bert doctor survives a library that kills the process that loads it", "[unit][process]") {
  const TemporaryDirectory directory;
  tiny(directory, "run");
  const std::string program = directory.path("bert"), report = directory.path("report");
  std::filesystem::copy_file(BERT_EXECUTABLE, program);
  const auto library = std::filesystem::path(BERT_EXECUTABLE).parent_path() / "libbert.so";
  std::filesystem::copy_file(library, directory.path("libbert.so"));
  std::filesystem::resize_file(directory.path("libbert.so"), 1 << 20);  // truncated, as by a full disk
  std::ofstream(report).close();
  const Ending ending =
      run(directory, {"doctor"}, report.c_str(), [&] { execl(program.c_str(), program.c_str(), "doctor", nullptr); });
  CHECK(ending.code == kInputMissing);
  CHECK_THAT(read_file(report), Contains("ok    checksum") && Contains("BAD   LibTorch") && Contains("Bus error") &&
                                    Contains("run app/setup.sh again"));
}

TEST_CASE("A verb whose library is absent ends with 66 and the remedy", "[unit][process]") {
  const TemporaryDirectory directory;
  tiny(directory, "run");
  const std::string program = directory.path("bert");
  std::filesystem::copy_file(BERT_EXECUTABLE, program);
  const Ending ending =
      run(directory, {"predict"}, "/dev/null", [&] { execl(program.c_str(), program.c_str(), "predict", nullptr); });
  CHECK(ending.code == kInputMissing);
  CHECK_THAT(ending.said, Contains("bert predict: cannot load LibTorch: ") && Contains("libbert.so") &&
                              Contains("run app/setup.sh again"));
}

TEST_CASE("A deleted current directory is reported before LibTorch is loaded", "[unit][process]") {
  const TemporaryDirectory directory;
  tiny(directory, "run");
  const std::string gone = directory.path("gone");
  for (const char* verb : {"doctor", "version", "pretrain"}) {
    const Ending ending = run(directory, {verb}, "/dev/null", [&] {
      std::filesystem::create_directory(gone);
      std::filesystem::current_path(gone);
      std::filesystem::remove(gone);
    });
    CHECK(ending.code == kIo);
    CHECK_THAT(ending.said, Contains("the current directory is gone"));
  }
}

TEST_CASE("Too little memory ends with 71 and a sentence", "[unit][process]") {
  const TemporaryDirectory directory;
  PretrainConfig config = tiny(directory, "run");
  config.model.vocab_size = 1 << 20;
  config.model.hidden_size = 4096;  // the word embeddings alone take 16 GiB
  config.model.intermediate_size = 64;
  const std::string file = directory.path("run.json");
  std::ofstream(file) << to_json(config);
  const Ending ending = run(directory, {"pretrain", file}, "/dev/null", [] {
    const rlimit limit{rlim_t{8} << 30, rlim_t{8} << 30};
    setrlimit(RLIMIT_AS, &limit);
  });
  CHECK(ending.code == kOutOfMemory);
  CHECK_THAT(ending.said,
             Contains("bert pretrain: out of memory") && Contains("lower micro_batch_size") && !Contains("frame #"));
}
