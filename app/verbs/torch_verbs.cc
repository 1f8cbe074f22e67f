#include "app/verbs/torch_verbs.h"

#include <torch/cuda.h>
#include <torch/types.h>
#include <torch/utils.h>
#include <torch/version.h>

#include <cstdio>
#include <string>
#include <string_view>

#include "app/cli/command_line.h"
#include "app/cli/description.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "app/system/fail_point.h"
#include "app/system/machine/memory.h"
#include "app/system/torch_errors.h"
#include "app/verbs/verbs.h"
#include "cuda_ext/compat.h"

namespace bert {
namespace {

/// The LibTorch part of `bert doctor`. Returns kOk if a matrix product is right on the CPU and on every CUDA device.
int check_libtorch(int /*argc*/, char** /*argv*/) {
  const torch::Tensor ones = torch::ones({64, 64});
  bool right = torch::mm(ones, ones).eq(64).all().item<bool>();
  std::printf("%-5s %-12s LibTorch %s computes on the CPU with %d threads\n", right ? "ok" : "BAD", "LibTorch",
              TORCH_VERSION, torch::get_num_threads());
  for (c10::DeviceIndex i = 0;
       torch::cuda::is_available() && i < static_cast<c10::DeviceIndex>(torch::cuda::device_count()); ++i) {
    const torch::Device device(torch::kCUDA, i);
    const torch::Tensor on_device = torch::ones({64, 64}, device);
    const bool device_right = torch::mm(on_device, on_device).eq(64).all().item<bool>();
    right = right && device_right;
    std::printf("%-5s %-12s CUDA device %d, %s, computes\n", device_right ? "ok" : "BAD", "GPU", static_cast<int>(i),
                compat::device_name(device).c_str());
  }
  return right ? kOk : kInternal;
}

struct TorchVerb {
  std::string_view name;
  int (*run)(int argc, char** argv);
};

#define BERT_CORE_VERB(name, function, help)
#define BERT_TORCH_VERB(name, function, help) {name, function},
constexpr TorchVerb kTorchVerbs[] = {
    {"doctor", check_libtorch}, {"evaluate", evaluate_checkpoint_command}, BERT_VERBS(BERT_CORE_VERB, BERT_TORCH_VERB)};
#undef BERT_CORE_VERB
#undef BERT_TORCH_VERB

}  // namespace
}  // namespace bert

extern "C" int bert_torch_command(int argc, char** argv) {
  const std::string name = argv[0];
  const bool loads_model = name == "predict" || name == "serve" || name == "evaluate";
  loads_model ? bert::map_large_blocks() : bert::keep_large_blocks();
  const auto run = [&] {
    bert::check_fail_point();
    for (const bert::TorchVerb& verb : bert::kTorchVerbs) {
      if (name == verb.name) return verb.run(argc, argv);
    }
    throw bert::UsageError("no such verb");
  };
  return bert::guarded("bert " + name, [&] { return bert::with_plain_errors(run); });
}

extern "C" void bert_torch_describe(const char* verb, bert::CommandDescription* description) {
  for (const bert::TorchVerb& known : bert::kTorchVerbs) {
    if (known.name == verb) *description = bert::describe_command(known.run, verb);
  }
}
