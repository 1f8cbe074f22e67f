// libnccl.so.2: all_reduce, broadcast, reduce, all_gather and reduce_scatter, for the ranks of one machine. Sums begin
// with rank 0. Faults: collectives that differ on the ranks; buffers outside of the memory of the communicator's device,
// or that overlap in part; another current device than the communicator's.
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "tests/null_device/libraries/nccl_arithmetic.h"
#include "tests/null_device/libraries/nccl_communicator.h"

using namespace null_device;

namespace {

using OfRanks = std::vector<const void*>;

/// One collective, from its call to its run.
struct Collective {
  Collective(const char* function_name, ncclComm_t communicator, size_t element_count, ncclDataType_t element_type);
  void reduces_by(ncclRedOp_t operation);
  void has_root(int root);
  void reads(const void* data, size_t size) { touches("sendbuff", {.data = data, .bytes = size, .write = false}); }
  void writes(const void* data, size_t size) { touches("recvbuff", {.data = data, .bytes = size, .write = true}); }

  const char* function;
  ncclComm& comm;
  size_t count;
  ncclDataType_t type;
  size_t element;    // bytes
  size_t bytes;      // of `count` elements
  std::string what;  // as the ranks compare it
  std::vector<Access> accesses;

 private:
  void touches(const char* name, const Access& access);
};

Collective::Collective(const char* function_name, ncclComm_t communicator, size_t element_count,
                       ncclDataType_t element_type)
    : function(function_name),
      comm(usable(communicator, function_name)),
      count(element_count),
      type(element_type),
      element(element_bytes(element_type)),
      bytes(element_count * element),
      what(std::string(function) + " of " + std::to_string(count) + " " + type_name(type)) {
  if (element == 0) break_off(what + " is not made");
  int device = -1;
  cudaGetDevice(&device);
  if (device != comm.device) {
    break_off(std::string(function) + ": the current device is " + std::to_string(device) +
              ", and the communicator was made on device " + std::to_string(comm.device));
  }
}

void Collective::reduces_by(ncclRedOp_t operation) {
  const std::string name = operation_name(operation);
  expect(!name.empty(), std::string(function) + ": there is no operation " + std::to_string(operation));
  what += ", " + name;
}

void Collective::has_root(int root) {
  expect(root >= 0 && root < comm.size, std::string(function) + ": there is no rank " + std::to_string(root));
  what += ", root " + std::to_string(root);
}

void Collective::touches(const char* name, const Access& access) {
  if (access.bytes == 0) return;
  for (const char* end :
       {static_cast<const char*>(access.data), static_cast<const char*>(access.data) + access.bytes - 1}) {
    cudaPointerAttributes found{};
    if (is_device(end) && cudaPointerGetAttributes(&found, end) == cudaSuccess && found.device == comm.device) {
      continue;
    }
    break_off(std::string(function) + ": " + name + " is not in the memory of device " + std::to_string(comm.device));
  }
  accesses.push_back(access);
}

/// Buffers may overlap in one way only: `in_place` is where the receiving one then begins.
void expect_in_place(const Collective& call, const void* in_place, const void* send, size_t send_bytes,
                     const void* receive, size_t receive_bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(send), other = reinterpret_cast<uintptr_t>(receive);
  const bool apart = begin + send_bytes <= other || other + receive_bytes <= begin;
  if (!apart && receive != in_place) break_off(std::string(call.function) + ": sendbuff and recvbuff overlap in part");
}

/// The ranks show each other `bytes` at `data`, device memory; a rank without data, null, shows none. False if aborted.
using Use = std::function<void(const OfRanks& of_ranks, size_t offset, size_t bytes)>;
bool show(NcclChannel& channel, const std::string& what, const void* data, size_t bytes,
          const std::atomic<bool>& aborted, const Use& use) {
  const char* const view = data == nullptr ? nullptr : static_cast<const char*>(host_view(data));
  for (size_t offset = 0; offset < bytes; offset += kBytesPerRound) {
    const size_t part = std::min(kBytesPerRound, bytes - offset);
    const auto use_part = [&](const OfRanks& of_ranks) { use(of_ranks, offset, part); };
    const bool done = view == nullptr ? channel.exchange(what, nullptr, 0, aborted, use_part)
                                      : channel.exchange(what, view + offset, part, aborted, use_part);
    if (!done) return false;
  }
  return true;
}

void* view_at(void* data, size_t offset) { return static_cast<char*>(host_view(data)) + offset; }

/// NCCL discards a collective of no elements.
void issue(const Collective& call, cudaStream_t stream, const Body& body) {
  if (call.count > 0) issue(call.comm, stream, call.function, call.accesses, body);
}

}  // namespace

