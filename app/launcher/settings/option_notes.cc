#include "app/launcher/settings/option_notes.h"

#include <algorithm>
#include <cstdlib>

#include "app/system/console.h"

namespace bert {
namespace {

/// Prints notes on options of the rendezvous that have no effect, because another option overrides them or because they
/// belong to the other backend.
void note_unused_rendezvous(const LaunchOptions& options, const std::set<std::string>& given) {
  const bool of_c10d = options.standalone || options.rdzv_backend == "c10d";
  for (const char* name : {"rdzv_backend", "rdzv_endpoint", "rdzv_id"}) {
    const bool same = name == std::string("rdzv_backend") && options.rdzv_backend == "c10d";
    if (options.standalone && given.contains(name) && !same)
      note("--" + dashed(name) + " is not used: --standalone chooses c10d, a free port of localhost and an id itself");
  }
  for (const char* name : {"node_rank", "master_addr", "master_port"}) {
    if (of_c10d && given.contains(name)) {
      note("--" + dashed(name) + " is not used: it is for --rdzv-backend static; c10d meets at --rdzv-endpoint and " +
           "numbers the machines itself");
    } else if (!of_c10d && !options.rdzv_endpoint.empty() && given.contains(name) && name != std::string("node_rank")) {
      note("--" + dashed(name) + " is not used: --rdzv-endpoint comes before it");
    }
  }
}

/// Prints notes on options for lines of --tee if no stream is teed.
void note_unused_logs(const LaunchOptions& options, const LogConfig& logs) {
  const auto teed = [&](StreamSet stream) {
    return (logs.tee.all & stream) != 0 ||
           std::ranges::any_of(logs.tee.of_rank, [&](const auto& entry) { return (entry.second & stream) != 0; });
  };
  if (logs.directory == "/dev/null") {
    if (options.redirects != "0" || options.tee != "0")
      note("--redirects and --tee are not used: with --log-dir /dev/null all output goes to the console");
    return;
  }
  const auto unused = [](const std::string& option, const std::string& stream) {
    note(option + " is not used: it is about what --tee copies, and --tee copies no " + stream);
  };
  if (!logs.stdout_filters.empty() && !teed(kStdout)) unused("--duplicate-stdout-filters", "stdout");
  if (!logs.stderr_filters.empty() && !teed(kStderr)) unused("--duplicate-stderr-filters", "stderr");
  if (!options.log_line_prefix_template.empty() && !teed(kStdout | kStderr))
    unused("--log-line-prefix-template", "stream");
}

}  // namespace

void note(const std::string& text) { say("note: " + text); }

std::string dashed(std::string name) {
  std::ranges::replace(name, '_', '-');
  return name;
}

void print_notes(const LaunchOptions& options, const LaunchConfig& config, const std::set<std::string>& given) {
  const auto meaningless = [](const std::string& name) { note(name + " has no meaning here"); };
  const LaunchOptions defaults;
  if (options.start_method != defaults.start_method) meaningless("--start-method");
  if (options.event_log_handler != defaults.event_log_handler) meaningless("--event-log-handler");
  if (options.logs_specs != defaults.logs_specs) meaningless("--logs-specs");
  for (const char* name :
       {"TORCHELASTIC_HEALTH_CHECK_PORT", "TORCHELASTIC_ENABLE_FILE_TIMER", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"}) {
    if (std::getenv(name) != nullptr) meaningless(name);
  }
  note_unused_rendezvous(options, given);
  note_unused_logs(options, config.logs);
  if (config.nproc_per_node > 1 && std::getenv("OMP_NUM_THREADS") == nullptr) {
    note(
        "OMP_NUM_THREADS is not set; it is 1 for each rank, so that they do not overload this machine. Set it to what "
        "suits the program");
  }
}

}  // namespace bert
