// Agents in network namespaces: four "hosts" on one bridge, a fifth that is hostile. Needs root and iproute2.
#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <memory>
#include <set>
#include <sstream>

#include "app/launcher/job_token.h"
#include "app/launcher/socket.h"
#include "tests/tiny_pretraining.h"
// Last: it brings Catch2.
#include "tests/launcher_testing.h"

using namespace bert;
using namespace bert::testing;

namespace {

bool shell_works(const std::string& command) { return std::system((command + " >/dev/null 2>&1").c_str()) == 0; }

/// Namespaces with one interface each, 10.77.0.1 and on, that a bridge in a namespace of its own joins.
class Network {
 public:
  explicit Network(int hosts) : prefix_(fmt::format("bertrun{}", getpid())), hosts_(hosts) {
    works_ = shell_works("ip netns add " + name(-1)) && shell_works(in(-1) + "ip link add br0 type bridge") &&
             shell_works(in(-1) + "ip link set br0 up");
    for (int i = 0; i < hosts && works_; ++i) {
      const std::string port = fmt::format("p{}", i), address = fmt::format("10.77.0.{}/24", i + 1);
      works_ = shell_works("ip netns add " + name(i)) && shell_works(in(i) + "ip link set lo up") &&
               shell_works(in(-1) + "ip link add " + port + " type veth peer name eth0 netns " + name(i)) &&
               shell_works(in(-1) + "ip link set " + port + " master br0 up") &&
               shell_works(in(i) + "ip address add " + address + " dev eth0") &&
               shell_works(in(i) + "ip link set eth0 up");
    }
  }
  ~Network() {
    for (int i = -1; i < hosts_; ++i) shell_works("ip netns delete " + name(i));
  }
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  [[nodiscard]] bool works() const { return works_; }
  void cut(int host) const { shell_works(in(-1) + fmt::format("ip link set p{} down", host)); }
  /// What a Launcher does first, to run on that host.
  [[nodiscard]] std::function<void()> enter(int host) const {
    return [path = "/run/netns/" + name(host)] {
      const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
      if (file < 0 || setns(file, CLONE_NEWNET) != 0) _exit(99);
    };
  }
  /// Output of a command there.
  [[nodiscard]] std::string output(int host, const std::string& command) const {
    const TemporaryDirectory directory;
    if (std::system((in(host) + command + " >" + directory.path("out") + " 2>&1").c_str()) < 0) return "";
    return read_file(directory.path("out"));
  }

 private:
  [[nodiscard]] std::string name(int host) const { return prefix_ + (host < 0 ? "-net" : fmt::format("-{}", host)); }
  [[nodiscard]] std::string in(int host) const { return "ip netns exec " + name(host) + " "; }
  std::string prefix_;
  int hosts_;
  bool works_ = false;
};

constexpr const char* kSkip = "no network namespaces: root and iproute2 are needed";
const std::string kSecret(64, 'c');

std::vector<std::string> agent(int host, std::vector<std::string> options, const std::string& script) {
  options.insert(options.begin(),
                 {"--nnodes", "4", "--nproc-per-node", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint",
                  "10.77.0.1:29400", "--rdzv-id", "hosts", "--local-addr", fmt::format("host{}", host)});
  options.insert(options.end(), {"sh", "-c", script});
  return options;
}

/// From another host 1,000 connections a second for 30 s, of which every other one sends garbage; as many stay open and
/// idle as the descriptor limit leaves.
class Flood {
 public:
  explicit Flood(const std::function<void()>& enter) : pid_(fork()) {
    if (pid_ != 0) return;
    enter();
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    std::deque<Descriptor> idle;
    const auto begin = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < 30'000; ++i) {
      std::this_thread::sleep_until(begin + std::chrono::milliseconds(i));
      Descriptor socket = start_connect({"10.77.0.1", 29400});
      if (i % 2 == 0) send(socket.get(), "garbage", 7, MSG_NOSIGNAL);
      idle.push_back(std::move(socket));
      if (idle.size() + 64 > limit.rlim_cur) idle.pop_front();
    }
    _exit(0);
  }
  ~Flood() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Flood(const Flood&) = delete;
  Flood& operator=(const Flood&) = delete;

 private:
  pid_t pid_;
};

/// A process's memory.
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

/// `bert pretrain` with a configuration file on one of `nodes` hosts.
std::unique_ptr<Launcher> trainer(const Network& network, int host, int nodes, int ranks, const std::string& file,
                                  const std::string& conf = "join_timeout=60") {
  return std::make_unique<Launcher>(
      std::vector<std::string>{"--nnodes", std::to_string(nodes), "--nproc-per-node", std::to_string(ranks),
                               "--rdzv-backend", "c10d", "--rdzv-endpoint", "10.77.0.1:29400", "--rdzv-id", "trainers",
                               "--rdzv-conf", conf, "--local-addr", fmt::format("host{}", host), BERT_EXECUTABLE,
                               "pretrain", file},
      [&network, host] {
        network.enter(host)();
        setenv("GLOO_SOCKET_IFNAME", "eth0", 1);  // Gloo's own connections
      },
      BERTRUN_EXECUTABLE);
}

