#include "app/verbs/torch_verbs.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/cuda.h>
#include <torch/types.h>
#include <torch/utils.h>
#include <torch/version.h>

#include <cstdio>
#include <string>
#include <string_view>

#include "app/cli/command_line.h"
#include "app/cli/description.h"
#include "app/device/device.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "app/system/fail_point.h"
#include "app/system/machine/memory.h"
#include "app/system/resource_limits.h"
#include "app/system/torch_errors.h"
#include "app/verbs/verbs.h"
#include "cuda_ext/compat.h"
#include "cuda_ext/instruction_sets.h"

namespace bert {
namespace {

/// True if a matrix product is right there.
bool computes(torch::Device device) {
  const torch::Tensor ones = torch::ones({64, 64}, device);
  return torch::mm(ones, ones).eq(64).all().item<bool>();
}

void print_gpu(const char* mark, const std::string& text) { std::printf("%-5s %-12s %s\n", mark, "GPU", text.c_str()); }

/// The lines of `bert doctor` about GPUs. Returns false if something is BAD.
bool check_gpus() {
  if (!torch::cuda::is_available()) {
    const compat::NoDevice none = compat::why_no_device();
    print_gpu(none.remedy.empty() ? "note" : "BAD",
              "no CUDA device: " + none.reason + (none.remedy.empty() ? "" : " -> " + none.remedy));
    return none.remedy.empty();
  }
  bool right = true;
  for (c10::DeviceIndex i = 0; i < static_cast<c10::DeviceIndex>(torch::cuda::device_count()); ++i) {
    const torch::Device device(torch::kCUDA, i);
    std::string text = "CUDA device " + std::to_string(i) + ", " + compat::device_name(device);
    try {
      const bool device_right = computes(device);
      constexpr double kGigabyte = 1e9;
      char memory[64];
      std::snprintf(memory, sizeof memory, "; %.1f GB of memory, %.1f GB free",
                    static_cast<double>(compat::total_memory(device)) / kGigabyte,
                    static_cast<double>(compat::free_memory(device)) / kGigabyte);
      text += device_right ? std::string(", computes") + memory : ", computes wrongly -> do not use it";
      print_gpu(device_right ? "ok" : "BAD", text);
      right = right && device_right;
    } catch (const c10::Error& error) {
      print_gpu("BAD", text + ", does not compute: " + first_line(error.what_without_backtrace()) +
                           " -> look at nvidia-smi and at the kernel's log (dmesg)");
      right = false;
    }
  }
  return right;
}

struct TorchVerb {
  std::string_view name;
  int (*run)(int argc, char** argv);
};

#define BERT_CORE_VERB(name, function, traits, help)
#define BERT_TORCH_VERB(name, function, traits, help) {name, function},
#define BERT_BOTH_VERB(name, function, torch_function, traits, help) {name, torch_function},
constexpr TorchVerb kTorchVerbs[] = {BERT_VERBS(BERT_CORE_VERB, BERT_TORCH_VERB, BERT_BOTH_VERB)};
#undef BERT_CORE_VERB
#undef BERT_TORCH_VERB
#undef BERT_BOTH_VERB

}  // namespace

/// Returns kOk if a matrix product is right on the CPU and on every CUDA device, kInternal if it is not on the CPU, and
/// kInputMissing if something else is BAD.
int doctor_torch_command(int /*argc*/, char** /*argv*/) {
  const bool right = computes(torch::kCPU);
  std::printf("%-5s %-12s LibTorch %s computes on the CPU with %d threads\n", right ? "ok" : "BAD", "LibTorch",
              TORCH_VERSION, torch::get_num_threads());
  std::string rates;
  for (const auto& [precision, rate] : product_rates()) rates += fmt::format(", {} {:.2f} TFLOP/s", precision, rate);
  std::printf("%-5s %-12s %s%s\n", "ok", "instructions", instruction_sets().c_str(), rates.c_str());
  const bool gpus_right = check_gpus();
  if (!right) return kInternal;
  return gpus_right ? kOk : kInputMissing;
}

}  // namespace bert

extern "C" int bert_torch_command(int argc, char** argv) {
  const std::string name = argv[0];
  (bert::traits_of(name) & bert::kReadsModel) != 0 ? bert::map_large_blocks() : bert::keep_large_blocks();
  bert::catch_errors_of_threads();
  const auto run = [&] {
    bert::check_fail_point();
    bert::expect_threads(at::get_num_threads());
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
