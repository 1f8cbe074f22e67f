// What goes wrong with the device ends a program with the documented exit code and a sentence, and never by a signal.
#include <c10/util/Exception.h>
#include <c10/util/Logging.h>  // it defines CHECK too

#include <csignal>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "app/config/pretrain_config.h"
#include "app/system/exit_codes.h"
#include "app/system/torch_errors.h"
#include "tests/support/device_under_test.h"
#include "tests/support/random_checkpoint.h"
#include "tests/support/tiny_pretraining.h"
// The last include: it includes Catch2.
#include "tests/null_device/tests/run_testing.h"

using namespace bert;
using namespace bert::testing;

namespace {

PretrainConfig on_cuda(const TemporaryDirectory& directory, const std::string& name) {
  PretrainConfig config = tiny(directory, name);
  config.device = DeviceChoice::kCuda;
  config.max_steps = 2;
  config.checkpoint_every = config.log_every = 1;
  config.report = {"jsonl"};
  return config;
}

/// How a program ended: its exit code, and the last line that it said.
struct Ending {
  int code;
  std::string said;
};

Ending ending_of(const std::vector<std::string>& arguments, const Variables& variables) {
  Twin twin("bert", arguments, variables);
  const int code = twin.wait();
  std::string text = twin.err();
  while (text.ends_with('\n')) text.pop_back();
  return {code, text.substr(text.rfind('\n') + 1)};
}

/// The lines of `bert doctor` about GPUs.
std::pair<int, std::string> doctor(const Variables& variables) {
  Twin twin("bert", {"doctor"}, variables);
  const int code = twin.wait();
  std::istringstream lines(twin.out());
  std::string about_gpus;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("GPU  ") != std::string::npos) about_gpus += line + "\n";
  }
  return {code, about_gpus};
}

int64_t newest_step(const PretrainConfig& config) {
  const std::filesystem::path latest = config.run_directory + "/latest";
  if (!std::filesystem::is_symlink(latest)) return 0;
  const std::string name = std::filesystem::read_symlink(latest).filename();
  return std::stoll(name.substr(name.find('-') + 1));
}

}  // namespace

TEST_CASE("bert doctor names every device with its memory, and what is wrong", "[cuda][null_device]") {
  BERT_DEVICE_OR_SKIP(device);
  const std::string name = "device of host memory";
  CHECK(doctor({{"NULL_DEVICE_MEMORY_MB", "4096"}}) ==
        std::pair(int{kOk}, "ok    GPU          CUDA device 0, " + name +
                                ", computes; 4.3 GB of memory, 4.3 GB free\n"
                                "ok    GPU          CUDA device 1, " +
                                name + ", computes; 4.3 GB of memory, 4.3 GB free\n"));
  CHECK(
      doctor({{"NULL_DEVICE_DRIVER", "12080"}}) ==
      std::pair(int{kInputMissing},
                std::string("BAD   GPU          no CUDA device: the NVIDIA driver is too old: it is for CUDA 12.8, and "
                            "LibTorch is for 13.0 -> install a newer driver\n")));
  CHECK(doctor({{"NULL_DEVICE_DRIVER", "0"}}) ==
        std::pair(int{kOk}, std::string("note  GPU          no CUDA device: there is no NVIDIA driver\n")));
  CHECK(doctor({{"NULL_DEVICE_COUNT", "0"}}) ==
        std::pair(int{kOk}, std::string("note  GPU          no CUDA device: the driver sees none\n")));
  CHECK(doctor({{"CUDA_VISIBLE_DEVICES", ""}}) ==
        std::pair(int{kOk}, std::string("note  GPU          no CUDA device: CUDA_VISIBLE_DEVICES=\"\" names none\n")));
  CHECK(doctor({{"CUDA_VISIBLE_DEVICES", "MIG-1"}, {"NULL_DEVICE_MEMORY_MB", "7000"}}) ==
        std::pair(int{kOk}, "ok    GPU          CUDA device 0, " + name +
                                " MIG 1g.18gb, computes; 1.0 GB of memory, 1.0 GB free\n"));
  const auto [code, said] = doctor({{"NULL_DEVICE_FAIL", "1:46"}});
  CHECK(code == kInputMissing);
  CHECK_THAT(said, Contains("BAD   GPU          CUDA device 1, " + name +
                            ", does not compute: CUDA error: CUDA-capable device(s) is/are busy or unavailable -> "));
}

