#include <cstdio>
#include <string_view>

#include "app/system/exit_codes.h"
#include "app/system/machine/libbert.h"
#include "app/system/stop_signals.h"
#include "app/verbs/torch_verbs.h"

namespace bert {

int run_in_torch_library(int argc, char** argv) {
  // LibTorch takes a while to load. A signal that arrives during the load must also end the run with 75, and a server
  // with 0.
  for (const std::string_view verb : {"pretrain", "finetune", "serve"}) {
    if (argv[0] == verb) StopSignals::hold();
  }
  LoadProblem problem;
  const auto command = reinterpret_cast<BertTorchCommand>(torch_library_symbol(kBertTorchCommandSymbol, problem));
  if (command == nullptr) {
    std::fprintf(stderr, "bert %s: cannot load LibTorch: %s; %s\n", argv[0], problem.reason.c_str(),
                 problem.remedy.c_str());
    return kInputMissing;
  }
  return command(argc, argv);
}

}  // namespace bert
