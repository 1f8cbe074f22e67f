// Agents in network namespaces: four "hosts" on one bridge. One link is cut.
#include <sys/mount.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <set>
#include <sstream>
#include <vector>

#include "app/system/exit_codes.h"
#include "tests/places.h"
#include "tests/support/lines.h"
#include "tests/support/rank_processes.h"
// Last, because it includes Catch2.
#include "tests/support/launcher_network_testing.h"

using namespace bert;
using namespace bert::testing;

TEST_CASE("four hosts of two ranks form a job; the network sees one port on one address", "[distributed]") {
  const Network network(5);
  if (!network.works()) BERT_SKIP(kSkip);
  const TemporaryDirectory directory;
  const std::string script = "echo $RANK $GROUP_RANK $LOCAL_RANK $MASTER_ADDR $BERTRUN_LOCAL_ADDRESS >>" +
                             directory.path("ranks") + "; while [ ! -e " + directory.path("go") +
                             " ]; do sleep 0.05; done";
  const Token token;
  std::deque<Launcher> agents;
  for (const int host : {2, 0, 3, 1}) agents.emplace_back(agent(host, {}, script), network.enter(host));
  const auto ranks = [&] { return lines_in<std::set<std::string>>(std::ifstream(directory.path("ranks"))); };
  REQUIRE(eventually([&] { return ranks().size() == 8; }));
  const std::set<std::string> told = ranks();
  for (const char* of_host_0 : {"0 0 0 127.0.0.1 10.77.0.1", "1 0 1 127.0.0.1 10.77.0.1"})
    CHECK(told.contains(of_host_0));
  for (int rank = 0; rank < 8; ++rank) {
    CHECK(std::ranges::count_if(told, [&](const std::string& line) {
            return line.starts_with(fmt::format("{} {} {} 127.0.0.1 10.77.0.", rank, rank / 2, rank % 2));
          }) == 1);
  }
  for (int host = 0; host < 4; ++host) {
    const std::string listening = network.output(host, "ss -Hltn");
    CAPTURE(host, listening);
    // Fields of a line: state, two queues, local address, address of the peer.
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
  // Clients of a fifth host without the token have no effect.
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
  // The name has two addresses. The one that is tried first (nearer by its prefix) refuses connections.
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
  for (size_t i = 0; i < losses.size(); ++i) {
    CHECK(losses[i] == Approx(expected[i]).epsilon(1e-4));  // fp32 sums in another order
  }
}

TEST_CASE("hosts train on the network of their job, wherever the default route leads", "[slow]") {
  const Network network(2);
  if (!network.works()) BERT_SKIP(kSkip);
  if (!std::filesystem::exists(BERT_EXECUTABLE)) BERT_SKIP("bert is not built: it needs LibTorch");
  for (const int host : {0, 1}) {  // a second interface, which leads to no other host
    const std::string output = network.output(
        host, fmt::format("sh -c 'ip link add other0 type veth peer name other1 && ip address add 10.78.{}.1/24 dev "
                          "other0 && ip link set other0 up && ip link set other1 up && ip route add default via "
                          "10.78.{}.254'",
                          host, host));
    CAPTURE(output);
    REQUIRE(output.empty());
  }
  const TemporaryDirectory directory;
  PretrainConfig config = tiny(directory, "run");
  config.global_batch_size = 32;
  config.log_every = 1;
  config.distributed.timeout_seconds = 20;
  const std::string file = write_config(config);
  const Token token;
  std::deque<std::unique_ptr<Launcher>> agents;
  for (const int host : {1, 0}) {
    agents.push_back(std::make_unique<Launcher>(
        std::vector<std::string>{"--nnodes", "2", "--nproc-per-node", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint",
                                 "10.77.0.1:29400", "--rdzv-id", "trainers", "--local-addr",
                                 fmt::format("host{}", host), BERT_EXECUTABLE, "pretrain", file},
        network.enter(host), BERTRUN_EXECUTABLE));
  }
  for (const auto& agent : agents) {
    const int code = agent->wait();
    CAPTURE(agent->err());
    CHECK(code == kOk);
  }
  CHECK(losses_of(config).size() == static_cast<size_t>(config.max_steps));
}

TEST_CASE("a link that goes down in training ends it on every host, with the name of what is cut off", "[slow]") {
  using Clock = std::chrono::steady_clock;
  if (!Network(1).works()) BERT_SKIP(kSkip);
  if (!std::filesystem::exists(BERT_EXECUTABLE)) BERT_SKIP("bert is not built: it needs LibTorch");
  constexpr int kCut = 2;
  constexpr int64_t kTimeout = 5, kLong = 60;     // seconds
  for (const bool ranks_first : {true, false}) {  // the ranks notice the cut first, or the launchers
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
    std::vector<std::vector<pid_t>> ranks;
    for (const auto& agent : agents) ranks.push_back(children_named("bert", agent->pid()));
    network.cut(kCut);
    // Ranks end at their timeout. The other nodes' launchers wait for the cut node until its silence shows that it is
    // lost.
    const auto start = Clock::now();
    std::vector<double> ranks_gone(4), launcher_gone(4);
    const auto note = [&](double& seconds, bool gone) {
      if (gone && seconds == 0) seconds = std::chrono::duration<double>(Clock::now() - start).count();
      return gone;
    };
    for (bool all = false; !all; std::this_thread::sleep_for(std::chrono::milliseconds(10))) {
      all = true;
      for (size_t host = 0; host < 4; ++host) {
        note(ranks_gone[host], std::ranges::none_of(ranks[host], alive));
        all = note(launcher_gone[host], agents[host]->ended()) && all;
      }
    }
    for (int host = 0; host < 4; ++host) {
      const auto number = static_cast<size_t>(host);
      Launcher& agent = *agents[number];
      const int code = agent.wait();
      const std::string error = agent.err();
      CAPTURE(host, error);
      WARN("host " << host << ": its ranks were gone after " << ranks_gone[number] << " s, its bertrun after "
                   << launcher_gone[number] << " s");
      CHECK(ranks[number].size() == 2);
      CHECK(code == kPeerFailure);
      if (host == kCut) {
        CHECK_THAT(error, Contains("the host of the job at 10.77.0.1:29400"));
      } else {
        CHECK_THAT(error, Contains(ranks_first ? "ranks 4 and 5 do not respond" : "lost host2 (bertrun's pid "));
      }
    }
  }
}
