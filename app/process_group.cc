#include "app/process_group.h"

#include <ATen/ATen.h>

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#ifdef USE_C10D_NCCL
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <set>
#include <sstream>
#include <utility>

#include "app/collective_monitor.h"
#include "app/config.h"
#include "app/distributed_environment.h"
#include "app/exit_codes.h"
#include "app/monitored_backend.h"

namespace bert {
namespace {

using std::chrono::milliseconds;

struct Place {
  std::string file;  // of file://; else
  std::string host;
  int64_t port = 0;
};

Place parse_init_method(const std::string& text, const DistributedEnvironment& environment) {
  if (text == "env://") return {.file = "", .host = environment.master_addr, .port = environment.master_port};
  if (text.starts_with("file://") && text.size() > 8 && text[7] == '/') return {.file = text.substr(7), .host = ""};
  if (text.starts_with("tcp://")) {
    const size_t colon = text.rfind(':');
    Place place{.file = "", .host = text.substr(6, colon - 6)};
    const char* end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data() + colon + 1, end, place.port);
    constexpr int64_t kHighestPort = 65535;
    if (error == std::errc() && rest == end && !place.host.empty() && place.port >= 1 && place.port <= kHighestPort) {
      return place;
    }
  }
  throw ConfigError("distributed.init_method \"" + text + "\": expected env://, tcp://HOST:PORT or file:///PATH");
}

std::string variable_or(const char* name, const std::string& fallback) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : fallback;
}

c10::intrusive_ptr<c10d::Store> make_store(const Place& place, int rank, int size, milliseconds timeout) {
  if (!place.file.empty()) return c10::make_intrusive<c10d::FileStore>(place.file, size);
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(place.port);
  options.isServer = rank == 0 && variable_or("TORCHELASTIC_USE_AGENT_STORE", "") != "True";
  options.timeout = timeout;
  options.waitWorkers = false;
  return c10::make_intrusive<c10d::TCPStore>(place.host, options);
}

/// Gloo's sockets: on the interfaces of GLOO_SOCKET_IFNAME (names with commas between), as in torch; else where the
/// machine's name leads.
std::vector<std::shared_ptr<gloo::transport::Device>> gloo_devices() {
  std::vector<std::shared_ptr<gloo::transport::Device>> devices;
  std::istringstream names(variable_or("GLOO_SOCKET_IFNAME", ""));
  for (std::string name; std::getline(names, name, ',');) {
    if (!name.empty()) devices.push_back(c10d::ProcessGroupGloo::createDeviceForInterface(name));
  }
  if (devices.empty()) devices.push_back(c10d::ProcessGroupGloo::createDefaultDevice());
  return devices;
}

/// Gloo, and NCCL where it is asked for, over `store`; every collective monitored.
ProcessGroupPtr make_group(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                           const ProcessGroupOptions& options) {
  using Type = c10d::ProcessGroup::BackendType;
  const milliseconds timeout(1000 * options.timeout_seconds);
  const bool nccl = options.backend == "nccl" || (options.backend == "auto" && options.cuda);
  auto group = c10::make_intrusive<c10d::ProcessGroup>(store, rank, size);
  const auto monitor = std::make_shared<CollectiveMonitor>(store, rank, size, timeout);

  const auto gloo_options = c10d::ProcessGroupGloo::Options::create(timeout);
  gloo_options->devices = gloo_devices();
  const auto gloo =
      make_monitored_backend(c10::make_intrusive<c10d::ProcessGroupGloo>(
                                 c10::make_intrusive<c10d::PrefixStore>("gloo", store), rank, size, gloo_options),
                             monitor, {.debug = options.debug, .works_block = true});
  group->setDefaultBackend(nccl ? Type::NCCL : Type::GLOO);
  group->setBackend(at::kCPU, Type::GLOO, gloo);
  if (options.cuda && !nccl) group->setBackend(at::kCUDA, Type::GLOO, gloo);
  if (!nccl) return group;
#ifdef USE_C10D_NCCL
  auto nccl_options = c10d::ProcessGroupNCCL::Options::create();
  constexpr int64_t kLater = 10;  // seconds: the monitor's message comes first
  nccl_options->timeout = timeout + std::chrono::seconds(kLater);
  group->setBackend(
      at::kCUDA, Type::NCCL,
      make_monitored_backend(c10::make_intrusive<c10d::ProcessGroupNCCL>(
                                 c10::make_intrusive<c10d::PrefixStore>("nccl", store), rank, size, nccl_options),
                             monitor, {.debug = options.debug, .works_block = false}));
  return group;
#else
  throw ConfigError("distributed.backend nccl: this build has no NCCL; build with app/setup.sh --cuda");
#endif
}

}  // namespace

