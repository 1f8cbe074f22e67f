#include "app/launcher/job/job_link.h"

#include <unistd.h>

#include "app/system/console.h"

namespace bert {
namespace {

/// Warns if the machine's own name stands for 127.0.1.1, as on Debian. Other machines cannot reach that address.
void warn_of_own_name(const RendezvousConfig& rendezvous) {
  const bool name = rendezvous.host.find_first_not_of("0123456789.:") != std::string::npos;
  if (!name || rendezvous.host == "localhost" || !is_loopback(rendezvous.host)) return;
  say("note: " + rendezvous.host +
      " is a loopback address on this machine: only agents here can join; for others give an address of this "
      "machine's network");
}

}  // namespace

NodeInfo this_node(const LaunchConfig& config) {
  return {.host = config.rendezvous.local_addr,
          .pid = getpid(),
          .node_rank = config.rendezvous.node_rank,
          .role = config.role,
          .local_world_size = config.nproc_per_node};
}

std::unique_ptr<JobLink> make_job_link(EventLoop& loop, const LaunchConfig& config, const std::string& token,
                                       JobLink::OnOrder on_order) {
  const RendezvousConfig& rendezvous = config.rendezvous;
  if (rendezvous.max_nodes == 1) return make_job_host(loop, config, token, Descriptor(), std::move(on_order));
  const Endpoint endpoint{rendezvous.host, rendezvous.port};
  warn_of_own_name(rendezvous);
  if (!rendezvous.dynamic) {
    if (rendezvous.node_rank != 0) return make_job_client(loop, config, token, std::move(on_order));
    const char* advice =
        "if another machine 0 of this job runs here, give this one its own --node-rank, or all of them --rdzv-backend "
        "c10d, which numbers them itself; for another job, name another port (--master-port)";
    return make_job_host(loop, config, token, listen_on(endpoint, advice), std::move(on_order));
  }
  if (!rendezvous.is_host.value_or(is_this_machine(rendezvous.host)))
    return make_job_client(loop, config, token, std::move(on_order));
  // Of several agents on the endpoint's machine, the first to take the port is the host.
  Descriptor listener = rendezvous.is_host ? listen_on(endpoint) : try_listen_on(endpoint);
  if (!listener) return make_job_client(loop, config, token, std::move(on_order));
  return make_job_host(loop, config, token, std::move(listener), std::move(on_order));
}

}  // namespace bert
