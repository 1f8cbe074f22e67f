// "Hosts" on one machine: network namespaces on a bridge, and bertruns in them. Needs root and iproute2. Include this
// file last, in place of tests/testing.h.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "app/config/pretrain_config.h"
#include "app/launcher/settings/job_token.h"
#include "tests/places.h"
#include "tests/support/launcher_testing.h"
#include "tests/support/lines.h"
#include "tests/support/tiny_pretraining.h"

namespace bert::testing {

inline bool shell_works(const std::string& command) { return std::system((command + " >/dev/null 2>&1").c_str()) == 0; }

/// Namespaces with one interface each (10.77.0.1, 10.77.0.2, ...), joined by a bridge in a separate namespace.
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
  /// A function that moves the calling process to that host; for Launcher's `first`.
  [[nodiscard]] std::function<void()> enter(int host) const {
    return [path = "/run/netns/" + name(host)] {
      const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
      if (file < 0 || setns(file, CLONE_NEWNET) != 0) _exit(99);
    };
  }
  /// Output of a command on that host.
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

inline constexpr const char* kSkip = "no network namespaces: root and iproute2 are needed";
inline const std::string kSecret(64, 'c');

/// Arguments of a bertrun with two ranks that joins the job at 10.77.0.1.
inline std::vector<std::string> agent(int host, std::vector<std::string> options, const std::string& script) {
  options.insert(options.begin(),
                 {"--nnodes", "4", "--nproc-per-node", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint",
                  "10.77.0.1:29400", "--rdzv-id", "hosts", "--local-addr", fmt::format("host{}", host)});
  options.insert(options.end(), {"sh", "-c", script});
  return options;
}

/// Starts `bert pretrain` with a configuration file on one of the hosts; `options` are bertrun's.
inline std::unique_ptr<Launcher> trainer(const Network& network, int host, std::vector<std::string> options,
                                         const std::string& file) {
  options.insert(options.end(), {"--local-addr", fmt::format("host{}", host), BERT_EXECUTABLE, "pretrain", file});
  return std::make_unique<Launcher>(
      options,
      [&network, host] {
        network.enter(host)();
        setenv("GLOO_SOCKET_IFNAME", "eth0", 1);  // Gloo's own connections
      },
      BERTRUN_EXECUTABLE);
}

/// The same for a job of `nodes` hosts with `ranks` ranks each. Hosts may start in any order.
inline std::unique_ptr<Launcher> trainer(const Network& network, int host, int nodes, int ranks,
                                         const std::string& file, const std::string& conf = "join_timeout=60") {
  return trainer(network, host,
                 {"--nnodes", std::to_string(nodes), "--nproc-per-node", std::to_string(ranks), "--rdzv-backend",
                  "c10d", "--rdzv-endpoint", "10.77.0.1:29400", "--rdzv-id", "trainers", "--rdzv-conf", conf},
                 file);
}

inline std::string write_config(const PretrainConfig& config) {
  const std::string file = config.run_directory + ".json";
  std::ofstream(file) << to_json(config);
  return file;
}

/// The losses in the log of a run.
inline std::vector<double> losses_of(const PretrainConfig& config) {
  std::vector<double> losses;
  for (const auto& metrics : metrics_of(config.run_directory)) {
    if (metrics.contains("loss")) losses.push_back(metrics["loss"]);
  }
  return losses;
}

/// Sets the job's token in the environment of the bertruns that the test starts.
struct Token {
  Token() { setenv(kTokenVariable, kSecret.c_str(), 1); }
  ~Token() { unsetenv(kTokenVariable); }
};

}  // namespace bert::testing
