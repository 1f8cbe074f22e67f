#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "app/cli/command_line.h"
#include "app/cli/description.h"
#include "app/plan/phases.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "app/verbs/verbs.h"

namespace bert {

int plan_command(int argc, char** argv) {
  CLI::App app(
      "Predicts the time of a step, the memory of a GPU and the days of a pre-training run, or of its phases.\n"
      "Example: bert plan configs/pretrain-phase1.json configs/pretrain-phase2.json --length 128,512 --gpus 8 --nodes "
      "4",
      "bert plan");
  PlanOptions options;
  std::vector<std::string> arguments;
  bool json = false;
  app.add_option("CONFIG", arguments, "configurations, one for each phase, and overrides a.b.c=value for all of them")
      ->type_name(std::string("CONFIG, ") + kKeyValue)
      ->required();
  app.add_option("--gpus", options.gpus, "GPUs of each node")
      ->check(number_in<int64_t>(1, 1024))
      ->capture_default_str();
  app.add_option("--nodes", options.nodes, "machines")->check(number_in<int64_t>(1, 100000))->capture_default_str();
  app.add_option("--network", options.network,
                 "network between nodes: NDR, HDR or EDR (InfiniBand), 400GbE, 200GbE, 100GbE, 25GbE, 10GbE")
      ->capture_default_str();
  app.add_option("--gpu", options.gpu, "model of the GPU: h200, h100, a100, a100-40gb or v100")->capture_default_str();
  app.add_option("--length", options.lengths,
                 "tokens of a sequence, one number for each CONFIG; default: the mean of data.train")
      ->delimiter(',')
      ->allow_extra_args(false)  // configurations and overrides may follow
      ->check(number_in<int64_t>(1, 65536));
  app.add_option("--mfu", options.mfu,
                 "share of the GPU's peak that forward and backward reach, without a measurement (NVIDIA's code: 0.45)")
      ->check(number_in(0.001, 1.0))
      ->capture_default_str();
  app.add_option("--measured", options.measured,
                 "output of `bert benchmark step --json` on one GPU, of the same model, precision and "
                 "length; a file for each CONFIG")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_flag("--json", json, "a line of JSON for each CONFIG, and for each size of its batches");
  if (!parse_command_line(app, argc, argv)) return kOk;

  std::vector<std::string> paths;
  for (const std::string& argument : arguments)
    (argument.find('=') == std::string::npos ? paths : options.overrides).push_back(argument);
  if (paths.empty()) throw UsageError("no CONFIG was given; see bert plan --help");
  if (options.lengths.size() > paths.size() || options.measured.size() > paths.size())
    throw UsageError("more values for an option than CONFIGs; see bert plan --help");
  cluster_of(options);  // throws before the work
  std::vector<Phase> phases;
  for (size_t i = 0; i < paths.size(); ++i) {
    for (Phase& phase : plan_phases(paths[i], options, i)) phases.push_back(std::move(phase));
  }
  if (json) {
    for (const Phase& phase : phases) fmt::print("{}\n", to_json(phase).dump());
  } else {
    print_plan(phases, options);
  }
  return kOk;
}

}  // namespace bert
