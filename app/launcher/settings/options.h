// bertrun's command line: torchrun's options with their defaults, spellings and PET_ variables, and the resulting
// settings.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace bert {

/// torchrun's options as text and numbers, not interpreted yet. Each option is spelled `--a-b` or `--a_b`, and as the
/// variable PET_A_B. The command line overrides the variable.
struct LaunchOptions {
  std::string nnodes = "1:1", nproc_per_node = "1";
  std::string rdzv_backend = "static", rdzv_endpoint, rdzv_id = "none", rdzv_conf;
  bool standalone = false;
  int64_t max_restarts = 0;
  double monitor_interval = 0.1;
  std::string start_method = "spawn", event_log_handler = "null", role = "default";
  bool module = false, no_python = false, run_path = false;
  std::string log_dir, redirects = "0", tee = "0", local_ranks_filter;
  std::string duplicate_stdout_filters, duplicate_stderr_filters, log_line_prefix_template;
  int64_t node_rank = 0;
  std::string master_addr = "127.0.0.1";
  int64_t master_port = 29500;
  std::string local_addr, logs_specs, numa_binding;
  std::string signals_to_handle = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";
  bool virtual_local_rank = false;
  std::string save_timeout;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit("nnodes", self.nnodes, "machines: N, or MIN:MAX of an elastic job");
    visit("nproc_per_node", self.nproc_per_node, "ranks on this machine: a number, gpu, cpu or auto");
    visit("rdzv_backend", self.rdzv_backend, "static (machine 0 is --node-rank 0) or c10d (any order)");
    visit("rdzv_endpoint", self.rdzv_endpoint, "HOST[:PORT] where the machines meet (c10d: port 29400)");
    visit("rdzv_id", self.rdzv_id, "name of the job, equal on every machine");
    visit("rdzv_conf", self.rdzv_conf, "KEY=VALUE,...: join_timeout, last_call_timeout, close_timeout, ...");
    visit("standalone", self.standalone, "one machine, with a free port and a new id");
    visit("max_restarts", self.max_restarts, "restarts of all ranks before giving up");
    visit("monitor_interval", self.monitor_interval, "seconds between two checks of the logs");
    visit("start_method", self.start_method, "spawn, fork or forkserver; no meaning here");
    visit("event_log_handler", self.event_log_handler, "no meaning here");
    visit("role", self.role, "the ranks' name in ROLE_NAME and in log prefixes");
    visit("module", self.module, "PROGRAM is a Python module (python -m)");
    visit("no_python", self.no_python, "run a .py file as a program, not with python3");
    visit("run_path", self.run_path, "run a Python file through runpy.run_path");
    visit("log_dir", self.log_dir, "directory of log files; /dev/null for none");
    visit("redirects", self.redirects,
          "streams to files: 0 none, 1 stdout, 2 stderr, 3 both, or 0:1,1:2 by local rank");
    visit("tee", self.tee, "streams to files and to the console, as --redirects");
    visit("local_ranks_filter", self.local_ranks_filter, "local ranks whose output reaches the console: 0,1");
    visit("duplicate_stdout_filters", self.duplicate_stdout_filters,
          "copy lines of --tee that contain A or B to a file: A,B");
    visit("duplicate_stderr_filters", self.duplicate_stderr_filters, "the same for stderr; ,, stands for a comma");
    visit("log_line_prefix_template", self.log_line_prefix_template,
          "prefix of --tee: ${role_name} ${rank} ${local_rank}");
    visit("node_rank", self.node_rank, "number of this machine, from 0 (static)");
    visit("master_addr", self.master_addr, "address of machine 0 (static)");
    visit("master_port", self.master_port, "port on machine 0 (static)");
    visit("local_addr", self.local_addr, "this machine's name for the others; default: its host name");
    visit("logs_specs", self.logs_specs, "no meaning here");
    visit("numa_binding", self.numa_binding, "bind ranks to processors: node, socket, exclusive or core-complex");
    visit("signals_to_handle", self.signals_to_handle, "signals that are passed to the ranks and end the job");
    visit("virtual_local_rank", self.virtual_local_rank, "every rank has LOCAL_RANK 0 and sees one GPU");
    visit("save_timeout", self.save_timeout, "seconds for saving after a signal (30) or another rank's 75 (300)");
  }
};

