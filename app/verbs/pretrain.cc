#include "app/train/pretrain.h"

#include <csignal>
#include <string>
#include <vector>

#include "app/cli/command_line.h"
#include "app/cli/description.h"
#include "app/config/pretrain_config.h"
#include "app/system/exit_codes.h"
#include "app/verbs/verbs.h"

namespace bert {

int pretrain_command(int argc, char** argv) {
  CLI::App app(
      "Pre-trains as CONFIG.json says, from the newest valid checkpoint of the run directory if there is one.\n"
      "a.b=value sets a key of the configuration. SIGTERM, SIGINT, SIGUSR1 and SIGHUP save a checkpoint and end the "
      "run with "
      "75.\n"
      "Example: bert pretrain configs/quickstart.json max_steps=500 optimizer.lr=1e-3",
      "bert pretrain");
  std::string path;
  std::vector<std::string> overrides;
  bool allow_config_change = false;
  int64_t from_step = 0;
  app.add_option("config", path, "CONFIG.json")->required();
  app.add_option("overrides", overrides, "a.b=value")->type_name(kKeyValue);
  app.add_flag("--allow-config-change", allow_config_change,
               "resume even if the configuration differs from the checkpoint's");
  app.add_option("--from-step", from_step,
                 "branch the run initial_checkpoint at this step into a new run_directory; sets the key from_step")
      ->type_name("STEP");
  if (!parse_command_line(app, argc, argv)) return kOk;
  if (from_step != 0) overrides.push_back("from_step=" + std::to_string(from_step));
  // The result of a run is its run directory. So the run continues, and its exit code does not change, if the reader of
  // its output has closed the pipe.
  std::signal(SIGPIPE, SIG_IGN);
  return pretrain(load_pretrain_config(path, overrides), allow_config_change);
}

}  // namespace bert
