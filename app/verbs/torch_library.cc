#include <cstdio>
#include <string>

#include "app/cli/description.h"
#include "app/system/exit_codes.h"
#include "app/system/machine/libbert.h"
#include "app/system/stop_signals.h"
#include "app/verbs/torch_verbs.h"
#include "app/verbs/verbs.h"
#include "data/io/error.h"

namespace bert {

CommandDescription describe_in_torch_library(const char* verb) {
  LoadProblem problem;
  const auto describe = reinterpret_cast<BertTorchDescribe>(torch_library_symbol(kBertTorchDescribeSymbol, problem));
  if (describe == nullptr) throw InputMissing("cannot load LibTorch: " + problem.reason + "; " + problem.remedy);
  CommandDescription description;
  describe(verb, &description);
  return description;
}

int run_in_torch_library(int argc, char** argv) {
  // LibTorch takes a while to load. A signal that arrives during the load must also end the run with 75, and a server
  // with 0.
  if ((traits_of(argv[0]) & kFinishesOnSignal) != 0) StopSignals::hold();
  use_huge_pages();
  LoadProblem problem;
  const auto command = reinterpret_cast<BertTorchCommand>(torch_library_symbol(kBertTorchCommandSymbol, problem));
  if (command == nullptr && problem.reason.find("failed to map") != std::string::npos)
    throw ResourceError(std::string("cannot load LibTorch: ") + problem.reason);
  if (command == nullptr) {
    std::fprintf(stderr, "bert %s: cannot load LibTorch: %s; %s\n", argv[0], problem.reason.c_str(),
                 problem.remedy.c_str());
    return kInputMissing;
  }
  return command(argc, argv);
}

}  // namespace bert
