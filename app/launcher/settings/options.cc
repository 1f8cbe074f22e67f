#include "app/launcher/settings/options.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>

#include "app/cli/command_line.h"
#include "app/launcher/settings/option_notes.h"
#include "app/net/socket.h"
#include "app/system/console.h"
#include "app/system/crypto.h"
#include "app/system/environment.h"
#include "app/system/errors.h"
#include "app/system/machine/processors.h"
#include "data/io/text_parts.h"

namespace bert {
namespace {

constexpr int64_t kC10dPort = 29400;  // torchrun's default port for --rdzv-backend c10d

int64_t integer_between(const std::string& name, const std::string& text, int64_t low, int64_t high) {
  const auto value = number_of<int64_t>(text);
  if (!value || *value < low || *value > high) {
    throw UsageError(name + " " + text + ": expected a number from " + std::to_string(low) + " to " +
                     std::to_string(high));
  }
  return *value;
}

// ---- the options as text ----

/// Both spellings of an option for CLI11, the dashed one first. -m, -r and -t are torchrun's short names.
std::string spellings(const std::string& name) {
  std::string result = "--" + dashed(name);
  if (dashed(name) != name) result += ",--" + name;
  for (const char* letter : {"module", "redirects", "tee"}) {
    if (name == letter) result = std::string("-") + letter[0] + "," + result;
  }
  return result;
}

/// Sets options from the PET_<NAME> variables. A flag is on if its number is not 0.
struct EnvironmentReader {
  static std::optional<std::string> variable(const std::string& name, std::string& variable_name) {
    variable_name = "PET_" + name;
    std::ranges::transform(variable_name, variable_name.begin(),
                           [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    const char* text = std::getenv(variable_name.c_str());
    return text != nullptr ? std::optional<std::string>(text) : std::nullopt;
  }
  template <class T>
  void operator()(const char* name, T& value, const char*) const {
    std::string variable_name;
    const auto text = variable(name, variable_name);
    if (!text) return;
    if constexpr (std::is_same_v<T, std::string>) {
      value = *text;
    } else {
      using Number = std::conditional_t<std::is_same_v<T, bool>, int64_t, T>;
      const auto number = number_of<Number>(*text);
      if (!number) throw UsageError(variable_name + "=" + *text + ": expected a number");
      value = static_cast<T>(*number);
    }
  }
};

struct OptionAdder {
  CLI::App& app;
  template <class T>
  void operator()(const char* name, T& value, const char* help) const {
    if constexpr (std::is_same_v<T, bool>) {
      app.add_flag(spellings(name), value, help);
    } else {
      app.add_option(spellings(name), value, help)->take_last();
    }
  }
};

/// Prints one line for each option, with the dashed spelling only.
class ShortHelp : public CLI::Formatter {
 public:
  std::string make_option_name(const CLI::Option* option, bool) const override {
    std::string result;
    for (const std::string& name : option->get_snames()) result += "-" + name + ", ";
    return result + "--" + option->get_lnames().front();
  }
  std::string make_option_opts(const CLI::Option*) const override { return ""; }
  std::string make_usage(const CLI::App*, std::string name) const override {
    return "Usage: " + name + " [OPTIONS] [--] PROGRAM ARGUMENTS...\n";
  }
};

// ---- the meaning of the options ----

void set_nodes(const std::string& nnodes, RendezvousConfig& rendezvous) {
  const auto parts = split(nnodes, ':');
  const auto low = number_of<int64_t>(trimmed(parts.front())), high = number_of<int64_t>(trimmed(parts.back()));
  if (parts.size() > 2 || !low || !high) throw UsageError("--nnodes " + nnodes + " is not in \"MIN:MAX\" format");
  if (*low < 1 || *low > *high) throw UsageError("--nnodes " + nnodes + ": expected 0 < MIN <= MAX");
  rendezvous.min_nodes = *low, rendezvous.max_nodes = *high;
}

int64_t ranks_of(const std::string& text) {
  constexpr int64_t kMost = 4096;
  if (text == "cpu") return usable_processors();
  if (text == "gpu" || text == "auto") {
    const auto gpus = static_cast<int64_t>(gpu_bus_ids().size());
    if (gpus == 0 && text == "gpu")
      throw UsageError("--nproc-per-node gpu: no CUDA device is available; see nvidia-smi, or give a number");
    return gpus > 0 ? gpus : usable_processors();
  }
  const auto number = number_of<int64_t>(text);
  if (!number || *number < 1 || *number > kMost) {
    throw UsageError("--nproc-per-node " + text + ": expected a number from 1 to " + std::to_string(kMost) +
                     ", gpu, cpu or auto");
  }
  return *number;
}

StreamChoice streams_of(const std::string& option, const std::string& given) {
  const std::string text = given.starts_with('=') ? given.substr(1) : given;  // argparse accepts -t=3 too
  const auto stream = [&](const std::string& value) -> StreamSet {
    if (value.size() != 1 || value[0] < '0' || value[0] > '3') {
      throw UsageError(option + " " + text + ": expected 0, 1, 2 or 3, or a map like 0:1,1:2 from local rank to one");
    }
    return value[0] - '0';
  };
  StreamChoice result;
  if (text.find(':') == std::string::npos) {
    result.all = stream(text);
    return result;
  }
  for (const std::string& item : split(text, ',')) {
    const auto parts = split(item, ':');
    const auto rank = number_of<int64_t>(parts.front());
    if (parts.size() != 2 || !rank || *rank < 0) stream("");
    result.of_rank[*rank] = stream(parts.back());
  }
  return result;
}

/// Splits torchrun's list: items are separated by commas, and a double comma is a comma.
std::vector<std::string> filters_of(const std::string& text) {
  if (text.empty()) return {};
  std::vector<std::string> result(1);
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != ',') {
      result.back() += text[i];
    } else if (i + 1 < text.size() && text[i + 1] == ',') {
      result.back() += text[i++];
    } else {
      result.emplace_back();
    }
  }
  return result;
}

LogConfig logs_of(const LaunchOptions& options) {
  LogConfig logs;
  logs.directory = options.log_dir;
  if (!logs.directory.empty() && std::filesystem::is_regular_file(logs.directory))
    throw UsageError("--log-dir " + logs.directory + " is a file; expected a directory, or /dev/null");
  logs.redirects = streams_of("--redirects", options.redirects);
  logs.tee = streams_of("--tee", options.tee);
  if (!options.local_ranks_filter.empty()) {
    for (const std::string& rank : split(options.local_ranks_filter, ','))
      logs.ranks_on_console.insert(integer_between("--local-ranks-filter", std::string(trimmed(rank)), 0, INT32_MAX));
  }
  logs.stdout_filters = filters_of(options.duplicate_stdout_filters);
  logs.stderr_filters = filters_of(options.duplicate_stderr_filters);
  const char* prefix = std::getenv("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE");
  if (prefix != nullptr && *prefix != '\0') logs.prefix_template = prefix;
  if (!options.log_line_prefix_template.empty()) logs.prefix_template = options.log_line_prefix_template;
  if (!(options.monitor_interval >= 0))
    throw UsageError("--monitor-interval " + std::to_string(options.monitor_interval) + ": expected seconds from 0");
  constexpr double kShortest = 1e-3;  // seconds; a shorter interval would be a busy loop
  logs.tail_interval_seconds = std::max(options.monitor_interval, kShortest);
  return logs;
}

std::vector<int> signals_of(const std::string& text) {
  std::vector<int> result;
  for (const std::string& item : split(text, ',')) {
    const std::string name(trimmed(item));
    int found = 0;
    for (int number = 1; number < SIGRTMIN; ++number) {
      if (const char* known = sigabbrev_np(number); known != nullptr && name == "SIG" + std::string(known))
        found = number;
    }
    if (found == SIGKILL || found == SIGSTOP || found == SIGCHLD)
      throw UsageError("--signals-to-handle " + text + ": \"" + name + "\" is not a signal that can be handled");
    if (found != 0) {
      result.push_back(found);
    } else {
      note("--signals-to-handle: there is no signal \"" + name + "\" here");
    }
  }
  return result;
}

void set_rendezvous_option(const std::string& key, const std::string& value, RendezvousConfig& rendezvous) {
  constexpr int64_t kLongest = 365LL * 86400;
  const auto seconds = [&] { return static_cast<double>(integer_between("--rdzv-conf " + key, value, 1, kLongest)); };
  if (key == "join_timeout") {
    rendezvous.join_timeout = seconds();
  } else if (key == "timeout") {  // torchrun's name for it in the static rendezvous
    const double value_seconds = seconds();
    if (!rendezvous.dynamic) rendezvous.join_timeout = value_seconds;
    if (rendezvous.dynamic) note("--rdzv-conf timeout is not used: c10d has join_timeout");
  } else if (key == "last_call_timeout") {
    rendezvous.last_call_timeout = seconds();
    if (!rendezvous.dynamic) note("--rdzv-conf last_call_timeout is not used: it is c10d's");
  } else if (key == "close_timeout") {
    rendezvous.close_timeout = seconds();
  } else if (key == "keep_alive_interval") {
    rendezvous.keep_alive_interval = seconds();
  } else if (key == "keep_alive_max_attempt") {
    rendezvous.keep_alive_max_attempt = integer_between("--rdzv-conf " + key, value, 1, kLongest);
  } else if (key == "is_host") {
    const std::set<std::string> yes = {"1", "true", "True", "t", "yes", "y"},
                                no = {"0", "false", "False", "f", "no", "n"};
    if (!yes.contains(value) && !no.contains(value))
      throw UsageError("--rdzv-conf is_host=" + value + ": expected true or false");
    rendezvous.is_host = yes.contains(value);
    if (!rendezvous.dynamic) note("--rdzv-conf is_host is not used: it is c10d's; the host is --node-rank 0");
  } else if (key == "store_type") {
    if (value != "tcp") throw UsageError("--rdzv-conf store_type=" + value + ": only tcp is served here");
  } else {
    note("--rdzv-conf " + key + " has no meaning here");
  }
}

RendezvousConfig rendezvous_of(const LaunchOptions& options) {
  RendezvousConfig rendezvous;
  set_nodes(options.nnodes, rendezvous);
  if (options.rdzv_backend != "static" && options.rdzv_backend != "c10d") {
    throw UsageError("--rdzv-backend " + options.rdzv_backend +
                     ": expected static or c10d; bertrun has no etcd client, and needs none: use c10d");
  }
  rendezvous.dynamic = options.standalone || options.rdzv_backend == "c10d";
  if (!rendezvous.dynamic) rendezvous.join_timeout = 900;  // torchrun's default for the static rendezvous
  rendezvous.id = options.standalone || options.rdzv_id.empty() ? random_uuid() : options.rdzv_id;
  if (!options.standalone && options.rdzv_id.empty())
    note("--rdzv-id is empty; this job is " + rendezvous.id + ", and other machines need that one to join it");
  rendezvous.node_rank = rendezvous.dynamic ? -1 : options.node_rank;
  rendezvous.local_addr = options.local_addr.empty() ? host_name() : options.local_addr;
  if (options.standalone) {
    if (rendezvous.max_nodes != 1) throw UsageError("--standalone is for one machine; leave --nnodes out");
    rendezvous.port = 0;
  } else if (rendezvous.dynamic || !options.rdzv_endpoint.empty()) {
    const Endpoint endpoint = parse_endpoint(options.rdzv_endpoint, rendezvous.dynamic ? kC10dPort : -1);
    if (endpoint.port < 0) throw UsageError("--rdzv-endpoint " + options.rdzv_endpoint + ": expected HOST:PORT");
    rendezvous.host = endpoint.host, rendezvous.port = endpoint.port;
  } else {
    rendezvous.host = parse_endpoint(options.master_addr + ":0", 0).host;
    rendezvous.port = integer_between("--master-port", std::to_string(options.master_port), 0, 65535);
  }
  if (rendezvous.port == 0 && rendezvous.max_nodes > 1)
    throw UsageError("port 0 is any port, which several machines cannot meet at; name one in --rdzv-endpoint");
  if (!rendezvous.dynamic && (options.node_rank < 0 || options.node_rank >= rendezvous.max_nodes)) {
    throw UsageError("--node-rank " + std::to_string(options.node_rank) + ": expected less than --nnodes " +
                     std::to_string(rendezvous.max_nodes));
  }
  if (const std::string conf(trimmed(options.rdzv_conf)); !conf.empty()) {
    for (const std::string& item : split(conf, ',')) {
      const size_t equals = item.find('=');
      const std::string key(trimmed(std::string_view(item).substr(0, equals)));
      const std::string value =
          equals == std::string::npos ? "" : std::string(trimmed(std::string_view(item).substr(equals + 1)));
      if (key.empty() || value.empty())
        throw UsageError("--rdzv-conf " + conf + ": expected KEY=VALUE,KEY=VALUE, got \"" + item + "\"");
      set_rendezvous_option(key, value, rendezvous);
    }
  }
  return rendezvous;
}

/// The command to execute. A .py file, a module or a run path runs under python. Other programs are looked for beside
/// bertrun, then in PATH.
std::vector<std::string> command_of(const LaunchOptions& options, std::vector<std::string> command) {
  if (options.module && options.no_python)
    throw UsageError("--module and --no-python contradict each other; leave one out");
  const std::filesystem::path program = command.front();
  const bool python = !options.no_python && (options.module || program.extension() == ".py");
  if (options.run_path || python) {
    const char* interpreter = std::getenv("PYTHON_EXEC");
    std::vector<std::string> prefix = {interpreter != nullptr ? interpreter : "python3", "-u"};
    if (options.run_path) {
      prefix.insert(prefix.end(),
                    {"-c", "import runpy, sys; del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')"});
    } else if (options.module) {
      prefix.push_back("-m");
    }
    command.insert(command.begin(), prefix.begin(), prefix.end());
  } else if (!program.has_parent_path()) {
    const auto beside = std::filesystem::read_symlink("/proc/self/exe").parent_path() / program;
    if (access(beside.c_str(), X_OK) == 0) command.front() = beside.string();
  }
  return command;
}

double seconds_of(const std::string& name, const std::string& text) {
  const auto seconds = number_of<double>(text);
  if (!seconds || !(*seconds >= 0 && *seconds < 1e9)) throw UsageError(name + text + ": expected seconds");
  return *seconds;
}

void set_timeouts(const LaunchOptions& options, LaunchConfig& config) {
  if (const char* text = std::getenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT")) {
    config.shutdown_timeout_seconds = config.failure_grace_seconds =
        seconds_of("TORCH_ELASTIC_SHUTDOWN_TIMEOUT=", text);
    config.save_timeout_seconds = std::max(config.save_timeout_seconds, config.shutdown_timeout_seconds);
  }
  if (!options.save_timeout.empty())
    config.shutdown_timeout_seconds = config.save_timeout_seconds = seconds_of("--save-timeout ", options.save_timeout);
}

void check_choice(const std::string& option, const std::string& value, const std::vector<std::string>& choices) {
  if (std::ranges::find(choices, value) != choices.end()) return;
  std::string list;
  for (const std::string& choice : choices) list += (list.empty() ? "" : ", ") + choice;
  throw UsageError(option + " " + value + ": expected one of " + list);
}

}  // namespace

StreamSet StreamChoice::of(int64_t local_rank) const {
  const auto found = of_rank.find(local_rank);
  return found != of_rank.end() ? found->second : all;
}

std::string substitute(const std::string& text, const std::map<std::string, std::string>& variables) {
  std::string result;
  for (size_t i = 0; i < text.size();) {
    if (text[i] != '$') {
      result += text[i++];
      continue;
    }
    if (text.compare(i, 2, "$$") == 0) {
      result += '$', i += 2;
      continue;
    }
    const bool braced = text.compare(i, 2, "${") == 0;
    const size_t first = i + (braced ? 2 : 1);
    size_t last = first;
    while (last < text.size() && (std::isalnum(static_cast<unsigned char>(text[last])) != 0 || text[last] == '_'))
      ++last;
    const auto found = variables.find(text.substr(first, last - first));
    const bool closed = !braced || (last < text.size() && text[last] == '}');
    if (found == variables.end() || !closed) {
      result += text[i++];
      continue;
    }
    result += found->second;
    i = last + (braced ? 1 : 0);
  }
  return result;
}

std::optional<LaunchCommand> read_launch_command(int argc, char** argv) {
  LaunchCommand result;
  LaunchOptions& options = result.options;
  LaunchOptions::visit_fields(options, EnvironmentReader{});
  CLI::App app(
      "Starts the ranks of one program on one or many machines, as torchrun does: its options, its PET_ variables, "
      "and\n"
      "its environment for the ranks.\n"
      "Example: bertrun --nproc-per-node 2 bert pretrain configs/quickstart.json micro_batch_size=8\n"
      "A program name without a slash is looked for beside bertrun, then in PATH; a .py file runs under python3.",
      "bertrun");
  app.formatter(std::make_shared<ShortHelp>());
  app.prefix_command();
  LaunchOptions::visit_fields(options, OptionAdder{app});
  if (!parse_command_line(app, argc, argv)) return std::nullopt;
  std::vector<std::string>& command = result.command = remaining_arguments(app);
  if (!command.empty() && command.front() == "--") command.erase(command.begin());
  if (command.empty()) throw UsageError("no program to run; see bertrun --help");
  if (command.front().starts_with("-")) throw UsageError("unknown option " + command.front() + "; see bertrun --help");
  LaunchOptions::visit_fields(options, [&](const char* name, const auto&, const char*) {
    std::string variable;
    if (app.count("--" + dashed(name)) > 0 || EnvironmentReader::variable(name, variable)) result.given.insert(name);
  });
  return result;
}

std::optional<LaunchConfig> parse_launch_command(int argc, char** argv) {
  std::optional<LaunchCommand> read = read_launch_command(argc, argv);
  if (!read) return std::nullopt;
  const LaunchOptions& options = read->options;
  check_choice("--start-method", options.start_method, {"spawn", "fork", "forkserver"});
  if (!options.numa_binding.empty())
    check_choice("--numa-binding", options.numa_binding, {"node", "socket", "exclusive", "core-complex"});
  LaunchConfig config;
  config.nproc_per_node = ranks_of(options.nproc_per_node);
  config.rendezvous = rendezvous_of(options);
  config.logs = logs_of(options);
  config.role = options.role;
  config.numa_binding = options.numa_binding;
  config.max_restarts = options.max_restarts;
  if (config.max_restarts < 0)
    throw UsageError("--max-restarts " + std::to_string(config.max_restarts) + ": expected a number from 0");
  config.ending_signals = signals_of(options.signals_to_handle);
  config.signals_to_handle = options.signals_to_handle;
  config.virtual_local_rank = options.virtual_local_rank;
  set_timeouts(options, config);
  config.command = command_of(options, std::move(read->command));
  print_notes(options, config, read->given);
  return config;
}

}  // namespace bert
