// The name of the culprit when its peers end before it does, on one agent and on two.
#include <fmt/format.h>
#include <sys/stat.h>

#include <deque>

#include "app/net/socket.h"
#include "app/system/exit_codes.h"
#include "tests/support/launcher_testing.h"

using namespace bert;
using namespace bert::testing;

namespace {

constexpr int kCode = 3;  // the culprit's exit code

/// The culprit closes its connection (here a pipe) to the other rank and ends some time later.
struct Death {
  int agents = 1, culprit = 0;
  double seconds = 0;                // between the two ends of the culprit
  std::string reaction = "exit 69";  // shell code of the other rank when its connection breaks
};

/// Runs two ranks and expects the culprit's exit code and name on every agent.
bool names_culprit(const Death& death) {
  const TemporaryDirectory directory;
  setenv("XDG_RUNTIME_DIR", directory.path().c_str(), 1);
  const std::string pipe = directory.path("pipe"), port = std::to_string(port_of(listen_on({"127.0.0.1", 0}).get()));
  if (mkfifo(pipe.c_str(), 0600) != 0) return false;
  const std::string script =
      fmt::format("if [ $RANK = {} ]; then exec 3>{}; exec 3>&-; sleep {}; exit {}; fi; cat {}; {}", death.culprit,
                  pipe, death.seconds, kCode, pipe, death.reaction);
  std::deque<Launcher> agents;
  for (int agent = 0; agent < death.agents; ++agent) {
    const std::string number = std::to_string(agent), ranks = std::to_string(2 / death.agents);
    agents.emplace_back(std::vector<std::string>{"--nnodes", std::to_string(death.agents), "--node-rank", number,
                                                 "--master-port", port, "--nproc-per-node", ranks, "sh", "-c", script});
  }
  bool right = true;
  for (Launcher& agent : agents) {
    const int code = agent.wait();
    const bool named = agent.err().find(fmt::format("rank {} (", death.culprit)) != std::string::npos;
    if (code == kCode && named) continue;
    right = false;
    WARN("code " << code << " after " << death.seconds << " s, agents " << death.agents << ": " << agent.err());
  }
  unsetenv("XDG_RUNTIME_DIR");
  return right;
}

}  // namespace

TEST_CASE("the culprit is named though its peers end up to a second before it", "[unit][distributed]") {
  for (const int agents : {1, 2}) {
    for (const int culprit : {0, 1}) CHECK(names_culprit({agents, culprit, culprit == 0 ? 1.0 : 0.3}));
    CHECK(names_culprit({agents, 1, 0.3, "kill -PIPE $$"}));  // it has written to the closed connection
    // A PyTorch script with elastic's `record` writes the reason of its exit.
    CHECK(
        names_culprit({agents, 1, 0.3,
                       R"(echo '{"message": {"message": "RuntimeError: Connection closed by peer [10.0.0.1]:5000"}}' )"
                       ">$TORCHELASTIC_ERROR_FILE; exit 1"}));
  }
}

TEST_CASE("ranks that only failed because of others end the job when none of them is left", "[unit]") {
  Launcher launcher(shell({"--nproc-per-node", "2"}, "exit 69"));
  CHECK(launcher.wait() == kPeerFailure);
  // The others wait for a suspended rank in vain; it cannot be waited for either.
  Launcher stopped(shell({"--nproc-per-node", "2"}, "test $RANK = 0 && kill -STOP $$; sleep 0.3; exit 69"));
  CHECK(stopped.wait() == kPeerFailure);
  CHECK(stopped.err().find("rank 0 (host ") != std::string::npos);
  CHECK(stopped.err().find(") is stopped") != std::string::npos);
}

TEST_CASE("40 culprits that die up to a second after their peers are all named", "[slow]") {
  for (const int agents : {1, 2}) {
    int right = 0;
    for (int i = 0; i < 40; ++i) right += names_culprit({agents, i % 2, i % 11 / 10.0}) ? 1 : 0;
    WARN(agents << " agents: " << right << " of 40 named");
    CHECK(right == 40);
  }
}