extern "C" {

ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t operation,
                           ncclComm_t comm, cudaStream_t stream) {
  return guarded([&] {
    Collective call("ncclAllReduce", comm, count, type);
    call.reduces_by(operation);
    call.reads(send, call.bytes);
    call.writes(receive, call.bytes);
    expect_in_place(call, send, send, call.bytes, receive, call.bytes);
    issue(call, stream,
          [=, what = call.what, bytes = call.bytes, element = call.element](NcclChannel& channel, const auto& aborted) {
            show(channel, what, send, bytes, aborted, [&](const OfRanks& of_ranks, size_t offset, size_t part) {
              combine(type, operation, of_ranks, part / element, view_at(receive, offset));
            });
          });
  });
}

ncclResult_t ncclReduce(const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t operation,
                        int root, ncclComm_t comm, cudaStream_t stream) {
  return guarded([&] {
    Collective call("ncclReduce", comm, count, type);
    call.reduces_by(operation);
    call.has_root(root);
    call.reads(send, call.bytes);
    const bool receives = call.comm.rank == root;
    if (receives) {
      call.writes(receive, call.bytes);
      expect_in_place(call, send, send, call.bytes, receive, call.bytes);
    }
    issue(call, stream,
          [=, what = call.what, bytes = call.bytes, element = call.element](NcclChannel& channel, const auto& aborted) {
            show(channel, what, send, bytes, aborted, [&](const OfRanks& of_ranks, size_t offset, size_t part) {
              if (receives) combine(type, operation, of_ranks, part / element, view_at(receive, offset));
            });
          });
  });
}

ncclResult_t ncclBroadcast(const void* send, void* receive, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return guarded([&] {
    Collective call("ncclBroadcast", comm, count, type);
    call.has_root(root);
    const bool sends = call.comm.rank == root, receives = !sends || send != receive;
    if (sends) call.reads(send, call.bytes);
    if (receives) call.writes(receive, call.bytes);
    if (sends) expect_in_place(call, send, send, call.bytes, receive, call.bytes);
    const void* const shown = sends ? send : nullptr;
    issue(call, stream, [=, what = call.what, bytes = call.bytes](NcclChannel& channel, const auto& aborted) {
      show(channel, what, shown, bytes, aborted, [&](const OfRanks& of_ranks, size_t offset, size_t part) {
        if (receives) std::memcpy(view_at(receive, offset), of_ranks[static_cast<size_t>(root)], part);
      });
    });
  });
}

ncclResult_t ncclBcast(void* buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                       cudaStream_t stream) {
  return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}

ncclResult_t ncclAllGather(const void* send, void* receive, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return guarded([&] {
    Collective call("ncclAllGather", comm, count, type);
    const auto size = static_cast<size_t>(call.comm.size), rank = static_cast<size_t>(call.comm.rank);
    call.reads(send, call.bytes);
    call.writes(receive, size * call.bytes);
    expect_in_place(call, static_cast<const char*>(send) - rank * call.bytes, send, call.bytes, receive,
                    size * call.bytes);
    issue(call, stream, [=, what = call.what, bytes = call.bytes](NcclChannel& channel, const auto& aborted) {
      show(channel, what, send, bytes, aborted, [&](const OfRanks& of_ranks, size_t offset, size_t part) {
        for (size_t i = 0; i < size; ++i) std::memcpy(view_at(receive, i * bytes + offset), of_ranks[i], part);
      });
    });
  });
}

/// `count`: elements that a rank receives.
ncclResult_t ncclReduceScatter(const void* send, void* receive, size_t count, ncclDataType_t type,
                               ncclRedOp_t operation, ncclComm_t comm, cudaStream_t stream) {
  return guarded([&] {
    Collective call("ncclReduceScatter", comm, count, type);
    call.reduces_by(operation);
    const auto size = static_cast<size_t>(call.comm.size), rank = static_cast<size_t>(call.comm.rank);
    call.reads(send, size * call.bytes);
    call.writes(receive, call.bytes);
    const char* const begin = static_cast<const char*>(send);
    expect_in_place(call, begin + rank * call.bytes, send, size * call.bytes, receive, call.bytes);
    issue(call, stream,
          [=, what = call.what, bytes = call.bytes, element = call.element](NcclChannel& channel, const auto& aborted) {
            for (size_t i = 0; i < size; ++i) {  // the part of every rank
              const auto use = [&](const OfRanks& of_ranks, size_t offset, size_t part) {
                if (i == rank) combine(type, operation, of_ranks, part / element, view_at(receive, offset));
              };
              if (!show(channel, what, begin + i * bytes, bytes, aborted, use)) return;
            }
          });
  });
}

}  // extern "C"
