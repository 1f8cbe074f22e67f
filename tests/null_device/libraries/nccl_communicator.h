// A communicator of the null device's NCCL, and the calls of a thread's group. As in NCCL, a collective is work of a
// stream: the call returns at once, and what comes after it on the stream waits until all ranks have called it, forever
// if one does not. ncclCommAbort() ends the waiting.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/null_device/libraries/nccl_channel.h"
#include "tests/null_device/null_device.h"

// Its address names a lane of the runtime, so it is never freed.
struct ncclComm {
  int rank = 0, size = 1, device = 0;
  std::shared_ptr<null_device::NcclChannel> channel;
  std::atomic<bool> destroyed{false}, aborted{false};
  std::mutex running;              // held by a collective while it runs: those of graphs may run beside a lane
  std::atomic<int64_t> queued{0};  // collectives outside of graphs that have not ended
  uint64_t begun = 0;              // collectives
  std::atomic<ncclResult_t> error{ncclSuccess};
};

namespace null_device {

/// Keeps the text for ncclGetLastError(), and the code for ncclGroupEnd() if a group is open. Returns the code.
ncclResult_t keep(const NcclError& error);

/// Runs the body of a function of NCCL, which throws its errors.
template <class Body>
ncclResult_t guarded(const Body& body) {
  try {
    body();
    return ncclSuccess;
  } catch (const NcclError& error) {
    return keep(error);
  }
}

/// Reports a broken rule, and throws it for tests that collect faults.
[[noreturn]] void break_off(const std::string& text);
/// Throws ncclInvalidArgument.
void expect(bool fulfilled, const std::string& text);
/// The communicator, if it is one that neither ncclCommDestroy() nor ncclCommAbort() has ended.
ncclComm& usable(ncclComm_t comm, const char* function);

/// Queues a collective on the stream, at the end of the group if one is open. `body` exchanges data over the channel.
using Body = std::function<void(NcclChannel& channel, const std::atomic<bool>& aborted)>;
void issue(ncclComm& comm, cudaStream_t stream, const char* function, const std::vector<Access>& accesses,
           const Body& body);

}  // namespace null_device
