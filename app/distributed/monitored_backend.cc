#include "app/distributed/monitored_backend.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>
#ifdef USE_C10D_NCCL
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#endif

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <utility>

#include "app/system/error_report.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "app/system/torch_errors.h"

namespace bert {
namespace {

using c10d::Work;
using Tensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<Work>;

void end_process(const std::string& message) {
  write_error_file("PeerError", message, kPeerFailure);
  std::fprintf(stderr, "bert: %s\n", message.c_str());
  std::fflush(stderr);
  std::_Exit(kPeerFailure);
}

/// True for a failure of the network or of another rank. Any other c10::Error is of this rank's own device.
bool concerns_peers(const std::exception& error) {
  return dynamic_cast<const c10::Error*>(&error) == nullptr || dynamic_cast<const c10::DistError*>(&error) != nullptr;
}

/// A work whose wait() turns a failure into a PeerError that names the missing ranks.
class MonitoredWork : public Work {
 public:
  MonitoredWork(WorkPtr work, std::shared_ptr<CollectiveMonitor> monitor)
      : Work(-1, work->retrieveOpType()), work_(std::move(work)), monitor_(std::move(monitor)) {}

  bool wait(std::chrono::milliseconds timeout) override {
    try {
      return work_->wait(timeout);
    } catch (const PeerError&) {
      throw;
    } catch (const std::exception& error) {
      if (!concerns_peers(error)) throw;
      throw PeerError(monitor_->explain(first_line(error.what())));
    }
  }
  bool isCompleted() override { return work_->isCompleted(); }
  bool isSuccess() const override { return work_->isSuccess(); }
  std::exception_ptr exception() const override { return work_->exception(); }
  int sourceRank() const override { return work_->sourceRank(); }
  Tensors result() override { return work_->result(); }
  void synchronize() override { work_->synchronize(); }
  void abort() override { work_->abort(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return work_->getFuture(); }
  float getDuration() const override { return work_->getDuration(); }
  uint64_t getSequencenumber() const override { return work_->getSequencenumber(); }

 private:
  WorkPtr work_;
  std::shared_ptr<CollectiveMonitor> monitor_;
};

std::string describe(const char* kind, const at::Tensor& tensor, const std::string& detail = "") {
  return c10::str(kind, " of ", tensor.scalar_type(), " ", tensor.sizes(), detail);
}

std::string describe(const char* kind, const Tensors& tensors, const std::string& detail = "") {
  return tensors.empty() ? std::string(kind) + detail : describe(kind, tensors.front(), detail);
}

const char* name_of(const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      return ", sum";
    case c10d::ReduceOp::AVG:
      return ", mean";
    case c10d::ReduceOp::PRODUCT:
      return ", product";
    case c10d::ReduceOp::MIN:
      return ", minimum";
    case c10d::ReduceOp::MAX:
      return ", maximum";
    default:
      return "";
  }
}

std::string root(int64_t rank) { return ", root " + std::to_string(rank); }

#ifdef USE_C10D_NCCL
/// True while a CUDA graph is being captured. A captured collective does not run yet, and its events must not be
/// queried.
bool is_captured() { return c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None; }

/// Lets any thread ask for works that were issued on `device`, also while another thread captures a graph. It sets the
/// current device: a thread begins with device 0, and a query would create a context of every rank on that GPU.
class AllowQuery {
 public:
  explicit AllowQuery(c10::DeviceIndex device) : on_(device) {}

 private:
  const c10::cuda::CUDAGuard on_;
  const c10::cuda::CUDAStreamCaptureModeGuard relaxed_{cudaStreamCaptureModeRelaxed};
};
c10::DeviceIndex current_device() { return c10::cuda::current_device(); }
#else
bool is_captured() { return false; }
struct AllowQuery {
  explicit AllowQuery(c10::DeviceIndex) {}
};
c10::DeviceIndex current_device() { return -1; }
#endif

/// True if the work is done. Throws its error: LibTorch counts a failed work of NCCL as completed.
bool is_done(Work& work, c10::DeviceIndex device) {
  const AllowQuery allowed(device);
  const bool completed = work.isCompleted();
  if (const std::exception_ptr error = work.exception()) std::rethrow_exception(error);
  return completed;
}

/// Note [Deadline of an asynchronous call]
/// NCCL forms its communicator in ncclCommInitRank, which has no timeout, and LibTorch's watchdog sees a collective only
/// after that. So the monitor watches a call from before it is issued. Its deadline comes before LibTorch's own timeout.
/// After an error of NCCL, LibTorch's watchdog waits for a minute (four times TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC), and
/// then ends the process with SIGABRT. The monitor sees the error at its next look and ends the process with the names
/// of the missing ranks.
class WatchedCall {
 public:
  /// `device` is the current device of the calling thread; none for works on the CPU.
  explicit WatchedCall(c10::DeviceIndex device) : device_(device) {}
  /// True if nothing is left to wait for. Throws the error of the work.
  bool done() {
    WorkPtr work;
    {
      const std::lock_guard lock(mutex_);
      if (returned_ && !work_) return true;
      work = work_;
    }
    return work && is_done(*work, device_);
  }
  /// The call has returned: from now on `work` is watched, or nothing if it is nullptr.
  void returned(WorkPtr work) {
    const std::lock_guard lock(mutex_);
    returned_ = true;
    work_ = std::move(work);
  }