ProcessGroupPtr init_process_group(const ProcessGroupOptions& options) {
  DistributedEnvironment environment;
  if (options.rank < 0 || options.world_size < 0) environment = distributed_environment();
  if (options.rank >= 0) environment.rank = options.rank;
  if (options.world_size >= 0) environment.world_size = options.world_size;
  const auto rank = static_cast<int>(environment.rank), size = static_cast<int>(environment.world_size);
  if (size < 1 || rank >= size) {
    throw ConfigError("rank " + std::to_string(rank) + " of " + std::to_string(size) + " ranks cannot be");
  }
  if (!std::set<std::string>{"auto", "gloo", "nccl"}.count(options.backend)) {
    throw ConfigError("distributed.backend \"" + options.backend + "\": expected auto, gloo or nccl");
  }
  if (size == 1) return nullptr;
  const Place place = parse_init_method(options.init_method, environment);
  const std::string where = place.file.empty() ? place.host + ":" + std::to_string(place.port) : place.file;
  const std::string who = "rank " + std::to_string(rank) + " of " + std::to_string(size) +
                          (environment.source.empty() ? "" : " (" + environment.source + ")");
  const milliseconds timeout(1000 * options.timeout_seconds);
  set_phase("joining");
  try {
    const auto store = c10::make_intrusive<c10d::PrefixStore>("bert/" + variable_or("TORCHELASTIC_RESTART_COUNT", "0"),
                                                              make_store(place, rank, size, timeout));
    join_through_store(
        *store, "join", rank, size, timeout,
        who + " waited at " + where + "; are they all started, with the same address and number of ranks?");
    return make_group(store, rank, size, options);
  } catch (const c10::Error& error) {
    throw PeerError(who + " could not join at " + where + " within " + std::to_string(options.timeout_seconds) +
                    " s: is rank 0 started and reachable there, and the port free? (" +
                    std::string(error.what_without_backtrace()).substr(0, 200) + ")");
  }
}

ProcessGroupPtr new_group(const ProcessGroupPtr& group, const std::vector<int>& ranks,
                          const ProcessGroupOptions& options) {
  static int groups = 0;  // the same on every rank, as all make the same groups
  const std::string name = "group/" + std::to_string(groups++);
  const std::set<int> distinct(ranks.begin(), ranks.end());
  if (ranks.empty() || distinct.size() != ranks.size() || *distinct.begin() < 0 ||
      *distinct.rbegin() >= get_world_size(group)) {
    throw ConfigError("new_group: " + describe_ranks(ranks) + " of " + std::to_string(get_world_size(group)) +
                      ": expected each once, from 0");
  }
  const auto found = std::find(ranks.begin(), ranks.end(), get_rank(group));
  if (found == ranks.end() || ranks.size() == 1) return nullptr;
  return make_group(c10::make_intrusive<c10d::PrefixStore>(name, group->getStore()),
                    static_cast<int>(found - ranks.begin()), static_cast<int>(ranks.size()), options);
}

int get_rank(const ProcessGroupPtr& group) { return group ? group->getRank() : 0; }

int get_world_size(const ProcessGroupPtr& group) { return group ? group->getSize() : 1; }

void barrier(const ProcessGroupPtr& group) {
  if (group) group->barrier()->wait();
}

void all_reduce(const ProcessGroupPtr& group, const at::Tensor& tensor, c10d::ReduceOp op) {
  if (!group) return;
  c10d::AllreduceOptions options;
  options.reduceOp = std::move(op);
  std::vector<at::Tensor> tensors{tensor};
  group->allreduce(tensors, options)->wait();
}

void broadcast(const ProcessGroupPtr& group, const at::Tensor& tensor, int src) {
  if (!group) return;
  c10d::BroadcastOptions options;
  options.rootRank = src;
  std::vector<at::Tensor> tensors{tensor};
  group->broadcast(tensors, options)->wait();
}

std::vector<at::Tensor> all_gather(const ProcessGroupPtr& group, const at::Tensor& tensor) {
  if (!group) return {tensor.clone()};
  std::vector<at::Tensor> inputs{tensor.contiguous()};
  std::vector<std::vector<at::Tensor>> outputs(1);
  for (int r = 0; r < group->getSize(); ++r) outputs[0].push_back(at::empty_like(inputs[0]));
  group->allgather(outputs, inputs)->wait();
  return outputs[0];
}

at::Tensor reduce_scatter(const ProcessGroupPtr& group, const at::Tensor& input, c10d::ReduceOp op) {
  TORCH_CHECK_VALUE(input.dim() > 0 && input.size(0) % get_world_size(group) == 0, "reduce_scatter: the input is ",
                    input.sizes(), ", its first size must be a multiple of the ", get_world_size(group), " ranks");
  if (!group) return input.clone();
  std::vector<int64_t> sizes = input.sizes().vec();
  sizes[0] /= group->getSize();
  at::Tensor output = at::empty(sizes, input.options()), whole = input.contiguous();
  c10d::ReduceScatterOptions options;
  options.reduceOp = std::move(op);
  group->_reduce_scatter_base(output, whole, options)->wait();
  return output;
}

bool AgreedFlag::exchange(bool value) {
  if (!group_) return answer_ = answer_ || value;
  if (work_) {
    work_->wait();
    answer_ = answer_ || sum_.item<int64_t>() > 0;
  }
  sum_ = at::full({1}, value ? 1 : 0, at::kLong);
  std::vector<at::Tensor> tensors{sum_};
  work_ = group_->allreduce(tensors);
  return answer_;
}

}  // namespace bert
