// How an agent talks to its job: directly, on the machine that hosts the rendezvous, or over the network.
#pragma once

#include <functional>
#include <memory>

#include "app/launcher/job/rendezvous.h"
#include "app/launcher/ranks/failure.h"
#include "app/launcher/settings/options.h"
#include "app/net/event_loop.h"
#include "app/net/socket.h"

namespace bert {

/// The agent's side of a job. Orders come through the callback that it was made with, never from inside of a call.
class JobLink {
 public:
  using OnOrder = std::function<void(const JobOrder&)>;
  virtual ~JobLink() = default;

  /// The store that this node's ranks are to use in a round that is about to start.
  virtual StoreAddress open_round(const Assignment& assignment) = 0;
  /// The ranks that this node ran in `round` are gone; their store may go. `saved` is what they said at the job's end,
  /// whose exit code comes with kLeave.
  virtual void stopped(int64_t round, const SaveResult& saved) = 0;
  virtual void succeeded(int64_t round) = 0;
  virtual void failed(int64_t round, const Failure& failure) = 0;
  /// A signal is to end the job: kEnd for this node follows, whatever becomes of the host.
  virtual void interrupted(int signal) = 0;
  /// On SIGCHLD.
  virtual void child_ended() {}
  /// Nothing is left to be done for other nodes.
  [[nodiscard]] virtual bool finished() const = 0;
};

/// What this bertrun says about itself.
NodeInfo this_node(const LaunchConfig& config);

/// The link of the node that hosts the job; without a listener nobody else can join. `token` is job_token's, here and
/// below.
std::unique_ptr<JobLink> make_job_host(EventLoop& loop, const LaunchConfig& config, const std::string& token,
                                       Descriptor listener, JobLink::OnOrder on_order);

/// The link of every other node: looks for the host until --rdzv-conf join_timeout.
std::unique_ptr<JobLink> make_job_client(EventLoop& loop, const LaunchConfig& config, const std::string& token,
                                         JobLink::OnOrder on_order);

/// The link for this configuration: a host where the rendezvous is here (always, with one node), else a client.
/// Throws UsageError, IoError.
std::unique_ptr<JobLink> make_job_link(EventLoop& loop, const LaunchConfig& config, const std::string& token,
                                       JobLink::OnOrder on_order);

}  // namespace bert
