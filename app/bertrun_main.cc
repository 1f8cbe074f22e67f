// bertrun: a launcher with torchrun's contract.
#include "app/exit_codes.h"
#include "app/launcher.h"

int main(int argc, char** argv) {
  return bert::guarded("bertrun", [&] {
    bert::LaunchConfig config;
    return bert::parse_launch_command(argc, argv, config) ? bert::launch(config) : bert::kOk;
  });
}
