// The ranks of a communicator of the null device's NCCL, processes or threads of one machine, show each other data:
// in a file of shared memory, ${XDG_RUNTIME_DIR:-/dev/shm}/null-device-nccl-ID.
//
// Every rank locks the file until all ranks have come, and then the file has no name any more. Ranks that are killed
// before that leave the file, and the next communicator of any process removes files that nobody locks.
#pragma once

#include <nccl.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace null_device {

/// An error of NCCL: the code that its functions return, and the text of ncclGetLastError().
struct NcclError {
  ncclResult_t code = ncclSuccess;
  std::string text;
};

/// The most that ranks show each other in a round, a multiple of every element's size.
constexpr size_t kBytesPerRound = 1 << 18;

class NcclChannel {
 public:
  struct Member {
    int rank = 0, size = 1;
    std::string device;  // its address on the machine
  };
  /// Waits until all ranks have come with the same id: forever, if one does not. Throws NcclError, on all ranks if two
  /// of them have the same device.
  NcclChannel(const std::string& id, Member member);
  NcclChannel(const NcclChannel&) = delete;
  NcclChannel& operator=(const NcclChannel&) = delete;

  /// Gets what every rank shows, by rank.
  using Use = std::function<void(const std::vector<const void*>& of_ranks)>;
  /// Shows `bytes` of `data` to all ranks, waits until all ranks have come to the same round, and calls `use`. False if
  /// `aborted` became true meanwhile, or after abort(). `what` describes the collective: throws NcclError if that of
  /// another rank differs. One thread at a time.
  bool exchange(const std::string& what, const void* data, size_t bytes, const std::atomic<bool>& aborted,
                const Use& use);
  /// Ends the exchange that waits, and all later ones.
  void abort();

 private:
  struct Shared;
  struct Part;
  void map(const std::string& path, int descriptor);
  void join();
  void wake();
  [[nodiscard]] Part& part(int rank) const;
  void expect_same(const std::string& what, size_t slot) const;
  /// Waits until all ranks' parts fulfil the condition. False if it is aborted first.
  template <class Condition>
  bool await(const std::atomic<bool>& aborted, const Condition& condition);

  const Member member_;
  std::shared_ptr<Shared> shared_;
  uint64_t rounds_ = 0;  // that began
  std::atomic<bool> aborted_{false};
};

}  // namespace null_device