/// The meeting of a job's machines.
struct RendezvousConfig {
  // True for c10d: ranks are assigned when all nodes have joined. False for static: ranks follow from node_rank.
  bool dynamic = false;
  std::string host = "127.0.0.1";
  int64_t port = 29500;  // 0: any free port, for one machine
  std::string id = "none";
  int64_t min_nodes = 1, max_nodes = 1, node_rank = 0;
  std::optional<bool> is_host;  // c10d's is_host; if unset, the machine that `host` names is the host
  std::string local_addr;       // name of this machine for the other machines
  double join_timeout = 600, last_call_timeout = 30, close_timeout = 30, keep_alive_interval = 5;  // seconds
  int64_t keep_alive_max_attempt = 3;

  /// A node is lost after this many seconds without a message.
  [[nodiscard]] double silence_seconds() const {
    return keep_alive_interval * static_cast<double>(keep_alive_max_attempt);
  }
};

/// A set of a rank's streams: bit 0 stdout, bit 1 stderr.
using StreamSet = int;
inline constexpr StreamSet kNoStream = 0, kStdout = 1, kStderr = 2;

/// Streams by local rank: `all`, unless `of_rank` has an entry for the rank.
struct StreamChoice {
  StreamSet all = kNoStream;
  std::map<int64_t, StreamSet> of_rank;
  [[nodiscard]] StreamSet of(int64_t local_rank) const;
};

struct LogConfig {
  std::string directory;  // "": a temporary directory; /dev/null: no files
  StreamChoice redirects, tee;
  std::set<int64_t> ranks_on_console;  // empty: all ranks
  std::vector<std::string> stdout_filters, stderr_filters;
  std::string prefix_template = "[${role_name}${local_rank}]:";
  double tail_interval_seconds = 0.1;
};

/// bertrun's settings, resolved from LaunchOptions and the environment.
struct LaunchConfig {
  int64_t nproc_per_node = 1;
  RendezvousConfig rendezvous;
  LogConfig logs;
  std::string role = "default", numa_binding;
  int64_t max_restarts = 0;
  std::vector<int> ending_signals;  // forwarded to the ranks; then the job ends
  std::string signals_to_handle;    // the option's text, for TORCHELASTIC_SIGNALS_TO_HANDLE
  bool virtual_local_rank = false;
  double shutdown_timeout_seconds = 30;  // from a forwarded signal to SIGKILL
  double save_timeout_seconds = 300;     // from a rank's exit code 75 to SIGKILL for ranks that are still saving
  double failure_grace_seconds = 0.7;    // from SIGTERM to SIGKILL after a rank has failed
  double exit_barrier_seconds = 300;     // maximum wait of a node that is done for the other nodes; torchrun's default
  std::vector<std::string> command;      // program and arguments as executed, before ${local_rank} is replaced
};

/// bertrun's command line, not interpreted yet.
struct LaunchCommand {
  LaunchOptions options;
  std::set<std::string> given;       // names (with underscores) of options from the command line or PET_ variables
  std::vector<std::string> command;  // the program and its arguments
};

/// Reads the command line and the PET_ variables. Returns nothing if --help was asked for and has been printed. Throws
/// UsageError.
std::optional<LaunchCommand> read_launch_command(int argc, char** argv);

/// Reads bertrun's command line and environment. Prints notes on stderr about options that have no effect. Returns
/// nothing if --help was asked for and has been printed. Throws UsageError.
std::optional<LaunchConfig> parse_launch_command(int argc, char** argv);

/// Returns `text` with ${name} and $name replaced for every name in `variables`. Other text stays, and $$ becomes $.
std::string substitute(const std::string& text, const std::map<std::string, std::string>& variables);

}  // namespace bert
