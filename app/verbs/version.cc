#include <cstdio>

#include "app/cli/command_line.h"
#include "app/system/exit_codes.h"
#include "app/verbs/verbs.h"

namespace bert {

int version_command(int argc, char** argv) {
  CLI::App app(
      "Prints the versions of bert and of the LibTorch that it was built with; bert doctor loads LibTorch.\n"
      "Example: bert version",
      "bert version");
  if (!parse_command_line(app, argc, argv)) return kOk;
  std::printf("bert %s\nLibTorch %s, %s\n", BERT_VERSION, BERT_TORCH_VERSION,
              BERT_WITH_CUDA ? "built with CUDA" : "built for the CPU");
  return kOk;
}

}  // namespace bert
