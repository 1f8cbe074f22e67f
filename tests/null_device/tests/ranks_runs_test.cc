// bertrun with several ranks on devices, which reduce over the NCCL of this folder: the losses of ranks on the CPU, the
// device of each rank, and ranks that die, stop, hang or lose their device.
#include <c10/util/Logging.h>  // it defines CHECK too
#include <signal.h>

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "app/config/finetune_config.h"
#include "app/config/pretrain_config.h"
#include "app/system/exit_codes.h"
#include "tests/support/device_under_test.h"
#include "tests/support/rank_processes.h"
#include "tests/support/tiny_finetuning.h"
#include "tests/support/tiny_pretraining.h"
// The last include: it includes Catch2.
#include "tests/null_device/tests/run_testing.h"

using namespace bert;
using namespace bert::testing;

namespace {

/// Steps of eight micro-batches of two sequences.
PretrainConfig of_ranks(const TemporaryDirectory& directory, const std::string& name) {
  PretrainConfig config = tiny(directory, name);
  config.device = DeviceChoice::kCuda;
  config.max_steps = 4;
  config.micro_batch_size = 2;
  config.global_batch_size = 16;
  config.log_every = 1;
  config.checkpoint_every = 2;
  config.report = {"jsonl"};
  config.model.attention_probs_dropout_prob = 0;
  config.distributed.timeout_seconds = 20;
  return config;
}

/// `bertrun OPTIONS --nproc-per-node RANKS bert ...`; `script`: a line of the shell that each rank runs first.
struct Job {
  int ranks = 2;
  Variables variables = {};
  std::vector<std::string> options = {};
  std::string script = {};

  template <class Config>
  [[nodiscard]] std::unique_ptr<Twin> start(const Config& config) const {
    const std::string bert = std::string(BERT_NULL_DEVICE) + "/bin/bert";
    std::vector<std::string> arguments = {"--standalone", "--nproc-per-node", std::to_string(ranks)};
    arguments.insert(arguments.end(), options.begin(), options.end());
    if (!script.empty()) arguments.insert(arguments.end(), {"sh", "-c", script + "; exec \"$0\" \"$@\""});
    arguments.insert(arguments.end(),
                     {bert, std::is_same_v<Config, FinetuneConfig> ? "finetune" : "pretrain", file_of(config)});
    Variables all = variables;
    all.insert({"NULL_DEVICE_COUNT", "4"});
    return std::make_unique<Twin>("bertrun", arguments, all);
  }
};

/// Runs the job to its end on the CPU over Gloo and on devices over NCCL, and returns the first difference.
std::string difference_to_gloo(PretrainConfig config, int ranks, Tolerance limit = kLosses) {
  const std::string name = config.run_directory;
  for (const char* device : {"cpu", "cuda"}) {
    config.device = value_named<DeviceChoice>(device).value();
    config.run_directory = name + "-" + device;
    const auto job = Job{.ranks = ranks}.start(config);
    const int code = job->wait();
    CAPTURE(job->err());
    REQUIRE(code == kOk);
  }
  return difference_of_runs(name + "-cuda", name + "-cpu", limit);
}

/// Waits until the first line of metrics.jsonl is there.
bool has_begun(Twin& job, const PretrainConfig& config) {
  return job.until([&] { return !metrics_of(config.run_directory).empty(); });
}

/// The process of a rank.
pid_t process_of(const Twin& job, int rank) {
  const std::string wanted = std::string(1, '\0') + "RANK=" + std::to_string(rank) + std::string(1, '\0');
  for (const pid_t pid : children_named("bert", job.pid())) {
    if (('\0' + read_file("/proc/" + std::to_string(pid) + "/environ")).find(wanted) != std::string::npos) return pid;
  }
  return -1;
}

/// Sets a variable in the process of one rank.
std::string in_rank(int rank, const std::string& assignment) {
  return "[ \"$RANK\" != " + std::to_string(rank) + " ] || export " + assignment;
}

}  // namespace

TEST_CASE("Ranks on devices have the losses of ranks on the CPU", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  const TemporaryDirectory directory;
  PretrainConfig four = of_ranks(directory, "four");
  four.max_steps = 2;
  four.evaluate_every = 2;
  CHECK(difference_to_gloo(four, 4) == "");
  PretrainConfig sharded = of_ranks(directory, "sharded");
  sharded.distributed.shard_optimizer_state = true;
  sharded.optimizer.type = OptimizerType::kLamb;
  CHECK(difference_to_gloo(sharded, 2) == "");
}

