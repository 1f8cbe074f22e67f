#include "tests/null_device/libraries/nccl_communicator.h"

#include <sys/random.h>
#include <unistd.h>

#include <utility>

namespace null_device {
namespace {

thread_local std::string last_error;

/// The calls between ncclGroupStart() and ncclGroupEnd(), which a thread issues together at the end.
struct Group {
  int depth = 0;
  ncclResult_t error = ncclSuccess;
  std::vector<std::function<void()>> calls;
};
thread_local Group group;

/// A device by its address on the machine, which is the same for all processes.
std::string address_of(int device) {
  char address[32] = {};
  if (cudaDeviceGetPCIBusId(address, sizeof(address), device) != cudaSuccess)
    throw NcclError{ncclUnhandledCudaError, "device " + std::to_string(device) + " has no address"};
  return address;
}

/// Runs a collective when its stream does. An error that the ranks find there stops the communicator.
void run(ncclComm& comm, NcclChannel& channel, const Body& body, const std::atomic<bool>& aborted) {
  const std::lock_guard one_at_a_time(comm.running);
  if (comm.aborted || comm.error != ncclSuccess) return;
  if (comm.destroyed) {
    fault("NCCL: a graph runs a collective of a communicator that is destroyed");
    return;
  }
  const uint64_t number = ++comm.begun;
  try {
    body(channel, aborted);
  } catch (const NcclError& error) {
    comm.error = error.code;
    fault("NCCL: collective " + std::to_string(number) + " of the communicator: " + error.text);
  }
}

void initialize(ncclComm_t* result, int size, const ncclUniqueId& id, int rank, const ncclConfig_t* config) {
  if (group.depth > 0) break_off("the making of a communicator inside of a group is not made");
  if (config != nullptr && config->blocking == 0) break_off("a communicator that does not block is not made");
  expect(result != nullptr && size >= 1 && rank >= 0 && rank < size,
         "ncclCommInitRank: rank " + std::to_string(rank) + " of " + std::to_string(size));
  cudaFree(nullptr);  // NCCL's own way to make the context of the device
  auto comm = std::make_unique<ncclComm>();
  comm->rank = rank;
  comm->size = size;
  cudaGetDevice(&comm->device);
  constexpr size_t kIdBytes = 16;
  std::string name;
  for (size_t i = 0; i < kIdBytes; ++i) {
    constexpr const char* kDigits = "0123456789abcdef";
    const auto byte = static_cast<unsigned char>(id.internal[i]);
    name += kDigits[byte / 16];
    name += kDigits[byte % 16];
  }
  comm->channel = std::make_shared<NcclChannel>(
      name, NcclChannel::Member{.rank = rank, .size = size, .device = address_of(comm->device)});
  static std::mutex mutex;
  static auto* const all = new std::vector<std::unique_ptr<ncclComm>>;
  const std::lock_guard lock(mutex);
  *result = all->emplace_back(std::move(comm)).get();
}

}  // namespace

ncclResult_t keep(const NcclError& error) {
  last_error = error.text;
  if (group.depth > 0 && group.error == ncclSuccess) group.error = error.code;
  return error.code;
}

void break_off(const std::string& text) {
  fault("NCCL: " + text);
  throw NcclError{ncclInvalidUsage, text};
}

void expect(bool fulfilled, const std::string& text) {
  if (!fulfilled) throw NcclError{ncclInvalidArgument, text};
}

ncclComm& usable(ncclComm_t comm, const char* function) {
  expect(comm != nullptr, std::string(function) + ": comm is null");
  if (comm->destroyed) break_off(std::string(function) + " on a communicator that is destroyed");
  if (comm->aborted) break_off(std::string(function) + " on a communicator that is aborted");
  return *comm;
}

void issue(ncclComm& comm, cudaStream_t stream, const char* function, const std::vector<Access>& accesses,
           const Body& body) {
  const auto enqueue = [&comm, channel = comm.channel, stream, function, accesses, body] {
    const bool captured = is_capturing(stream);
    if (!captured) ++comm.queued;
    Work work;
    work.name = function;
    work.accesses = accesses;
    enqueue_collective(stream, &comm, std::move(work), [&comm, channel, body, captured](const auto& aborted) {
      run(comm, *channel, body, aborted);
      if (!captured) --comm.queued;
    });
  };
  if (group.depth > 0) {
    group.calls.emplace_back(enqueue);
  } else {
    enqueue();
  }
}

}  // namespace null_device

using namespace null_device;

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t code) {
  switch (code) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error";
    case ncclSystemError:
      return "unhandled system error";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "unknown result code";
  }
}

const char* ncclGetLastError(ncclComm_t) { return last_error.c_str(); }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  *id = {};
  return getrandom(id->internal, sizeof(id->internal), 0) == sizeof(id->internal) ? ncclSuccess : ncclSystemError;
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int size, ncclUniqueId id, int rank) {
  return guarded([&] { initialize(comm, size, id, rank, nullptr); });
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
  return guarded([&] { initialize(comm, size, id, rank, config); });
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  return guarded([&] {
    const ncclComm& own = usable(comm, "ncclCommFinalize");
    while (own.queued > 0 && !own.aborted) usleep(100);
  });
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  const ncclResult_t result = ncclCommFinalize(comm);
  if (result != ncclSuccess || comm->aborted) return result;
  comm->destroyed = true;
  comm->channel.reset();
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  return guarded([&] {
    ncclComm& own = usable(comm, "ncclCommAbort");
    own.aborted = true;
    abort_lane(comm);
    own.channel->abort();
    const std::lock_guard nothing_runs(own.running);
    own.channel.reset();
  });
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  return guarded([&] { *error = usable(comm, "ncclCommGetAsyncError").error; });
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  return guarded([&] { *count = usable(comm, "ncclCommCount").size; });
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  return guarded([&] { *rank = usable(comm, "ncclCommUserRank").rank; });
}

ncclResult_t ncclGroupStart() {
  ++group.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  return guarded([&] {
    if (group.depth == 0) break_off("ncclGroupEnd without ncclGroupStart");
    if (--group.depth > 0) return;
    const Group ended = std::exchange(group, {});
    if (ended.error != ncclSuccess) throw NcclError{ended.error, last_error};
    for (const auto& call : ended.calls) call();
  });
}

}  // extern "C"
