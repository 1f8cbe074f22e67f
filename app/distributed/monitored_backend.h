// A c10d backend that wraps another one and names the missing ranks when a collective fails.
#pragma once

#include <memory>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "app/distributed/collective_monitor.h"

namespace bert {

struct MonitoredBackendOptions {
  bool debug = false;  // compare every collective between ranks before it is issued
  bool works_block =
      true;  // Work::wait() blocks the host until the result is there (Gloo); false: it blocks a stream (NCCL)
};

/// Wraps `backend`; `monitor` counts its collectives, those that the program issues. A failure throws PeerError: Note
/// [Who is missing]. If works do not block the host, a late or failed work ends the process with exit code 69, after its
/// message is printed and written to the error file (app/system/error_report.h), because the host may be stuck in a wait
/// for the device. So does a call that does not return in time: a collective that waits for its communicator to form,
/// eagerConnectSingleDevice() or shutdown(). Works that a CUDA graph captures are not watched.
c10::intrusive_ptr<c10d::Backend> make_monitored_backend(c10::intrusive_ptr<c10d::Backend> backend,
                                                         std::shared_ptr<CollectiveMonitor> monitor,
                                                         MonitoredBackendOptions options);

}  // namespace bert
