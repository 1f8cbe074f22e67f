// The program `bertrun`: a launcher with torchrun's contract. app/launcher/launcher.h describes its design.
#include "app/launcher/launcher.h"
#include "app/system/exit_codes.h"
#include "app/system/standard_streams.h"

int main(int argc, char** argv) {
  bert::occupy_standard_streams();
  return bert::guarded("bertrun", [&] { return bert::launch_command(argc, argv); });
}
