#include "app/process_group.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#ifdef USE_C10D_NCCL
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif

#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "app/config.h"
#include "app/exit_codes.h"

namespace bert {
namespace {

int64_t integer_variable(const char* name, int64_t fallback, int64_t lowest, int64_t highest) {
  const char* text = std::getenv(name);
  if (text == nullptr) return fallback;
  int64_t value = 0;
  const char* end = text + std::strlen(text);
  const auto [rest, error] = std::from_chars(text, end, value);
  if (error != std::errc() || rest != end || value < lowest || value > highest) {
    throw ConfigError(std::string(name) + "=" + text + ": expected an integer from " + std::to_string(lowest) + " to " +
                      std::to_string(highest) + "; bertrun and torchrun set it");
  }
  return value;
}

}  // namespace

DistributedEnvironment distributed_environment() {
  constexpr int64_t kMostRanks = 1 << 20, kHighestPort = 65535;
  DistributedEnvironment result;
  result.world_size = integer_variable("WORLD_SIZE", 1, 1, kMostRanks);
  result.rank = integer_variable("RANK", 0, 0, result.world_size - 1);
  result.local_rank = integer_variable("LOCAL_RANK", 0, 0, result.world_size - 1);
  result.master_port = integer_variable("MASTER_PORT", 29500, 1, kHighestPort);  // 29500: torchrun's default
  const char* address = std::getenv("MASTER_ADDR");
  result.master_addr = address != nullptr ? address : "127.0.0.1";
  if (result.world_size > 1 && std::getenv("RANK") == nullptr) {
    throw ConfigError("WORLD_SIZE=" + std::to_string(result.world_size) +
                      " without RANK: start ranks with bertrun or torchrun");
  }
  return result;
}

c10::intrusive_ptr<c10d::ProcessGroup> init_process_group(const DistributedEnvironment& environment, bool cuda,
                                                          int64_t timeout_seconds) {
  if (environment.world_size == 1) return nullptr;
  const std::string address = environment.master_addr + ":" + std::to_string(environment.master_port);
  const auto timeout = std::chrono::milliseconds(1000 * timeout_seconds);
  const auto rank = static_cast<int>(environment.rank), size = static_cast<int>(environment.world_size);
  try {
    c10d::TCPStoreOptions options;
    options.port = static_cast<uint16_t>(environment.master_port);
    // torchrun's agent already holds a store there; without one, rank 0 does.
    const char* agent_store = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
    options.isServer = environment.rank == 0 && !(agent_store != nullptr && std::string(agent_store) == "True");
    options.timeout = timeout;
    options.waitWorkers = false;
    const auto tcp = c10::make_intrusive<c10d::TCPStore>(environment.master_addr, options);
    const char* restart = std::getenv("TORCHELASTIC_RESTART_COUNT");
    const auto store =
        c10::make_intrusive<c10d::PrefixStore>(std::string("bert/") + (restart != nullptr ? restart : "0"), tcp);
    auto group = c10::make_intrusive<c10d::ProcessGroup>(store, rank, size);
#ifdef USE_C10D_NCCL
    if (cuda) {
      auto nccl_options = c10d::ProcessGroupNCCL::Options::create();
      nccl_options->timeout = timeout;
      group->setDefaultBackend(c10d::ProcessGroup::BackendType::NCCL);
      group->setBackend(at::kCUDA, c10d::ProcessGroup::BackendType::NCCL,
                        c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, nccl_options));
      return group;
    }
#else
    TORCH_CHECK(!cuda, "this build has no NCCL; build with app/setup.sh --cuda");
#endif
    const auto gloo_options = c10d::ProcessGroupGloo::Options::create(timeout);
    gloo_options->devices.push_back(c10d::ProcessGroupGloo::createDefaultDevice());
    group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
    group->setBackend(at::kCPU, c10d::ProcessGroup::BackendType::GLOO,
                      c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, gloo_options));
    return group;
  } catch (const std::exception& error) {
    throw PeerError("rank " + std::to_string(rank) + " of " + std::to_string(size) + " could not join at " + address +
                    " within " + std::to_string(timeout_seconds) +
                    " s: are all ranks started, is MASTER_ADDR reachable? (" +
                    std::string(error.what()).substr(0, 200) + ")");
  }
}

}  // namespace bert
