// A hostile host on the network: it floods the job's port, or knows the traffic but not the token. Needs root and
// iproute2.
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <new>
#include <set>

#include "app/checkpoint/files.h"
#include "app/net/event_loop.h"
#include "app/net/socket.h"
#include "app/system/exit_codes.h"
#include "data/io/descriptor.h"
#include "tests/places.h"
#include "tests/support/wire_testing.h"
// Last, because it includes Catch2.
#include "tests/support/launcher_network_testing.h"

using namespace bert;
using namespace bert::testing;

namespace {

const Endpoint kHost{"10.77.0.1", 29400};

bool host_listens(const Network& network) {
  return network.output(0, "ss -Hltn").find(to_string(kHost)) != std::string::npos;
}

/// A process on another host, killed at the end of the scope.
class Process {
 public:
  Process(const std::function<void()>& enter, const std::function<void()>& run) : pid_(fork()) {
    if (pid_ != 0) return;
    enter();
    run();
    _exit(0);
  }
  ~Process() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

 private:
  pid_t pid_;
};

/// Opens as many idle connections as the descriptor limit allows (less 64). Then opens 1,000 connections a second for
/// 30 s; every other one sends garbage. The oldest connections make room for the new.
class Flood {
 public:
  explicit Flood(const std::function<void()>& enter)
      : progress_(new (mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))
                      Progress),
        process_(enter, [this] { run(); }) {}
  ~Flood() { munmap(progress_, sizeof(Progress)); }
  Flood(const Flood&) = delete;
  Flood& operator=(const Flood&) = delete;

  /// Number of connections that the flood has tried to open.
  [[nodiscard]] int64_t opened() const { return progress_->opened; }
  [[nodiscard]] bool has_idle_ones() const { return progress_->idle; }
  [[nodiscard]] bool ended() const { return progress_->ended; }

 private:
  struct Progress {
    std::atomic<int64_t> opened = 0;
    std::atomic<bool> idle = false, ended = false;
  };

  void run() const {
    // The kernel hands out every second local port first and then searches slowly for another one. This range avoids
    // that.
    std::ofstream("/proc/sys/net/ipv4/ip_local_port_range") << "1024 65535";
    constexpr rlim_t kMostPorts = 30'000;
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    const size_t most = std::min(limit.rlim_cur, kMostPorts) - 64;
    std::deque<Descriptor> open;
    while (open.size() < most) {
      open.push_back(start_connect(kHost));
      ++progress_->opened;
    }
    progress_->idle = true;
    const std::string garbage(100, 'x');  // longer than a greeting
    const auto begin = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < 30'000; ++i) {
      std::this_thread::sleep_until(begin + std::chrono::milliseconds(i));
      // The connection stands by now.
      if (i % 2 == 1) send(open.back().get(), garbage.data(), garbage.size(), MSG_NOSIGNAL);
      open.pop_front();
      open.push_back(start_connect(kHost));
      ++progress_->opened;
    }
    progress_->ended = true;
    pause();  // until the end of the scope
  }

  Progress* progress_;  // shared with the process
  Process process_;
};

/// The number before `reason` in the host's last line about refused connections.
int64_t turned_away(const std::string& errors, const std::string& reason) {
  const size_t line = errors.rfind("turned away ");
  const size_t at = line == std::string::npos ? line : errors.find(" " + reason, line);
  if (at == std::string::npos) return 0;
  const size_t begin = errors.find_last_not_of("0123456789", at - 1) + 1;
  return begin < at ? std::stoll(errors.substr(begin, at - begin)) : 0;
}

/// Resident memory of a process, in KiB.
int64_t resident_kib(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  for (std::string word; file >> word;) {
    if (word != "VmRSS:") continue;
    int64_t value = 0;
    file >> value;
    return value;
  }
  return 0;
}

