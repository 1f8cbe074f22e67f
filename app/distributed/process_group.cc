#include "app/distributed/process_group.h"

#include <ATen/ATen.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "app/distributed/answer_within.h"
#include "app/distributed/collective_monitor.h"
#include "app/distributed/environment.h"
#include "app/distributed/gloo_backend.h"
#include "app/distributed/monitored_backend.h"
#include "app/distributed/nccl_backend.h"
#include "app/distributed/rounds.h"
#include "app/distributed/store_waits.h"
#include "app/net/network_interfaces.h"
#include "app/net/socket.h"
#include "app/system/environment.h"
#include "app/system/error_report.h"
#include "app/system/errors.h"
#include "app/system/machine/descriptor_limit.h"
#include "app/system/rank_state.h"
#include "app/system/stop_signals.h"
#include "app/system/torch_errors.h"
#include "data/io/error.h"

namespace bert {
namespace {

using std::chrono::milliseconds;

/// The stores of the groups that this file has made. LibTorch 2.8 has no accessor for the store of a group.
struct KnownGroup {
  c10::weak_intrusive_ptr<c10d::ProcessGroup> group;  // reserves the address of the group, the key of the map
  c10::weak_intrusive_ptr<c10d::Store> store;
};

std::map<const c10d::ProcessGroup*, KnownGroup>& known_groups() {
  static std::map<const c10d::ProcessGroup*, KnownGroup> groups;
  return groups;
}

/// Throws Preempted after a signal. A run that has not joined has nothing to save.
void stop_if_asked() {
  if (StopSignals::arrived())
    throw Preempted("stopped by a signal before all ranks had come; nothing was done, run again");
}

/// answer_within() that a signal ends (Preempted).
template <class Result>
std::optional<Result> wait_for(std::function<Result()> work, milliseconds timeout) {
  return answer_within<Result>(timeout, std::move(work), stop_if_asked);
}

/// join_through_store() that a signal ends (Preempted). Throws c10::Error if the holder of the store is stopped: the
/// answers of the store then never come.
void meet(const c10::intrusive_ptr<c10d::Store>& store, const Meeting& meeting) {
  const auto met = wait_for<bool>(
      [store, meeting] {
        join_through_store(*store, meeting);
        return true;
      },
      meeting.timeout + kAfterOwnTimeout);
  TORCH_CHECK(met, "no answer");
}

/// Throws ConfigError if the directory of a store file is unusable. FileStore itself would retry for minutes.
void check_store_file(const std::string& path) {
  const std::string directory = std::filesystem::path(path).parent_path();
  const bool is_directory = std::filesystem::is_directory(directory);
  if (is_directory && access(directory.c_str(), W_OK) == 0) return;
  throw ConfigError("distributed.init_method file://" + path + ": " + directory +
                    (is_directory ? " cannot be written to" : " is no directory") +
                    "; name a file in a directory that all ranks share");
}

/// A listening socket for rank 0's store, on the address of the place alone, if that is an address of this machine or
/// localhost; TCPStore itself would listen on every interface. None for another name, which may stand for other
/// addresses on other machines (Debian maps a machine's own name to 127.0.1.1 on that machine), and for the address of
/// a proxy. Throws IoError.
Descriptor listen_on_address(const StorePlace& place) {
  const bool known = place.host == "localhost" || (is_address(place.host) && is_this_machine(place.host));
  return known ? listen_on({place.host, place.port}, "name another port (MASTER_PORT, distributed.init_method)")
               : Descriptor();
}

/// Warns once in a job, from rank 0. A store that bertrun serves admits only the job's own user; other stores check
/// nothing.
void warn_of_open_store(const StorePlace& place, const std::string& listens) {
  std::fprintf(stderr,
               "bert: warning: the store of the ranks at %s has no authentication, %s: whoever reaches it can disturb "
               "this job; bertrun's asks for a token\n",
               place.text().c_str(), listens.c_str());
}

/// Raises the limit on descriptors. Throws ConfigError if the hard limit is too low for `connections`, which `purpose`
/// explains.
void make_room(int rank, int connections, const std::string& purpose) {
  constexpr uint64_t kOwnFiles = 100;  // data, logs, libraries, devices
  const uint64_t needed = kOwnFiles + static_cast<uint64_t>(connections), limit = raise_descriptor_limit();
  if (limit >= needed) return;
  throw ConfigError(describe_ranks({rank}) + " may open " + std::to_string(limit) + " files and needs " +
                    std::to_string(needed) + " for " + purpose +
                    ": raise the hard limit (ulimit -Hn, LimitNOFILE, docker --ulimit nofile)");
}

c10::intrusive_ptr<c10d::Store> make_store(const StorePlace& place, int rank, int size,
                                           const ProcessGroupOptions& group) {
  const milliseconds timeout(1000 * group.timeout_seconds);
  if (!place.file.empty()) {
    check_store_file(place.file);
    auto store = c10::make_intrusive<c10d::FileStore>(place.file, size);
    store->setTimeout(timeout);
    return store;
  }
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(place.port);
  DistributedEnvironment launcher;
  read_master(launcher);
  // A launcher serves a store at MASTER_ADDR and MASTER_PORT only. At another place, such as one of tcp://, ranks would
  // wait for it in vain.
  const bool of_launcher = place.host == launcher.master_addr && place.port == launcher.master_port;
  const bool launcher_serves = of_launcher && variable_or("TORCHELASTIC_USE_AGENT_STORE", "") == "True";
  options.isServer = rank == 0 && !launcher_serves;
  const int connections = group.debug ? 3 : 2;  // of a rank: its own, the monitor's, and that of comparisons
  if (options.isServer)
    make_room(rank, connections * size, "the connections of " + std::to_string(size) + " ranks to its store");
  options.timeout = timeout;
  options.waitWorkers = false;
  if (options.isServer) {
    if (Descriptor listener = listen_on_address(place))
      options.masterListenFd = listener.release();  // the store owns it now
  }
  const bool of_bertrun = of_launcher && launcher_serves && !variable_or(kRankStateVariable, "").empty();
  if (rank == 0 && !of_bertrun) {
    warn_of_open_store(place, launcher_serves          ? "and is the launcher's"
                              : options.masterListenFd ? "and listens on that address alone"
                                                       : "and listens on all interfaces");
  }
  auto store = wait_for<c10::intrusive_ptr<c10d::Store>>(
      [host = place.host, options] { return c10::make_intrusive<c10d::TCPStore>(host, options); },
      timeout + kAfterOwnTimeout);
  TORCH_CHECK(store, "no answer");
  return *store;
}

using GlooDevices = std::vector<std::shared_ptr<gloo::transport::Device>>;

/// The network devices of Gloo: the interfaces of GLOO_SOCKET_IFNAME, as in torch. Without the variable and with
/// several machines, the address with which this machine meets the others. Otherwise the address of the machine's name,
/// or, if that is a loopback address as on Debian (127.0.1.1), the interface of the default route. Throws ConfigError.
GlooDevices gloo_devices(const Member& member, bool on_demand) {
  using Gloo = c10d::ProcessGroupGloo;
  GlooDevices devices;
  for (const std::string& name : chosen_interfaces(interface_addresses()))
    devices.push_back(Gloo::createDeviceForInterface(name, on_demand));
  if (!devices.empty()) return devices;
  if (!member.several_machines) return {Gloo::createDefaultDevice(on_demand)};
  if (!member.address.empty()) {
    try {
      return {Gloo::createDeviceForHostname(member.address, on_demand)};
    } catch (const std::exception& error) {
      throw ConfigError("Gloo cannot use this machine's address in the job, " + member.address +
                        "; choose the interface with GLOO_SOCKET_IFNAME. (" + first_line(error.what()) + ")");
    }
  }
  const std::string routed = own_name_is_loopback() ? outward_interface() : "";
  return {routed.empty() ? Gloo::createDefaultDevice(on_demand) : Gloo::createDeviceForInterface(routed, on_demand)};
}

using GlooOptions = c10::intrusive_ptr<c10d::ProcessGroupGloo::Options>;

GlooOptions gloo_options(const Member& member, milliseconds timeout, bool on_demand) {
  auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  options->devices = gloo_devices(member, on_demand);
  return options;
}

/// Connects every rank with every other, unless the devices of `options` connect on demand.
c10::intrusive_ptr<c10d::Backend> make_gloo(const c10::intrusive_ptr<c10d::Store>& store, const Member& member,
                                            const GlooOptions& options, c10::Device device) {
  return make_gloo_backend(c10::make_intrusive<c10d::PrefixStore>("gloo", store), member.rank, member.size, options,
                           device);
}

/// Connects every rank with every other over Gloo and returns when all ranks have their connections: a rank that ended
/// the group earlier would cut connections that another rank is still making. Throws PeerError after the timeout with
/// the ranks that lack connections.
c10::intrusive_ptr<c10d::Backend> connect_gloo(const c10::intrusive_ptr<c10d::Store>& store, const Member& member,
                                               milliseconds timeout, c10::Device device) {
  const int rank = member.rank, size = member.size;
  const std::string here = describe_ranks({rank});
  make_room(rank, size, "its connections with each of " + std::to_string(size - 1) + " other ranks (Gloo)");
  const GlooOptions options = gloo_options(member, timeout, /*on_demand=*/false);
  std::optional<c10::intrusive_ptr<c10d::Backend>> backend;
  std::string reason = "not all connections within " + std::to_string(timeout.count() / 1000) + " s";
  try {
    // The attempts of Gloo may add up to several timeouts, so the thread is abandoned after one.
    backend = wait_for<c10::intrusive_ptr<c10d::Backend>>(
        [store, member, options, device] { return make_gloo(store, member, options, device); }, timeout);
  } catch (const Preempted&) {
    throw;
  } catch (const std::exception& error) {
    reason = first_line(error.what());
  }
  std::vector<int> others;
  try {
    if (backend) {
      meet(store, {.name = "connected",
                   .rank = rank,
                   .size = size,
                   .timeout = timeout,
                   .advice = here + " has its data connections (Gloo) and waits until all have theirs; "
                                    "check the logs and machines of those that did not come"});
      return *backend;
    }
    const auto unconnected = wait_for<std::vector<int>>(
        [store, rank, size] {
          std::vector<int> result = missing_at(*store, "connected", size);
          std::erase(result, rank);
          return result;
        },
        kAfterOwnTimeout);
    others = unconnected.value_or(others);
  } catch (const c10::Error& error) {
    throw PeerError(
        here + (backend ? " waits for the data connections (Gloo) of the others" : " has no data connections (Gloo)") +
        ", and the store does not answer: check rank 0's log and machine. (" + first_line(error.what()) + ")");
  }
  throw PeerError("all " + std::to_string(size) + " ranks have come, but " + here + " has no data connections (Gloo)" +
                  (others.empty() ? "" : ", nor have " + describe_ranks(others)) + ": it is to be reached at " +
                  options->devices.front()->str() +
                  "; check that the machines reach each other there on every port, or choose the interface with "
                  "GLOO_SOCKET_IFNAME. (" +
                  reason + ")");
}

/// expect_own_gpu() that a signal ends (Preempted).
void check_gpu(const c10::intrusive_ptr<c10d::Store>& store, const Member& member, const Gpu& gpu,
               milliseconds timeout) {
  try {
    const auto answer = wait_for<bool>(
        [store, member, gpu] {
          expect_own_gpu(*store, member.rank, member.size, gpu);
          return true;
        },
        timeout + kAfterOwnTimeout);
    TORCH_CHECK(answer, "no answer");
  } catch (const c10::Error& error) {
    throw PeerError(describe_ranks({member.rank}) +
                    " has come, but not all ranks have said which GPU they use: check their logs and rank 0's. (" +
                    first_line(error.what()) + ")");
  }
}

}  // namespace

ProcessGroupPtr make_process_group(const c10::intrusive_ptr<c10d::Store>& store, const Member& member,
                                   const ProcessGroupOptions& options) {
  const int rank = member.rank, size = member.size;
  using Type = c10d::ProcessGroup::BackendType;
  const milliseconds timeout(1000 * options.timeout_seconds);
  const bool nccl = options.backend == CollectiveBackend::kNccl ||
                    (options.backend == CollectiveBackend::kOfDevice && options.device.is_cuda());
  auto group = c10::make_intrusive<c10d::ProcessGroup>(store, rank, size);
  known_groups().insert_or_assign(group.get(), KnownGroup{c10::weak_intrusive_ptr<c10d::ProcessGroup>(group),
                                                          c10::weak_intrusive_ptr<c10d::Store>(store)});
  const auto monitor = std::make_shared<CollectiveMonitor>(store, rank, size, timeout);
  const bool on_demand = nccl || options.connect_on_demand;
  const c10::Device gloo_device = nccl ? c10::Device(c10::kCPU) : options.device;
  const auto gloo =
      make_monitored_backend(on_demand ? make_gloo(store, member, gloo_options(member, timeout, on_demand), gloo_device)
                                       : connect_gloo(store, member, timeout, gloo_device),
                             monitor, {.debug = options.debug, .works_block = true});
  group->setDefaultBackend(nccl ? Type::NCCL : Type::GLOO);
  group->setBackend(at::kCPU, Type::GLOO, gloo);
  if (!options.device.is_cpu() && !nccl) group->setBackend(options.device.type(), Type::GLOO, gloo);
  if (!nccl) return group;
  check_gpu(store, member, gpu_of(options.device), timeout);
  const auto backend = make_monitored_backend(
      make_nccl_backend(store, {.rank = rank, .size = size, .timeout = timeout, .device = options.device}), monitor,
      {.debug = options.debug, .works_block = false});
  group->setBoundDeviceId(options.device);
  group->setBackend(options.device.type(), Type::NCCL, backend);
  backend->eagerConnectSingleDevice(options.device);
  return group;
}

ProcessGroupPtr init_process_group(const ProcessGroupOptions& options) {
  DistributedEnvironment environment;
  int64_t given_rank = options.rank, given_size = options.world_size;
  const std::string method = take_query(options.init_method, given_rank, given_size);
  if (given_rank < 0 || given_size < 0) {
    environment = distributed_environment();
  } else {
    read_master(environment);
  }
  if (given_rank >= 0) environment.rank = given_rank;
  if (given_size >= 0) environment.world_size = given_size;
  const auto rank = static_cast<int>(environment.rank), size = static_cast<int>(environment.world_size);
  if (size < 1 || rank >= size) {
    throw ConfigError("rank " + std::to_string(rank) + " of " + std::to_string(size) + " ranks cannot be");
  }
  if (size == 1) return nullptr;
  chosen_interfaces(interface_addresses());  // throws before any rank waits
  const StorePlace place = parse_init_method(method, environment);
  const std::string who = "rank " + std::to_string(rank) + " of " + std::to_string(size) +
                          (environment.source.empty() ? "" : " (" + environment.source + ")");
  const milliseconds timeout(1000 * options.timeout_seconds);
  set_phase(Phase::kJoining);
  c10::intrusive_ptr<c10d::Store> store;
  try {
    const auto shared = c10::make_intrusive<c10d::PrefixStore>("bert", make_store(place, rank, size, options));
    const Entrant entrant{.rank = rank,
                          .size = size,
                          .timeout = timeout,
                          .advice = who + " waited at " + place.text() +
                                    "; are they all started, with the same address and number of ranks?"};
    const auto round =
        wait_for<int64_t>([shared, entrant] { return join_round(*shared, entrant); }, timeout + kAfterOwnTimeout);
    TORCH_CHECK(round, "no answer");
    store = c10::make_intrusive<c10d::PrefixStore>(group_prefix(*round), shared);
  } catch (const c10::Error& error) {
    throw PeerError(who + " could not join at " + place.text() + " within " + std::to_string(options.timeout_seconds) +
                    " s: is rank 0 started and reachable there, and the port free? (" + first_line(error.what()) + ")");
  } catch (const IoError& error) {
    throw PeerError(who + " could not join: " + error.what());
  }
  const ProcessGroupPtr group = make_process_group(store,
                                                   {.rank = rank,
                                                    .size = size,
                                                    .several_machines = environment.several_machines,
                                                    .address = job_address(place.host, place.port)},
                                                   options);
  set_phase(Phase::kStarting);
  return group;
}

c10::intrusive_ptr<c10d::Store> store_of(const ProcessGroupPtr& group) {
  const auto known = known_groups().find(group.get());
  c10::intrusive_ptr<c10d::Store> store;
  if (known != known_groups().end()) store = known->second.store.lock();
  if (!store) throw std::invalid_argument("store_of: a group that make_process_group has not made");
  return store;
}

std::string announced(const ProcessGroupPtr& group, const Announcement& announcement,
                      const std::function<std::string()>& text) {
  if (!group) return text();
  const auto& [rank, name, timeout_seconds] = announcement;
  const auto store = store_of(group);
  const std::string key = "announced/" + name;
  if (group->getRank() == rank) {
    const std::string answer = text();
    try {
      store->set(key, answer);
      return answer;
    } catch (const c10::Error& error) {
      throw PeerError(describe_ranks({rank}) + " cannot tell the others of its " + name +
                      ": the store does not answer; check rank 0's log and machine, and the launcher's. (" +
                      first_line(error.what()) + ")");
    }
  }
  const std::string absent = wait_for_ranks(store, {.what = name,
                                                    .rank = group->getRank(),
                                                    .size = group->getSize(),
                                                    .keys = {{rank, key}},
                                                    .timeout = milliseconds(1000 * timeout_seconds)});
  if (!absent.empty()) throw PeerError(absent);
  try {
    return store->get_to_str(key);
  } catch (const c10::Error& error) {
    throw PeerError(describe_ranks({rank}) + " has told of its " + name +
                    ", and the store does not answer; check rank 0's log and machine, and the launcher's. (" +
                    first_line(error.what()) + ")");
  }
}

void wait_for_rank(const ProcessGroupPtr& group, int rank, const std::string& name, int64_t timeout_seconds) {
  announced(group, {.rank = rank, .name = name, .timeout_seconds = timeout_seconds}, [] { return "1"; });
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

bool AgreedFlag::exchange(bool value) {
  if (!group_) return value;
  bool answer = false;
  if (work_) {
    work_->wait();
    answer = sum_.item<int64_t>() > 0;
  }
  sum_ = at::full({1}, value ? 1 : 0, at::kLong);
  std::vector<at::Tensor> tensors{sum_};
  work_ = group_->allreduce(tensors);
  return answer;
}

}  // namespace bert
