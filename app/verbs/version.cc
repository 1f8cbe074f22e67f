#include <cstdio>
#include <string>

#include "app/cli/command_line.h"
#include "app/system/exit_codes.h"
#include "app/system/machine/libbert.h"
#include "app/verbs/torch_verbs.h"
#include "app/verbs/verbs.h"

namespace bert {

int version_command(int argc, char** argv) {
  CLI::App app("Prints the versions of bert and LibTorch.\nExample: bert version", "bert version");
  if (!parse_command_line(app, argc, argv)) return kOk;
  std::printf("bert %s\n", BERT_VERSION);
  LoadProblem problem;
  if (const auto command = reinterpret_cast<BertTorchCommand>(torch_library_symbol(kBertTorchCommandSymbol, problem))) {
    std::fflush(stdout);
    char name[] = "version";  // argv[0] may be --version
    char* arguments[] = {name, nullptr};
    return command(1, arguments);
  }
  std::printf("LibTorch does not load: %s; %s\n", problem.reason.c_str(), problem.remedy.c_str());
  return kOk;
}

}  // namespace bert
