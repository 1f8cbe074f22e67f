#include "app/launcher/launcher.h"

#include "app/launcher/agent.h"
#include "app/launcher/settings/options.h"
#include "app/system/exit_codes.h"

namespace bert {

int launch_command(int argc, char** argv) {
  const auto config = parse_launch_command(argc, argv);
  return config ? run_agent(*config) : kOk;
}

}  // namespace bert