 private:
  std::mutex mutex_;
  bool returned_ = false;
  WorkPtr work_;
  const c10::DeviceIndex device_;
};

class MonitoredBackend : public c10d::Backend {
 public:
  MonitoredBackend(c10::intrusive_ptr<Backend> backend, std::shared_ptr<CollectiveMonitor> monitor,
                   MonitoredBackendOptions options)
      : Backend(backend->getRank(), backend->getSize()),
        backend_(std::move(backend)),
        monitor_(std::move(monitor)),
        options_(options) {}

  const std::string getBackendName() const override { return backend_->getBackendName(); }
  bool supportsCoalescing() const override { return false; }
  void setSequenceNumberForGroup() override { backend_->setSequenceNumberForGroup(); }
  uint64_t getSequenceNumberForGroup() override { return backend_->getSequenceNumberForGroup(); }
  void abort() override {
    monitor_->stop_watching();  // works that are aborted have failed
    backend_->abort();
  }
  void shutdown() override {
    if (options_.works_block) return backend_->shutdown();
    // A work that is asked asks its communicator, also one that has been destroyed meanwhile.
    monitor_->wait_until_done();
    // Not compared: a rank may end, and the store with it, before another rank has read the result.
    call(
        "end of the group",
        [&] {
          backend_->shutdown();
          return nullptr;
        },
        /*compare=*/false);
  }
  void eagerConnectSingleDevice(at::Device device) override {
    call("forming of the communicator", [&] {
      backend_->eagerConnectSingleDevice(device);
      return nullptr;
    });
  }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override {
    return issue(describe("broadcast", tensors, root(opts.rootRank)),
                 [&] { return backend_->broadcast(tensors, opts); });
  }
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override {
    return issue(describe("all_reduce", tensors, name_of(opts.reduceOp)),
                 [&] { return backend_->allreduce(tensors, opts); });
  }
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override {
    return issue(describe("reduce", tensors, name_of(opts.reduceOp) + root(opts.rootRank)),
                 [&] { return backend_->reduce(tensors, opts); });
  }
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override {
    return issue(describe("all_gather", inputs), [&] { return backend_->allgather(outputs, inputs, opts); });
  }
  WorkPtr barrier(const c10d::BarrierOptions& opts) override {
    return issue("barrier", [&] { return backend_->barrier(opts); });
  }

 private:
  template <class Issue>
  WorkPtr issue(const std::string& what, const Issue& issue_it) {
    WorkPtr work;
    call(what, [&] {
      work = issue_it();
      return options_.works_block || is_captured() ? nullptr : work;
    });
    return c10::make_intrusive<MonitoredWork>(std::move(work), monitor_);
  }

  /// Counts `make` as a collective and calls it. `make` returns the work that is still under way, or nullptr. `compare`:
  /// compares the collective with those of the other ranks in a debug run.
  void call(const std::string& what, const std::function<WorkPtr()>& make, bool compare = true) {
    const auto watched = std::make_shared<WatchedCall>(options_.works_block ? -1 : current_device());
    try {
      options_.debug&& compare ? monitor_->begin_together(what) : monitor_->begin(what);
      if (!options_.works_block) monitor_->watch([watched] { return watched->done(); }, end_process);
      watched->returned(make());
    } catch (const c10::DistError& error) {  // other exceptions concern the arguments
      watched->returned(nullptr);
      throw PeerError(monitor_->explain(first_line(error.what())));
    } catch (...) {
      watched->returned(nullptr);
      throw;
    }
  }

  c10::intrusive_ptr<Backend> backend_;
  std::shared_ptr<CollectiveMonitor> monitor_;
  MonitoredBackendOptions options_;
};

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_monitored_backend(c10::intrusive_ptr<c10d::Backend> backend,
                                                         std::shared_ptr<CollectiveMonitor> monitor,
                                                         MonitoredBackendOptions options) {
  return c10::make_intrusive<MonitoredBackend>(std::move(backend), std::move(monitor), options);
}

}  // namespace bert