/// A proxy between an agent and the host. It passes on their bytes. At the same time it opens connections of its own:
/// with garbage, with half a greeting, with recorded bytes of the agent, and with nothing.
class Eavesdropper {
 public:
  Eavesdropper(const std::function<void()>& enter, const Endpoint& here)
      : process_(enter, [here] {
          EventLoop loop;
          const Wire wire(loop, here, kHost);
          std::deque<Descriptor> open;
          size_t round = 0;
          const std::function<void()> attack = [&] {
            const std::vector<std::string> greetings = {std::string(100, 'x'), "bertrun1", wire.to_host, ""};
            const std::string& greeting = greetings[round++ % greetings.size()];
            const int socket = open.emplace_back(start_connect(kHost)).get();
            loop.watch(socket, POLLOUT, [&loop, &open, socket, greeting](short) {
              send(socket, greeting.data(), std::min<size_t>(greeting.size(), 4096), MSG_NOSIGNAL);
              loop.unwatch(socket);
              if (greeting.size() == 8) shutdown(socket, SHUT_RDWR);
            });
            constexpr size_t kMost = 1000;
            if (open.size() > kMost) {
              loop.unwatch(open.front().get());
              open.pop_front();
            }
            loop.after(0.02, attack);
          };
          attack();
          for (;;) loop.run_once();
        }) {}

 private:
  Process process_;
};

}  // namespace

