// Deaths of a rank of `bert pretrain` in each of its phases: the end of the other ranks, and the time until they are
// gone.
#include <fmt/format.h>
#include <sys/prctl.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <set>

#include "app/config/pretrain_config.h"
#include "app/launcher/store/store_server.h"
#include "app/system/exit_codes.h"
#include "tests/places.h"
#include "tests/support/rank_processes.h"
#include "tests/support/tiny_pretraining.h"
// The last include: it includes Catch2.
#include "tests/support/launcher_testing.h"

using namespace bert;
using namespace bert::testing;

namespace {

constexpr int kThreeRanks = 3;

}  // namespace

TEST_CASE("100 deaths over the phases of a run: the others are gone within a second, nothing is damaged", "[slow]") {
  using Clock = std::chrono::steady_clock;
  const TemporaryDirectory directory;
  PretrainConfig config = tiny(directory, "run");
  config.global_batch_size = 12;  // a micro-batch for each rank
  config.evaluate_every = 2;
  config.checkpoint_every = 2;
  config.max_steps = 1000;
  const std::string file = directory.path("run.json");
  std::ofstream(file) << to_json(config);
  setenv("OMP_NUM_THREADS", "1", 1);
  const std::vector<std::string> phases = {"joining", "forward",    "backward",   "reduction of gradients",
                                           "update",  "evaluation", "checkpoint", "checkpoint.write"};
  std::map<std::string, std::vector<double>> seconds;
  std::vector<double> all;
  for (int i = 0; i < 100; ++i) {
    const std::string& phase = phases[static_cast<size_t>(i) % phases.size()];
    const bool chief_only = phase == "checkpoint.write";
    const int rank = chief_only ? 0 : i / static_cast<int>(phases.size()) % kThreeRanks;
    const int count = phase == "joining" ? 1 : 1 + i % 3;
    CAPTURE(i, phase, rank, count);
    Launcher launcher(
        {"--standalone", "--nproc-per-node", std::to_string(kThreeRanks), BERT_EXECUTABLE, "pretrain", file},
        [&] { setenv("BERT_FAIL_POINT", fmt::format("{}:{}@{}", phase, count, rank).c_str(), 1); }, BERTRUN_EXECUTABLE);
    std::vector<pid_t> pids;
    const auto begin = Clock::now();
    while (pids.size() < kThreeRanks && !launcher.ended() && Clock::now() - begin < std::chrono::minutes(1))
      pids = children_named("bert", launcher.pid());
    REQUIRE(pids.size() == kThreeRanks);
    while (std::ranges::all_of(pids, alive)) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    const auto death = Clock::now();
    while (std::ranges::any_of(pids, alive)) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    const double took = std::chrono::duration<double>(Clock::now() - death).count();
    seconds[phase].push_back(took);
    all.push_back(took);
    CHECK(launcher.wait() == 128 + SIGKILL);
    CHECK(launcher.err().find(fmt::format("rank {} (local rank {}, ", rank, rank)) != std::string::npos);
    CHECK_THAT(launcher.err(), Contains("(SIGKILL), in phase " + (chief_only ? "checkpoint" : phase)));
  }
  for (auto& [phase, values] : seconds) {
    std::ranges::sort(values);
    WARN(phase << ": " << values[values.size() / 2] << " s (median), " << values.back() << " s (longest)");
  }
  std::ranges::sort(all);
  CHECK(all[98] <= 1);
  // The run directory of the dead ranks can be resumed.
  config.stop_at_step = 100;
  std::ofstream(file) << to_json(config);
  Launcher last(
      {"--standalone", "--nproc-per-node", std::to_string(kThreeRanks), BERT_EXECUTABLE, "pretrain", file}, [] {},
      BERTRUN_EXECUTABLE);
  CHECK(last.wait() == kOk);
}

TEST_CASE("error.json says where in training a rank was that was killed", "[distributed]") {
  const TemporaryDirectory directory;
  PretrainConfig config = tiny(directory, "run");
  config.checkpoint_every = 1;
  config.max_steps = 1000;
  const std::string file = directory.path("run.json"), own = directory.path("own.json");
  std::ofstream(file) << to_json(config);
  setenv("OMP_NUM_THREADS", "1", 1);
  for (const auto& [phase, collective] : {std::pair{"forward", "all_reduce of Long [1]"},
                                          {"reduction of gradients", "all_reduce of Float ["},
                                          {"checkpoint", "all_reduce of "}}) {
    CAPTURE(phase);
    Launcher launcher(
        {"--standalone", "--nproc-per-node", "2", "--log-dir", directory.path("logs"), "--local-addr", "here",
         BERT_EXECUTABLE, "pretrain", file},
        [&, name = phase] {
          setenv("BERT_FAIL_POINT", fmt::format("{}:2@1", name).c_str(), 1);
          setenv("TORCHELASTIC_ERROR_FILE", own.c_str(), 1);
        },
        BERTRUN_EXECUTABLE);
    CHECK(launcher.wait() == 128 + SIGKILL);
    CAPTURE(launcher.err());
    const auto error = json_of(own);
    CHECK(error.at("rank") == 1);
    CHECK(error.at("host") == "here");
    CHECK(error.at("signal") == "SIGKILL");
    CHECK(error.at("phase") == phase);
    CHECK_THAT(error.at("last_collective").get<std::string>(), Contains(collective));
    const std::string line = fmt::format(
        "rank 1 (local rank 1, host here, pid {}) was killed by signal 9 (SIGKILL), "
        "in phase {}, last collective {}",
        error.at("pid").get<int64_t>(), phase, error.at("last_collective").get<std::string>());
    CHECK_THAT(launcher.err(), Contains(line));
    CHECK(json_of(only_file(directory.path("logs"), "1/error.json")) == error);
    std::filesystem::remove_all(directory.path("logs"));
  }
}

