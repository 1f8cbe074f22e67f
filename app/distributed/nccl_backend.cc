#include "app/distributed/nccl_backend.h"

#ifdef USE_C10D_NCCL
#include <ATen/cuda/CUDAContext.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "app/distributed/rank_lines.h"
#include "app/system/errors.h"
#include "app/system/torch_errors.h"
#include "data/io/files.h"

namespace bert {
namespace {

#ifdef USE_C10D_NCCL
/// Gives a variable of LibTorch a value that the user has not set.
void set_default(const char* name, const std::string& value) { setenv(name, value.c_str(), /*overwrite=*/0); }

/// Note [LibTorch's watchdog of NCCL]
/// Its thread ends the process with SIGABRT: after a collective's own timeout, a minute after an error of NCCL, and if
/// the thread itself makes no progress for TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC, 480 s by default. Our monitor must come
/// first, as it names the missing ranks (Note [Deadline of an asynchronous call]). So LibTorch's times are longer than
/// distributed.timeout_seconds. After an error the watchdog also writes the key "exception_dump" into the store,
/// outside of all prefixes. The ranks of a restarted job would read it there and end 480 s later.
/// TORCH_NCCL_DUMP_ON_TIMEOUT=0 turns the reading off. A value that the user has set stays.
void keep_watchdog_behind(std::chrono::seconds timeout) {
  constexpr int64_t kDefaultHeartbeat = 480;
  set_default("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC",
              std::to_string(std::max<int64_t>(timeout.count(), kDefaultHeartbeat)));
  set_default("TORCH_NCCL_DUMP_ON_TIMEOUT", "0");
}
#endif

}  // namespace

#ifdef USE_C10D_NCCL
c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                                    const NcclOptions& options) {
  constexpr std::chrono::seconds kAfterMonitor(10), kWatchdogAfterMonitor(120);
  keep_watchdog_behind(std::chrono::duration_cast<std::chrono::seconds>(options.timeout) + kWatchdogAfterMonitor);
  auto nccl = c10d::ProcessGroupNCCL::Options::create();
  nccl->timeout = options.timeout + kAfterMonitor;
  auto backend = c10::make_intrusive<c10d::ProcessGroupNCCL>(c10::make_intrusive<c10d::PrefixStore>("nccl", store),
                                                             options.rank, options.size, nccl);
  backend->setBoundDeviceId(options.device);
  return backend;
}

Gpu gpu_of(c10::Device device) {
  if (!device.is_cuda())
    throw ConfigError("distributed.backend nccl: needs device cuda, and this rank computes on the CPU");
  constexpr int kMostLetters = 256;
  char host_name[kMostLetters] = {};
  gethostname(host_name, kMostLetters - 1);
  const cudaDeviceProp& properties = *at::cuda::getDeviceProperties(device.index());
  return {.machine = first_line(read_file("/proc/sys/kernel/random/boot_id")),
          .host_name = host_name,
          .address =
              fmt::format("{:04x}:{:02x}:{:02x}", properties.pciDomainID, properties.pciBusID, properties.pciDeviceID),
          .visible = at::cuda::device_count()};
}
#else
c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const c10::intrusive_ptr<c10d::Store>&, const NcclOptions&) {
  throw ConfigError("distributed.backend nccl: this build has no NCCL; build with app/setup.sh --cuda");
}

Gpu gpu_of(c10::Device) {
  throw ConfigError("distributed.backend nccl: this build has no NCCL; build with app/setup.sh --cuda");
}
#endif

void expect_own_gpu(c10d::Store& store, int rank, int size, const Gpu& gpu) {
  const std::string conflict = "gpu/conflict", verdict = "gpu/verdict", ranks_of = "gpu/ranks/";
  const std::string own = std::to_string(rank), none;
  store.add(ranks_of + gpu.machine, 1);
  const std::string owner = store.compareSet("gpu/" + gpu.machine + "/" + gpu.address, none, own);
  if (owner != own) {  // two lines: the machine, and the begin of the message
    const auto [lower, higher] = std::minmax({std::stoi(owner), rank});
    store.compareSet(
        conflict, none,
        fmt::format("{}\nranks {} and {} would share the GPU at {} of {}, where each sees {} GPU{}", gpu.machine, lower,
                    higher, gpu.address, gpu.host_name, gpu.visible, gpu.visible == 1 ? "" : "s"));
  }
  if (store.add("gpu/ranks", 1) == size) {
    std::string message;
    if (store.check({conflict})) {
      const std::string found = store.get_to_str(conflict);
      const size_t end = found.find('\n');
      message = fmt::format(
          "{} and {} ranks run: NCCL needs a GPU for each rank of a machine; start at most as many ranks there as it "
          "has GPUs (--nproc-per-node gpu), or choose distributed.backend=gloo",
          found.substr(end + 1), store.add(ranks_of + found.substr(0, end), 0));
    }
    store.set(verdict, "." + message);  // never empty
  }
  const std::string message = store.get_to_str(verdict).substr(1);
  if (message.empty()) return;
  if (rank == 0) std::this_thread::sleep_for(Pace(size).linger);
  throw ConfigError(message);
}

}  // namespace bert