TEST_CASE("a job forms in a flood from another host at most 5 s later than without", "[slow]") {
  const Network network(5);
  if (!network.works()) BERT_SKIP(kSkip);
  const Token token;
  const auto seconds_to_form = [&](bool flooded) {
    const TemporaryDirectory directory;
    const std::string script =
        "echo $RANK >>" + directory.path("ranks") + "; while [ ! -e " + directory.path("go") + " ]; do sleep 0.1; done";
    const auto ranks = [&] { return pids_in(directory.path("ranks")).size(); };
    Launcher first(agent(0, {"--nnodes", "2"}, script), network.enter(0));
    REQUIRE(eventually([&] { return host_listens(network); }));
    std::unique_ptr<Flood> flood;
    if (flooded) {
      flood = std::make_unique<Flood>(network.enter(4));
      REQUIRE(eventually([&] { return flood->has_idle_ones(); }));
      const int64_t idle = flood->opened();
      REQUIRE(eventually([&] { return flood->opened() > idle + 1000; }));
    }
    const auto start = std::chrono::steady_clock::now();
    Launcher second(agent(1, {"--nnodes", "2"}, script), network.enter(1));
    while (ranks() < 4 && !first.ended() && !second.ended()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    CHECK(ranks() == 4);
    while (flood && !flood->ended() && !first.ended()) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    CHECK_FALSE(first.ended());
    std::ofstream(directory.path("go")) << "now";
    CHECK(second.wait() == 0);
    CHECK(first.wait() == 0);
    const int64_t counted = turned_away(first.err(), "connections");
    WARN("formed after " << seconds << " s; of " << (flood ? flood->opened() : 0) << " connections " << counted
                         << " were turned away: " << first.err());
    CHECK((counted > 0) == flooded);
    if (flooded) CHECK(counted > flood->opened() / 2);
    if (flooded) CHECK(turned_away(first.err(), "no bertrun's greeting") > 1000);
    return seconds;
  };
  const double calm = seconds_to_form(false);
  CHECK(seconds_to_form(true) - calm <= 5);
}

TEST_CASE("training goes on in a flood, and the host's memory stays as it is", "[slow]") {
  const Network network(5);
  if (!network.works()) BERT_SKIP(kSkip);
  if (!std::filesystem::exists(BERT_EXECUTABLE)) BERT_SKIP("bert is not built: it needs LibTorch");
  const TemporaryDirectory directory;
  PretrainConfig config = tiny(directory, "run");
  config.max_steps = 2000;
  config.checkpoint_every = 500;
  config.evaluate_every = 500;
  const std::string file = write_config(config);
  const Token token;
  setenv("TORCH_DISTRIBUTED_DEBUG", "DETAIL", 1);  // every collective uses the store, and so the relay
  const auto first = trainer(network, 0, 2, 1, file);
  const auto second = trainer(network, 1, 2, 1, file);
  unsetenv("TORCH_DISTRIBUTED_DEBUG");
  const std::string metrics = config.run_directory + "/metrics.jsonl";
  REQUIRE(eventually([&] { return std::filesystem::exists(metrics) && std::filesystem::file_size(metrics) > 0; }));
  const int64_t before = resident_kib(first->pid());
  REQUIRE(before > 0);
  int64_t most = before;
  bool flooded = false;
  {
    const Flood flood(network.enter(4));
    while (!first->ended()) {
      most = std::max(most, resident_kib(first->pid()));
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      flooded = flooded || first->err().find("turned away") != std::string::npos;
    }
  }
  CHECK(first->wait() == 0);
  CHECK(second->wait() == 0);
  CHECK(flooded);
  CHECK(json_of(config.run_directory + "/summary.json")["steps"] == config.max_steps);
  WARN("the host has " << before << " KiB before the flood, at most " << most << " KiB in it");
  CHECK(most <= before + (8 << 10));  // 256 handshakes with their buffers are less
}

TEST_CASE("training goes on unchanged among clients that replay, send garbage, say nothing, or claim a foreign rank",
          "[slow]") {
  const Network network(4);
  if (!network.works()) BERT_SKIP(kSkip);
  if (!std::filesystem::exists(BERT_EXECUTABLE)) BERT_SKIP("bert is not built: it needs LibTorch");
  const TemporaryDirectory directory;
  PretrainConfig config = tiny(directory, "disturbed");
  config.max_steps = 100'000;
  config.checkpoint_every = 0;
  config.log_every = 1;
  const Token token;
  const auto options = [](int node, const std::string& master) {
    return std::vector<std::string>{"--nnodes",      "2",    "--node-rank",   std::to_string(node),
                                    "--master-addr", master, "--master-port", std::to_string(kHost.port)};
  };
  const std::string file = write_config(config);
  const Eavesdropper eavesdropper(network.enter(2), {"10.77.0.3", kHost.port});
  const auto host = trainer(network, 0, options(0, kHost.host), file);
  REQUIRE(eventually([&] { return host_listens(network); }));
  const auto agent = trainer(network, 1, options(1, "10.77.0.3"), file);
  const bool begun = eventually([&] { return !losses_of(config).empty(); });
  CAPTURE(host->err(), agent->err());
  REQUIRE(begun);
  // Clients claim the place of an existing node, with the token and without it.
  const auto claim = [&](const std::string& secret) {
    auto arguments = options(1, kHost.host);
    arguments.insert(arguments.end(),
                     {"--rdzv-conf", "join_timeout=2", "sh", "-c", "touch " + directory.path("claimed")});
    Launcher impostor(arguments, [&] {
      network.enter(3)();
      setenv(kTokenVariable, secret.c_str(), 1);
    });
    const int code = impostor.wait();
    return std::pair(code, impostor.err());
  };
  const auto [refused, why_refused] = claim(std::string(64, 'd'));
  CHECK(refused == kRefused);
  CHECK_THAT(why_refused, Contains("the host does not accept this agent's token"));
  const auto [taken, why_taken] = claim(kSecret);
  CHECK(taken == kPeerFailure);
  CHECK_THAT(why_taken, Contains("--node-rank 1 is taken by node 1 on host1"));
  CHECK_FALSE(std::filesystem::exists(directory.path("claimed")));
  // The host counts the clients in its log, and the training continues.
  const size_t before = losses_of(config).size();
  const std::vector<std::string> reasons = {"no bertrun's greeting", "closed in the handshake", "wrong token",
                                            "no handshake within 5 s", "not admitted: --node-rank 1 is taken"};
  constexpr int64_t kSome = 20;
  const auto counted = [&](const std::string& reason) {
    return turned_away(host->err(), reason) >= (reason.starts_with("not admitted") ? 1 : kSome);
  };
  for (int i = 0; i < 4; ++i) eventually([&] { return std::ranges::all_of(reasons, counted) || host->ended(); });
  for (const std::string& reason : reasons) {
    CAPTURE(reason, host->err());
    CHECK(counted(reason));
  }
  CHECK(losses_of(config).size() > before);
  host->signal(SIGTERM);
  CHECK(host->wait() == kPreempted);
  CHECK(agent->wait() == kPreempted);
  const std::vector<double> losses = losses_of(config);
  // A run without the hostile host makes the same steps with the same bits.
  const CheckpointEntry checkpoint = list_checkpoints(config.run_directory).back();
  config.stop_at_step = checkpoint.step;
  config.run_directory = directory.path("calm");
  Launcher calm(
      {"--standalone", "--nproc-per-node", "2", BERT_EXECUTABLE, "pretrain", write_config(config)}, [] {},
      BERTRUN_EXECUTABLE);
  REQUIRE(calm.wait() == kOk);
  CHECK(losses_of(config) == losses);
  CHECK(read_file(checkpoint_directory(config.run_directory, checkpoint.step) + "/model.safetensors") ==
        read_file(checkpoint.directory + "/model.safetensors"));
}
