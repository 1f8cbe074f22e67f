// Connection between an agent and its job: direct on the machine that hosts the rendezvous, else over the network.
#pragma once

#include <functional>
#include <memory>

#include "app/launcher/job/rendezvous.h"
#include "app/launcher/ranks/failure.h"
#include "app/launcher/settings/options.h"
#include "app/net/event_loop.h"
#include "app/net/socket.h"

namespace bert {

/// The agent's side of a job. Orders arrive through a callback, never from inside a call of the agent.
class JobLink {
 public:
  using OnOrder = std::function<void(const JobOrder&)>;
  virtual ~JobLink() = default;

  /// Returns the store for this node's ranks, in a round that is about to start.
  virtual StoreAddress open_round(const Assignment& assignment) = 0;
  /// The ranks that this node ran in `round` have ended, so the store may close. `saved` is the result of saving at the
  /// job's end. The job's exit code follows with kLeave.
  virtual void stopped(int64_t round, const SaveResult& saved) = 0;
  virtual void succeeded(int64_t round) = 0;
  virtual void failed(const FailureReport& report) = 0;
  /// A signal ends the job. A kEnd order for this node follows, even if the host is lost.
  virtual void interrupted(int signal) = 0;
  /// True if other nodes need nothing more from this node.
  [[nodiscard]] virtual bool finished() const = 0;
};

/// This bertrun's facts for the host.
NodeInfo this_node(const LaunchConfig& config);

/// Makes the link of the node that hosts the job. Without a listener no other node can join. `token` is
/// JobToken::bytes(), here and below.
std::unique_ptr<JobLink> make_job_host(EventLoop& loop, const LaunchConfig& config, const std::string& token,
                                       Descriptor listener, JobLink::OnOrder on_order);

/// Makes the link of every other node. It tries to reach the host until --rdzv-conf join_timeout.
std::unique_ptr<JobLink> make_job_client(EventLoop& loop, const LaunchConfig& config, const std::string& token,
                                         JobLink::OnOrder on_order);

/// Makes the link for this configuration: a host if the rendezvous is on this machine (always so with one node), else a
/// client. Throws UsageError, IoError.
std::unique_ptr<JobLink> make_job_link(EventLoop& loop, const LaunchConfig& config, const std::string& token,
                                       JobLink::OnOrder on_order);

}  // namespace bert