std::string write_config(const PretrainConfig& config) {
  const std::string file = config.run_directory + ".json";
  std::ofstream(file) << to_json(config);
  return file;
}

/// The losses that a run has logged.
std::vector<double> losses_of(const PretrainConfig& config) {
  std::vector<double> losses;
  std::ifstream file(config.run_directory + "/metrics.jsonl");
  for (std::string line; std::getline(file, line);) {
    const auto metrics = nlohmann::json::parse(line);
    if (metrics.contains("loss")) losses.push_back(metrics["loss"]);
  }
  return losses;
}

struct Token {
  Token() { setenv(kTokenVariable, kSecret.c_str(), 1); }
  ~Token() { unsetenv(kTokenVariable); }
};

}  // namespace

TEST_CASE("four hosts of two ranks form a job; the network sees one port on one address", "[distributed]") {
  const Network network(5);
  if (!network.works()) BERT_SKIP(kSkip);
  const TemporaryDirectory directory;
  const std::string script = "echo $RANK $GROUP_RANK $LOCAL_RANK $MASTER_ADDR >>" + directory.path("ranks") +
                             "; while [ ! -e " + directory.path("go") + " ]; do sleep 0.05; done";
  const Token token;
  std::deque<Launcher> agents;
  for (const int host : {2, 0, 3, 1}) agents.emplace_back(agent(host, {}, script), network.enter(host));
  const auto ranks = [&] {
    std::ifstream file(directory.path("ranks"));
    std::set<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.insert(line);
    return lines;
  };
  REQUIRE(eventually([&] { return ranks().size() == 8; }));
  for (int rank = 0; rank < 8; ++rank) {
    CHECK(ranks().contains(fmt::format("{} {} {} 127.0.0.1", rank, rank / 2, rank % 2)));
  }
  for (int host = 0; host < 4; ++host) {
    const std::string listening = network.output(host, "ss -Hltn");
    CAPTURE(host, listening);
    // Fields of a line: state, two queues, local address, peer's address.
    std::istringstream lines(listening);
    std::string line, field, local;
    std::multiset<std::string> open_to_network;
    while (std::getline(lines, line)) {
      std::istringstream fields(line);
      fields >> field >> field >> field >> local;
      if (!local.starts_with("127.") && !local.starts_with("[::1]")) open_to_network.insert(local);
    }
    CHECK(open_to_network ==
          (host == 0 ? std::multiset<std::string>{"10.77.0.1:29400"} : std::multiset<std::string>{}));
  }
  // Clients of a fifth host that know nothing have no effect.
  const std::string hostile =
      "bash -c 'for i in $(seq 50); do exec 3<>/dev/tcp/10.77.0.1/29400; echo \"GET /$i nonsense and more of it, to "
      "fill "
      "a greeting of a bertrun up with text\" >&3; done; exec 4<>/dev/tcp/10.77.0.1/29400; sleep 0.2'";
  CHECK(network.output(4, hostile).empty());
  std::ofstream(directory.path("go")) << "now";
  std::string errors;
  for (Launcher& each : agents) {
    CHECK(each.wait() == 0);
    errors += each.err();
  }
  CHECK(errors.find("50 no bertrun's greeting") != std::string::npos);
  CHECK(errors.find("the last from 10.77.0.5:") != std::string::npos);
}

TEST_CASE("an agent tries every address of the host's name", "[distributed]") {
  const Network network(3);
  if (!network.works()) BERT_SKIP(kSkip);
  const TemporaryDirectory directory;
  // Of the name's two addresses the nearer one by its prefix, tried first, refuses connections.
  std::ofstream(directory.path("hosts")) << "127.0.0.1 localhost\n10.77.0.3 thehost\n10.77.0.1 thehost\n";
  const auto with_names = [&] {
    network.enter(1)();
    if (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount(directory.path("hosts").c_str(), "/etc/hosts", nullptr, MS_BIND, nullptr) != 0) {
      _exit(99);
    }
  };
  const Token token;
  const std::vector<std::string> two = {"--nnodes", "2"};
  Launcher host(agent(0, two, "true"), network.enter(0));
  Launcher other(agent(1, {"--nnodes", "2", "--rdzv-endpoint", "thehost:29400"}, "true"), with_names);
  CHECK(other.wait() == 0);
  CHECK(host.wait() == 0);
}

TEST_CASE("a link that goes down ends the job on both sides of it, with the lost host's name", "[distributed]") {
  const Network network(4);
  if (!network.works()) BERT_SKIP(kSkip);
  const TemporaryDirectory directory;
  const std::string script = "echo $$ >>" + directory.path("pids") + "; exec sleep 60";
  const std::vector<std::string> fast = {"--rdzv-conf", "keep_alive_interval=1,keep_alive_max_attempt=2"};
  const Token token;
  std::deque<Launcher> agents;
  for (int host = 0; host < 4; ++host) agents.emplace_back(agent(host, fast, script), network.enter(host));
  REQUIRE(eventually([&] { return pids_in(directory.path("pids")).size() == 8; }));
  network.cut(2);
  for (int host = 0; host < 4; ++host) {
    CAPTURE(host);
    CHECK(agents[static_cast<size_t>(host)].wait() == kPeerFailure);
    const std::string error = agents[static_cast<size_t>(host)].err();
    CHECK(error.find(host == 2 ? "lost the host of the job at 10.77.0.1:29400" : "lost host2 (bertrun's pid ") !=
          std::string::npos);
  }
  for (const pid_t pid : pids_in(directory.path("pids"))) CHECK_FALSE(alive(pid));
}

