// A c10d backend around another one, whose failures name the ranks that are missing.
#pragma once

#include <memory>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "app/distributed/collective_monitor.h"

namespace bert {

struct MonitoredBackendOptions {
  bool debug = false;       // compare every collective between ranks before it is issued
  bool works_block = true;  // Work::wait() waits for the result (Gloo); otherwise for a stream (NCCL)
};

/// `backend` with every collective counted by `monitor`. What fails throws PeerError: Note [Who is missing]. Where
/// works do not block the host, one that is late ends the process with 69 after the message is printed and written
/// (app/system/error_report.h), since the host may be stuck in a wait for the device; but for works that a CUDA graph captures.
c10::intrusive_ptr<c10d::Backend> make_monitored_backend(c10::intrusive_ptr<c10d::Backend> backend,
                                                         std::shared_ptr<CollectiveMonitor> monitor,
                                                         MonitoredBackendOptions options);

}  // namespace bert