TEST_CASE("Ranks on devices reduce in half precision as over Gloo", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  const TemporaryDirectory directory;
  for (const auto& [compression, limit] : {std::pair{"fp16", kHalf}, std::pair{"bf16", kBFloat16}}) {
    CAPTURE(compression);
    PretrainConfig config = of_ranks(directory, compression);
    config.max_steps = 2;
    config.precision = value_named<Precision>(compression).value();
    config.distributed.compression = value_named<GradientCompression>(compression).value();
    CHECK(difference_to_gloo(config, 2, limit) == "");
  }
}

TEST_CASE("Ranks on devices with graphs end in the bytes of ranks without", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  const TemporaryDirectory directory;
  for (const char* compression : {"none", "bf16"}) {
    CAPTURE(compression);
    std::vector<std::string> bytes;
    for (const CudaGraphs graphs : {CudaGraphs::kOff, CudaGraphs::kOn}) {
      PretrainConfig config =
          of_ranks(directory, std::string(compression) + (graphs == CudaGraphs::kOn ? "-on" : "-off"));
      config.micro_batch_tokens = 60;
      config.optimizer.average = GradientAverage::kMaskedTokens;
      config.precision = Precision::kBf16;
      config.distributed.compression = value_named<GradientCompression>(compression).value();
      config.cuda_graphs = graphs;
      const auto job = Job{.ranks = 2}.start(config);
      const int code = job->wait();
      CAPTURE(job->err());
      REQUIRE(code == kOk);
      std::string& all = bytes.emplace_back();
      for (const char* file : {"/latest/model.safetensors", "/latest/optimizer.safetensors"})
        all += read_file(config.run_directory + file);
      const bool replayed = read_file(config.run_directory + "/run.log").find(" replays of ") != std::string::npos;
      CHECK(replayed == (graphs == CudaGraphs::kOn));
    }
    CHECK(bytes[0] == bytes[1]);
  }
}

TEST_CASE("Fine-tuning on two devices has the losses of two ranks on the CPU", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  const TemporaryDirectory directory;
  FinetuneConfig config = tiny_task_of("text-classification", directory);
  config.micro_batch_size = 2;
  config.log_every = 1;
  config.report = {"jsonl"};
  config.model.attention_probs_dropout_prob = 0;
  for (const char* on : {"cpu", "cuda"}) {
    config.device = value_named<DeviceChoice>(on).value();
    config.run_directory = directory.path(on);
    const auto job = Job().start(config);
    const int code = job->wait();
    CAPTURE(job->err());
    REQUIRE(code == kOk);
  }
  CHECK(difference_of_runs(directory.path("cuda"), directory.path("cpu"), kLosses) == "");
}

TEST_CASE("More ranks than devices are refused over NCCL, and share them over Gloo", "[cuda][null_device]") {
  BERT_DEVICE_OR_SKIP(device);
  const TemporaryDirectory directory;
  PretrainConfig config = of_ranks(directory, "run");
  config.max_steps = 1;
  const auto refused = Job{.ranks = 3, .variables = {{"NULL_DEVICE_COUNT", "2"}}}.start(config);
  CHECK(refused->wait() == kBadConfiguration);
  CHECK_THAT(
      refused->err(),
      Contains("ranks 0 and 2 would share the GPU at 0000:10:00 of ") &&
          Contains("where each sees 2 GPUs and 3 ranks run: NCCL needs a GPU for each rank of a machine; start at "
                   "most as many ranks there as it has GPUs (--nproc-per-node gpu), or choose "
                   "distributed.backend=gloo"));
  config.distributed.backend = CollectiveBackend::kGloo;
  const Variables variables = {{"NULL_DEVICE_COUNT", "2"}, {"NULL_DEVICE_REPORT", directory.path("counts-%p")}};
  const auto job = Job{.ranks = 3, .variables = variables}.start(config);
  const int code = job->wait();
  CAPTURE(job->err());
  REQUIRE(code == kOk);
  // Each rank has used one device. That it is the one of its LOCAL_RANK is a rule of the device itself.
  int reports = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory.path())) {
    if (entry.path().filename().string().find("counts-") != 0) continue;
    ++reports;
    CHECK(nlohmann::json::parse(read_file(entry.path())).value("context", 0) == 1);
  }
  CHECK(reports == 3);
}

