#include "app/launcher/ranks/worker_environment.h"

#include <cstdlib>

#include "app/net/network_interfaces.h"
#include "app/system/environment.h"
#include "app/system/errors.h"
#include "data/io/text_parts.h"

namespace bert {
namespace {

/// The GPU of the rank under --virtual-local-rank: its entry of CUDA_VISIBLE_DEVICES, or its number.
std::string only_gpu(int64_t local_rank) {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible == nullptr) return std::to_string(local_rank);
  const std::vector<std::string> items = split(visible, ',');  // "" is one empty entry: no GPU
  if (local_rank >= std::ssize(items)) {
    throw UsageError("--virtual-local-rank: local rank " + std::to_string(local_rank) +
                     " has no GPU in CUDA_VISIBLE_DEVICES=" + visible);
  }
  return std::string(trimmed(items[static_cast<size_t>(local_rank)]));
}

}  // namespace

std::map<std::string, std::string> worker_environment(const LaunchConfig& config, const Assignment& assignment,
                                                      const StoreAddress& store, int64_t local_rank,
                                                      const std::string& error_file) {
  const auto text = [](int64_t number) { return std::to_string(number); };
  std::map<std::string, std::string> result = {
      {"RANK", text(assignment.first_rank + local_rank)},
      {"WORLD_SIZE", text(assignment.world_size)},
      {"LOCAL_RANK", text(config.virtual_local_rank ? 0 : local_rank)},
      {"LOCAL_WORLD_SIZE", text(config.nproc_per_node)},
      {"GROUP_RANK", text(assignment.group_rank)},
      {"GROUP_WORLD_SIZE", text(assignment.group_world_size)},
      {"ROLE_NAME", config.role},
      {"ROLE_RANK", text(assignment.first_role_rank + local_rank)},
      {"ROLE_WORLD_SIZE", text(assignment.role_world_size)},
      {"MASTER_ADDR", store.host},
      {"MASTER_PORT", text(store.port)},
      {"TORCHELASTIC_RESTART_COUNT", text(assignment.restart_count)},
      {"TORCHELASTIC_MAX_RESTARTS", text(config.max_restarts)},
      {"TORCHELASTIC_RUN_ID", config.rendezvous.id},
      {"TORCHELASTIC_USE_AGENT_STORE", "True"},
      {"TORCHELASTIC_ERROR_FILE", error_file},
      {"TORCHELASTIC_SIGNALS_TO_HANDLE", config.signals_to_handle},
      {"TORCH_NCCL_ASYNC_ERROR_HANDLING", variable_or("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")},
  };
  if (!store.local_address.empty()) result[kLocalAddressVariable] = store.local_address;
  if (config.nproc_per_node > 1) result["OMP_NUM_THREADS"] = variable_or("OMP_NUM_THREADS", "1");
  if (config.virtual_local_rank) result["CUDA_VISIBLE_DEVICES"] = only_gpu(local_rank);
  return result;
}

std::vector<std::string> worker_command(const LaunchConfig& config, int64_t local_rank) {
  std::vector<std::string> result = config.command;
  for (size_t i = 1; i < result.size(); ++i)
    result[i] = replaced(result[i], "${local_rank}", std::to_string(local_rank));
  return result;
}

std::string log_prefix(const LaunchConfig& config, const Assignment& assignment, int64_t local_rank) {
  return substitute(config.logs.prefix_template, {{"role_name", config.role},
                                                  {"rank", std::to_string(assignment.first_rank + local_rank)},
                                                  {"local_rank", std::to_string(local_rank)},
                                                  {"hostname", config.rendezvous.local_addr}});
}

}  // namespace bert