TEST_CASE("A job that bertrun restarts ends with the bytes of one that was not disturbed", "[distributed]") {
  const TemporaryDirectory directory;
  setenv("OMP_NUM_THREADS", "1", 1);
  std::vector<std::string> weights;
  for (const bool disturbed : {false, true}) {
    PretrainConfig config = tiny(directory, disturbed ? "disturbed" : "quiet");
    const std::string file = config.run_directory + ".json";
    std::ofstream(file) << to_json(config);
    Launcher launcher(
        {"--standalone", "--nproc-per-node", "2", "--max-restarts", "1", BERT_EXECUTABLE, "pretrain", file},
        [&] {
          // In the tenth of twelve steps, after the checkpoint of step 8: a restarted rank has four steps to go.
          if (disturbed) setenv("BERT_FAIL_POINT", "train.step:10@1", 1);
        },
        BERTRUN_EXECUTABLE);
    CHECK(launcher.wait() == kOk);
    CAPTURE(launcher.err());
    CHECK((launcher.err().find("restarting all ranks (1 of 1)") != std::string::npos) == disturbed);
    weights.push_back(read_file(config.run_directory + "/checkpoints/step-00000012/model.safetensors"));
  }
  CHECK(!weights[0].empty());
  CHECK(weights[0] == weights[1]);
}

TEST_CASE("A rank that is stopped ends the job a second after the timeout at most, and is named", "[slow]") {
  using Clock = std::chrono::steady_clock;
  setenv("OMP_NUM_THREADS", "1", 1);
  for (const int stopped : {0, 1, 2}) {
    CAPTURE(stopped);
    const TemporaryDirectory directory;
    PretrainConfig config = tiny(directory, "run");
    config.global_batch_size = 12;
    config.max_steps = 1'000'000;
    config.checkpoint_every = 0;
    config.distributed.timeout_seconds = 4;
    const std::string file = directory.path("run.json");
    std::ofstream(file) << to_json(config);
    Launcher launcher(
        {"--standalone", "--nproc-per-node", std::to_string(kThreeRanks), BERT_EXECUTABLE, "pretrain", file}, [] {},
        BERTRUN_EXECUTABLE);
    const std::string metrics = config.run_directory + "/metrics.jsonl";
    REQUIRE(eventually([&] { return std::filesystem::exists(metrics) && std::filesystem::file_size(metrics) > 0; }));
    const std::vector<pid_t> pids = children_named("bert", launcher.pid());
    REQUIRE(pids.size() == kThreeRanks);
    const auto start = Clock::now();
    for (const pid_t pid : pids) {
      const std::string environment = '\0' + read_file("/proc/" + std::to_string(pid) + "/environ");
      const std::string rank = std::string(1, '\0') + "RANK=" + std::to_string(stopped) + std::string(1, '\0');
      if (environment.find(rank) != std::string::npos) kill(pid, SIGSTOP);
    }
    CHECK(launcher.wait() == kPeerFailure);
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    WARN("ended after " << seconds << " s");
    CHECK(seconds >= 3.9);
    CHECK(seconds <= 5);
    CHECK(launcher.err().find("rank " + std::to_string(stopped) + " does not respond") != std::string::npos);
    CHECK(std::ranges::none_of(pids, alive));
  }
}

TEST_CASE("A run that is to save without its store writes the checkpoint and ends as one that has lost others",
          "[distributed]") {
  const TemporaryDirectory directory;
  PretrainConfig config = tiny(directory, "run");
  config.max_steps = 1'000'000;
  config.checkpoint_every = 0;
  config.log_every = 1;
  const std::string file = directory.path("run.json"), metrics = config.run_directory + "/metrics.jsonl";
  std::ofstream(file) << to_json(config);
  // A store in a process of its own takes the place of bertrun's, which ends with its ranks.
  const pid_t store = fork();
  if (store == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    EventLoop loop;
    StoreServer server(loop, {"127.0.0.1", 0});
    server.start_round(2);
    std::ofstream(directory.path("port")) << server.endpoint().port << std::endl;
    for (;;) loop.run_once();
  }
  REQUIRE(eventually([&] { return !pids_in(directory.path("port")).empty(); }));
  const std::string port = std::to_string(pids_in(directory.path("port")).front());
  const auto rank = [&](const std::string& number) {
    return std::make_unique<Launcher>(
        std::vector<std::string>{"pretrain", file},
        [&] {
          for (const auto& [name, value] : {std::pair<const char*, std::string>{"RANK", number},
                                            {"LOCAL_RANK", number},
                                            {"WORLD_SIZE", "2"},
                                            {"LOCAL_WORLD_SIZE", "2"},
                                            {"MASTER_ADDR", "127.0.0.1"},
                                            {"MASTER_PORT", port},
                                            {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                            {"OMP_NUM_THREADS", "1"}})
            setenv(name, value.c_str(), 1);
        },
        BERT_EXECUTABLE);
  };
  const std::unique_ptr<Launcher> first = rank("0"), second = rank("1");
  const bool begun =
      eventually([&] { return std::filesystem::exists(metrics) && std::filesystem::file_size(metrics) > 0; });
  kill(store, SIGKILL);
  waitpid(store, nullptr, 0);
  CAPTURE(first->err(), second->err());
  REQUIRE(begun);
  first->signal(SIGTERM);
  second->signal(SIGTERM);
  const std::set<int> codes = {first->wait(), second->wait()};
  CHECK(codes.contains(kPeerFailure));
  CHECK_FALSE(only_file(config.run_directory, "MANIFEST.json").empty());
}