TEST_CASE("four hosts of two ranks train as one process does", "[slow]") {
  const Network network(4);
  if (!network.works()) BERT_SKIP(kSkip);
  if (!std::filesystem::exists(BERT_EXECUTABLE)) BERT_SKIP("bert is not built: it needs LibTorch");
  const TemporaryDirectory directory;
  PretrainConfig config = tiny(directory, "alone");
  config.global_batch_size = 32;  // a micro-batch for each rank
  config.log_every = 1;
  Launcher alone(
      {"pretrain", write_config(config)}, [] {}, BERT_EXECUTABLE);
  REQUIRE(alone.wait() == kOk);
  const std::vector<double> expected = losses_of(config);
  REQUIRE(expected.size() == static_cast<size_t>(config.max_steps));
  config.run_directory = directory.path("together");
  const std::string file = write_config(config);
  const Token token;
  std::deque<std::unique_ptr<Launcher>> agents;
  for (const int host : {1, 3, 0, 2}) agents.push_back(trainer(network, host, 4, 2, file));
  for (const auto& agent : agents) {
    CHECK(agent->wait() == kOk);
    CAPTURE(agent->err());
  }
  const std::vector<double> losses = losses_of(config);
  REQUIRE(losses.size() == expected.size());
  for (size_t i = 0; i < losses.size(); ++i) CHECK(losses[i] == Approx(expected[i]).epsilon(1e-4));
}

TEST_CASE("a link that goes down in training ends it on every host, with the name of what is cut off", "[slow]") {
  using Clock = std::chrono::steady_clock;
  if (!Network(1).works()) BERT_SKIP(kSkip);
  if (!std::filesystem::exists(BERT_EXECUTABLE)) BERT_SKIP("bert is not built: it needs LibTorch");
  constexpr int kCut = 2;
  constexpr int64_t kTimeout = 5, kLong = 60;  // seconds
  constexpr double kGrace = 6;
  for (const bool ranks_first : {true, false}) {  // who notices it first: ranks, or else the launchers
    CAPTURE(ranks_first);
    const Network network(4);
    const TemporaryDirectory directory;
    PretrainConfig config = tiny(directory, "run");
    config.global_batch_size = 32;
    config.max_steps = 1'000'000;
    config.checkpoint_every = 0;
    config.log_every = 1;
    config.distributed.timeout_seconds = ranks_first ? kTimeout : kLong;
    const std::string file = write_config(config);
    const Token token;
    std::deque<std::unique_ptr<Launcher>> agents;
    for (int host = 0; host < 4; ++host) {
      agents.push_back(trainer(network, host, 4, 2, file,
                               ranks_first ? "join_timeout=60" : "keep_alive_interval=1,keep_alive_max_attempt=3"));
    }
    REQUIRE(eventually([&] { return !losses_of(config).empty(); }));
    network.cut(kCut);
    const auto start = Clock::now();
    for (int host = 0; host < 4; ++host) {
      Launcher& agent = *agents[static_cast<size_t>(host)];
      const int code = agent.wait();
      const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
      const std::string error = agent.err();
      CAPTURE(host, error);
      WARN("host " << host << " ended after " << seconds << " s");
      CHECK(code == kPeerFailure);
      CHECK(seconds <= static_cast<double>(kTimeout) + kGrace);
      if (host == kCut) {
        CHECK_THAT(error, Contains("the host of the job at 10.77.0.1:29400"));
      } else {
        CHECK_THAT(error, Contains(ranks_first ? "ranks 4 and 5 do not respond" : "lost host2 (bertrun's pid "));
      }
    }
  }
}

TEST_CASE("a flood from another host does not keep a job from forming", "[slow]") {
  const Network network(5);
  if (!network.works()) BERT_SKIP(kSkip);
  const TemporaryDirectory directory;
  const Token token;
  Launcher first(agent(0, {"--nnodes", "2"}, "sleep 1"), network.enter(0));
  const Flood flood(network.enter(4));
  std::this_thread::sleep_for(std::chrono::seconds(2));
  const auto start = std::chrono::steady_clock::now();
  Launcher second(agent(1, {"--nnodes", "2"}, "sleep 1"), network.enter(1));
  CHECK(second.wait() == 0);
  CHECK(first.wait() == 0);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(6));  // 1 s of work, at most 5 s late
  CHECK(first.err().find("turned away") != std::string::npos);
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
  config.distributed.debug = true;  // every collective goes through the store, and so through the relay
  const std::string file = write_config(config);
  const Token token;
  const auto first = trainer(network, 0, 2, 1, file);
  const auto second = trainer(network, 1, 2, 1, file);
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