TEST_CASE("Without a usable device, device cuda ends with 78 and the reason, and auto takes the CPU",
          "[cuda][null_device]") {
  BERT_DEVICE_OR_SKIP(device);
  const TemporaryDirectory directory;
  const std::string checkpoint = write_random_checkpoint(directory);
  const PretrainConfig config = on_cuda(directory, "run");
  const std::string file = file_of(config), sentence = "device cuda: no usable CUDA device: ";
  const std::vector<std::pair<Variables, std::string>> cases = {
      {{{"NULL_DEVICE_COUNT", "0"}}, "the driver sees none"},
      {{{"NULL_DEVICE_DRIVER", "12080"}},
       "the NVIDIA driver is too old: it is for CUDA 12.8, and LibTorch is for 13.0; install a newer driver"},
      {{{"CUDA_VISIBLE_DEVICES", ""}}, "CUDA_VISIBLE_DEVICES=\"\" names none"},
      {{{"CUDA_VISIBLE_DEVICES", "GPU-77"}}, "CUDA_VISIBLE_DEVICES=\"GPU-77\" names none"}};
  for (const auto& [variables, reason] : cases) {
    CAPTURE(reason);
    const Ending ending = ending_of({"pretrain", file}, variables);
    CHECK(ending.code == kBadConfiguration);
    CHECK(ending.said == "bert pretrain: " + sentence + reason + "; `bert doctor` says what is there");
  }
  const auto& [variables, reason] = cases[1];
  const Ending predict =
      ending_of({"predict", "--checkpoint", checkpoint, "--device", "cuda", "the [MASK] sat."}, variables);
  CHECK(predict.code == kBadConfiguration);
  CHECK_THAT(predict.said, Contains("bert predict: " + sentence + reason));
  CHECK(ending_of({"predict", "--checkpoint", checkpoint, "--device", "auto", "the [MASK] sat."}, variables).code ==
        kOk);
}

TEST_CASE("CUDA_VISIBLE_DEVICES chooses the device, by number, UUID and slice of MIG", "[cuda][null_device]") {
  BERT_DEVICE_OR_SKIP(device);
  const TemporaryDirectory directory;
  const std::string checkpoint = write_random_checkpoint(directory);
  std::string first;
  for (const char* visible : {"1", "GPU-00000000-0000-0000-0000-000000000001", "MIG-1", "1,0"}) {
    CAPTURE(visible);
    Twin twin("bert", {"predict", "--checkpoint", checkpoint, "--device", "cuda", "the [MASK] sat."},
              {{"CUDA_VISIBLE_DEVICES", visible}, {"NULL_DEVICE_REPORT", directory.path("counts")}});
    REQUIRE(twin.wait() == kOk);
    if (first.empty()) first = twin.out();
    CHECK(twin.out() == first);
    CHECK(nlohmann::json::parse(read_file(directory.path("counts"))).at("context") == 1);
  }
  // A program that is to compute on the CPU does not start CUDA.
  Twin twin("bert", {"predict", "--checkpoint", checkpoint, "--device", "cpu", "the [MASK] sat."},
            {{"NULL_DEVICE_REPORT", directory.path("counts")}});
  REQUIRE(twin.wait() == kOk);
  CHECK(nlohmann::json::parse(read_file(directory.path("counts"))).empty());
}