TEST_CASE("A rank on a device that is killed is named, and the restarted job ends in the same bytes", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  const TemporaryDirectory directory;
  const PretrainConfig quiet = of_ranks(directory, "quiet"), disturbed = of_ranks(directory, "disturbed");
  REQUIRE(Job().start(quiet)->wait() == kOk);
  const auto job =
      Job{.variables = {{"BERT_FAIL_POINT", "backward:10@1"}}, .options = {"--max-restarts", "1"}}.start(disturbed);
  const int code = job->wait();
  CAPTURE(job->err());
  CHECK(code == kOk);
  CHECK_THAT(job->err(), Contains("rank 1 (local rank 1, ") &&
                             Contains("was killed by signal 9 (SIGKILL), in phase backward, last collective ") &&
                             Contains("restarting all ranks (1 of 1)"));
  for (const char* file : {"/latest/model.safetensors", "/latest/optimizer.safetensors"})
    CHECK(read_file(quiet.run_directory + file) == read_file(disturbed.run_directory + file));
}

TEST_CASE("A rank on a device that is stopped is named after the timeout", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  const TemporaryDirectory directory;
  PretrainConfig config = of_ranks(directory, "stopped");
  config.max_steps = 100'000;
  config.checkpoint_every = 0;
  config.distributed.timeout_seconds = 2;
  for (const int stopped : {0, 1}) {
    CAPTURE(stopped);
    const std::string name = "rank " + std::to_string(stopped);
    config.run_directory = directory.path(name);
    const auto job = Job().start(config);
    REQUIRE(has_begun(*job, config));
    const pid_t pid = process_of(*job, stopped);
    REQUIRE(pid > 0);
    kill(pid, SIGSTOP);
    const int code = job->wait();
    CAPTURE(job->err());
    CHECK(code == kPeerFailure);
    CHECK_THAT(job->err(), Contains(name + " does not respond (stopped, dead, or cut off): collective ") &&
                               Contains("; " + name + " (host ") && Contains(" is stopped"));
  }
}

TEST_CASE("A collective in which a device hangs is named after the timeout", "[cuda][null_device]") {
  BERT_DEVICE_OR_SKIP(device);
  const TemporaryDirectory directory;
  PretrainConfig config = of_ranks(directory, "run");
  config.distributed.timeout_seconds = 2;
  const auto job = Job{.script = in_rank(1, "NULL_DEVICE_HANG=12")}.start(config);
  const int code = job->wait();
  CAPTURE(job->err());
  CHECK(code == kPeerFailure);
  CHECK_THAT(job->err(), Contains("bert: collective ") && Contains(" (all_reduce of ") &&
                             Contains("all ranks are in it, so the network between them does not carry it, or a GPU is "
                                      "stuck before it") &&
                             Contains("bertrun: rank "));
}

TEST_CASE("A rank that loses its device ends the job with 70, and is named", "[cuda][null_device]") {
  BERT_DEVICE_OR_SKIP(device);
  const TemporaryDirectory directory;
  for (const auto& [rank, fail] : {std::pair{1, "40:710"}, std::pair{1, "700:719"}, std::pair{0, "1000:999"}}) {
    CAPTURE(rank, fail);
    PretrainConfig config = of_ranks(directory, std::to_string(rank) + "-" + fail);
    config.checkpoint_every = 1;
    const auto job = Job{.script = in_rank(rank, std::string("NULL_DEVICE_FAIL=") + fail)}.start(config);
    const int code = job->wait();
    CAPTURE(job->err());
    CHECK(code == kInternal);
    CHECK_THAT(job->err(), Contains("bertrun: rank " + std::to_string(rank) + " (local rank ") &&
                               Contains("failed with exit code 70, in phase ") &&
                               Contains("InternalError: CUDA error: "));
  }
}

TEST_CASE("A signal to one rank on a device saves a checkpoint, and the run goes on with more ranks or on the CPU",
          "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  const TemporaryDirectory directory;
  PretrainConfig config = of_ranks(directory, "run");
  config.max_steps = 10;
  PretrainConfig whole = config;
  whole.run_directory = directory.path("whole");
  whole.device = DeviceChoice::kCpu;
  REQUIRE(Twin("bert", {"pretrain", file_of(whole)}).wait() == kOk);
  {
    const auto job = Job().start(config);
    REQUIRE(has_begun(*job, config));
    kill(process_of(*job, 1), SIGTERM);
    const int code = job->wait();
    CAPTURE(job->err());
    CHECK(code == kPreempted);
  }
  config.stop_at_step = 9;
  CHECK(Job{.ranks = 4}.start(config)->wait() == kOk);
  config.stop_at_step = 0;
  config.device = DeviceChoice::kCpu;
  CHECK(Twin("bert", {"pretrain", file_of(config)}).wait() == kOk);
  const auto last = [](const PretrainConfig& of) { return metrics_of(of.run_directory).back().at("loss"); };
  CHECK(difference(last(config), last(whole), {.absolute = 0, .relative = 1e-4}) == "");  // launcher/README.md
}