TEST_CASE("A device that fails in the middle ends a run with 70 and a sentence, and its last checkpoint stays",
          "[cuda][null_device]") {
  BERT_DEVICE_OR_SKIP(device);
  const TemporaryDirectory directory;
  const std::string counts = directory.path("counts");
  const PretrainConfig whole = on_cuda(directory, "whole");
  REQUIRE(Twin("bert", {"pretrain", file_of(whole)}, {{"NULL_DEVICE_REPORT", counts}}).wait() == kOk);
  const int64_t launches = nlohmann::json::parse(read_file(counts)).at("launch");
  const std::vector<std::pair<const char*, const char*>> errors = {
      {"710", "device-side assert triggered"},
      {"46", "CUDA-capable device(s) is/are busy or unavailable"},
      {"719", "unspecified launch failure"},
      {"999", "unknown error"}};
  constexpr int64_t kPlaces = 6;
  for (int64_t i = 0; i < kPlaces; ++i) {
    const auto& [number, text] = errors[static_cast<size_t>(i) % errors.size()];
    const int64_t place = 1 + i * (launches - 1) / kPlaces;
    CAPTURE(place, launches, text);
    const PretrainConfig config = on_cuda(directory, "run" + std::to_string(i));
    const std::string fail = std::to_string(place) + ":" + number, file = file_of(config);
    const Ending ending = ending_of({"pretrain", file}, {{"NULL_DEVICE_FAIL", fail}});
    CHECK(ending.code == kInternal);
    CHECK_THAT(ending.said, Contains(std::string("bert pretrain: CUDA error: ") + text + ". ") &&
                                Contains("goes on from its newest checkpoint"));
    const int64_t step = newest_step(config);
    CHECK(step < 2);
    if (i + 1 < kPlaces) continue;
    REQUIRE(step == 1);
    const std::vector<nlohmann::json> attempts = json_lines(read_file(config.run_directory + "/attempts.jsonl"));
    CHECK(attempts.back().at("exit_code") == kInternal);
    CHECK(attempts.back().at("reason") == std::string("CUDA error: ") + text);
    REQUIRE(Twin("bert", {"pretrain", file}).wait() == kOk);  // the same command goes on
    for (const char* name : {"/latest/model.safetensors", "/latest/optimizer.safetensors"})
      CHECK(read_file(config.run_directory + name) == read_file(whole.run_directory + name));
  }
}

namespace {

/// How a process ends in which `fail` runs on a thread that catches nothing: its exit code or 1000 + signal, and what it
/// says.
std::pair<int, std::string> end_by_thread(const std::function<void()>& fail) {
  const TemporaryDirectory directory;
  const std::string said = directory.path("said");
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(creat(said.c_str(), 0600), STDERR_FILENO);
    std::signal(SIGABRT, SIG_DFL);  // not Catch2's handler
    catch_errors_of_threads();
    std::thread(fail).join();
    _exit(0);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status), read_file(said)};
}

}  // namespace

TEST_CASE("A device's error on a thread of LibTorch ends the process as on the main thread", "[cuda][null_device]") {
  BERT_DEVICE_OR_SKIP(device);
  const auto throws = [](const std::string& message) { return [=] { throw c10::Error(message); }; };
  const auto [code, said] = end_by_thread(throws(
      "Process group watchdog thread terminated with exception: CUDA error: device-side assert triggered\nSearch"));
  CHECK(code == kInternal);
  CHECK_THAT(said, Contains("bert: CUDA error: device-side assert triggered. ") && !Contains("Search"));
  CHECK(end_by_thread(throws("another error")).first == 1000 + SIGABRT);
  CHECK(end_by_thread([] { throw std::runtime_error("CUDA error: "); }).first == 1000 + SIGABRT);
}

TEST_CASE("A device that fails ends every other verb with 70 and a sentence", "[cuda][null_device]") {
  BERT_DEVICE_OR_SKIP(device);
  const TemporaryDirectory directory;
  const std::string checkpoint = write_random_checkpoint(directory), file = file_of(on_cuda(directory, "run"));
  for (const auto& [verb, arguments] : std::vector<std::pair<std::string, std::vector<std::string>>>{
           {"predict", {"--checkpoint", checkpoint, "--device", "cuda", "the [MASK] sat."}},
           {"benchmark", {"step", "--config", file, "--device", "cuda", "--batch", "1", "--length", "8"}}}) {
    for (const char* fail : {"1:710", "6:719"}) {
      CAPTURE(verb, fail);
      std::vector<std::string> command = arguments;
      command.insert(command.begin(), verb);
      const Ending ending = ending_of(command, {{"NULL_DEVICE_FAIL", fail}});
      CHECK(ending.code == kInternal);
      CHECK_THAT(ending.said, Contains("bert " + verb + ": CUDA error: "));
    }
  }
}
