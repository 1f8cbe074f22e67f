#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <set>

#include "app/exit_codes.h"
#include "app/launcher/gatekeeper.h"
#include "app/launcher/job_link.h"
#include "app/launcher/job_messages.h"
#include "app/launcher/job_token.h"
#include "app/launcher/store_relay.h"
#include "app/launcher/store_server.h"
#include "data/error.h"

namespace bert {
namespace {

using NodeId = Rendezvous::NodeId;

constexpr NodeId kSelf = 0;  // the host's own node; the others have their connections' numbers
constexpr double kTick_seconds = 0.1;

/// TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1, torchrun's: rank 0 serves the store itself (c10d only).
bool rank_serves_store(const RendezvousConfig& config) {
  const char* value = std::getenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE");
  return config.dynamic && value != nullptr && std::string(value) == "1";
}

/// The node that hosts the rendezvous and the store.
class JobHost : public JobLink {
 public:
  JobHost(EventLoop& loop, const LaunchConfig& config, Descriptor listener, OnOrder on_order)
      : loop_(loop),
        config_(config),
        on_order_(std::move(on_order)),
        store_(loop, store_endpoint(config.rendezvous),
               [this](const std::string& why) { rendezvous_.end(kInternal, why); }),
        rendezvous_(
            config.rendezvous, config.max_restarts, EventLoop::Clock::now(),
            [this](NodeId id, const JobOrder& order) { send(id, order); },
            rank_serves_store(config.rendezvous) ? std::optional<NodeId>(kSelf) : std::nullopt) {
    if (listener) {
      gate_ = std::make_unique<Gatekeeper>(
          loop, std::move(listener), job_token(config.rendezvous),
          Gatekeeper::Events{[this](uint64_t id) { admit(id); },
                             [this](uint64_t id, const Frame& frame) { take(static_cast<NodeId>(id), frame); },
                             [this](uint64_t id, const std::string& why) { lose(static_cast<NodeId>(id), why); }});
      tick();
    }
    const NodeInfo own{config.rendezvous.local_addr, getpid(), config.rendezvous.node_rank, config.role,
                       config.nproc_per_node};
    const std::string refusal = rendezvous_.join(kSelf, own, EventLoop::Clock::now());
    if (!refusal.empty()) throw UsageError(refusal);
  }
  ~JobHost() override { loop_.cancel(tick_timer_); }

  StoreAddress open_round(const Assignment& assignment) override {
    StoreAddress address{store_.endpoint().host, store_.endpoint().port, true};
    if (rank_serves_store(config_.rendezvous)) {
      address.agent_store = false;
      address.port = port_of(listen_on({"127.0.0.1", 0}).get());  // free again: rank 0 takes it
    } else {
      store_.start_round(assignment.world_size);
    }
    for (auto& [id, peer] : peers_) peer.relay.set_target({address.host, address.port});
    return address;
  }
  void stopped() override {
    if (!rendezvous_.ended()) store_.stop();  // other nodes may still save at the job's end
    rendezvous_.stopped(kSelf, EventLoop::Clock::now());
    if (rendezvous_.ended()) wait_for_others();
  }
  void succeeded() override { rendezvous_.succeeded(kSelf); }
  void failed(const Failure& failure) override { rendezvous_.failed(kSelf, failure); }
  void interrupted(int signal) override { rendezvous_.interrupted(kSelf, signal); }
  void child_ended() override { store_.reap(); }
  [[nodiscard]] bool finished() const override { return gave_up_ || rendezvous_.finished(); }

 private:
  struct Peer {
    Peer(EventLoop& loop, std::unique_ptr<SecureChannel> of_peer)
        : channel(std::move(of_peer)), relay(loop, [this](uint8_t type, uint32_t stream, std::string_view payload) {
            channel->send(type, stream, payload);
          }) {}
    std::unique_ptr<SecureChannel> channel;
    StoreRelay relay;
    bool joined = false;
    EventLoop::Clock::time_point heard = EventLoop::Clock::now(), pinged = heard;
  };

  /// torchrun's own address and port where that is loopback.
  static Endpoint store_endpoint(const RendezvousConfig& config) {
    if (config.dynamic) return {"127.0.0.1", 0};
    return {is_loopback(config.host) ? config.host : "127.0.0.1", config.port};
  }

  void send(NodeId id, const JobOrder& order) {
    if (id == kSelf) {
      loop_.after(0, [this, order] { on_order_(order); });  // never from inside of a call
    } else if (const auto peer = peers_.find(id); peer != peers_.end()) {
      peer->second.channel->send(kControlFrame, 0, encode(OrderMessage{order}));
    }
  }

  void admit(uint64_t id) {
    // Taken out of the gate later: the channel is in a call.
    loop_.after(0, [this, id] {
      Peer& peer = peers_.try_emplace(static_cast<NodeId>(id), loop_, gate_->take(id)).first->second;
      if (peer.channel->closed()) return lose(static_cast<NodeId>(id), "closed");
      peer.relay.set_target({store_.endpoint().host, store_.endpoint().port});
      const double silence =
          config_.rendezvous.keep_alive_interval * static_cast<double>(config_.rendezvous.keep_alive_max_attempt);
      peer.channel->set_timeout(silence);
    });
  }

  void take(NodeId id, const Frame& frame) {
    const auto found = peers_.find(id);
    if (found == peers_.end()) return;
    Peer& peer = found->second;
    peer.heard = EventLoop::Clock::now();
    if (frame.type == kPingFrame) return;
    std::string wrong;
    if (frame.type == kControlFrame) {
      try {
        obey(id, peer, decode(frame.payload));
      } catch (const DataError& error) {
        wrong = error.what();
      }
    } else {
      wrong = peer.joined ? peer.relay.take(frame) : "a store connection before joining";
    }
    if (wrong.empty()) return;
    gate_->count("against the protocol", peer.channel->peer());
    lose(id, wrong);
  }

  void obey(NodeId id, Peer& peer, const JobMessage& message) {
    const auto now = EventLoop::Clock::now();
    if (const auto* join = std::get_if<JoinMessage>(&message)) {
      const RendezvousConfig& own = config_.rendezvous;
      std::string refusal = peer.joined ? "it has joined already" : "";
      if (join->id != own.id) refusal = "--rdzv-id is " + own.id + " here, not " + join->id;
      if (join->min_nodes != own.min_nodes || join->max_nodes != own.max_nodes)
        refusal =
            "--nnodes differs; the host has " + std::to_string(own.min_nodes) + ":" + std::to_string(own.max_nodes);
      if (refusal.empty()) refusal = rendezvous_.join(id, join->node, now);
      peer.joined = peer.joined || refusal.empty();
      if (refusal.empty()) return;
      gate_->count("not admitted: " + refusal, peer.channel->peer());
      peer.channel->send(kControlFrame, 0, encode(RefusedMessage{refusal}));
      return;
    }
    if (!peer.joined) throw DataError("a message before joining");
    if (std::holds_alternative<StoppedMessage>(message)) {
      rendezvous_.stopped(id, now);
    } else if (std::holds_alternative<SucceededMessage>(message)) {
      rendezvous_.succeeded(id);
    } else if (const auto* failed = std::get_if<FailedMessage>(&message)) {
      rendezvous_.failed(id, failed->failure);
    } else if (const auto* interrupted = std::get_if<InterruptedMessage>(&message)) {
      rendezvous_.interrupted(id, interrupted->signal);
    } else {
      throw DataError("a message that only the host sends");
    }
  }

  void lose(NodeId id, const std::string& why) {
    const auto found = peers_.find(id);
    if (found == peers_.end() || lost_.contains(id)) return;
    lost_.insert(id);
    // Later: the channel may be in a call.
    loop_.after(0, [this, id, why] {
      const auto peer = peers_.find(id);
      const bool joined = peer->second.joined;
      peers_.erase(peer);
      lost_.erase(id);
      if (joined) rendezvous_.lost(id, why, EventLoop::Clock::now());
    });
  }

  void tick() {
    const auto now = EventLoop::Clock::now();
    const std::chrono::duration<double> interval(config_.rendezvous.keep_alive_interval);
    const auto silence = interval * static_cast<double>(config_.rendezvous.keep_alive_max_attempt);
    for (auto& [id, peer] : peers_) {
      if (now - peer.pinged >= interval) {
        peer.pinged = now;
        peer.channel->send(kPingFrame, 0, "");
      }
      if (now - peer.heard > silence)
        lose(id, "silent for " + std::to_string(static_cast<int64_t>(silence.count())) + " s");
    }
    rendezvous_.tick(now);
    tick_timer_ = loop_.after(kTick_seconds, [this] { tick(); });
  }

  /// At the job's end: the others stop their ranks, and until then they need the store.
  void wait_for_others() {
    loop_.after(config_.shutdown_timeout_seconds + config_.rendezvous.close_timeout, [this] {
      if (rendezvous_.finished()) return;
      std::fprintf(stderr, "bertrun: not waiting any longer for %s; check those machines\n",
                   rendezvous_.unfinished_nodes().c_str());
      gave_up_ = true;
    });
  }

  EventLoop& loop_;
  const LaunchConfig& config_;
  const OnOrder on_order_;
  StoreServer store_;
  Rendezvous rendezvous_;
  std::unique_ptr<Gatekeeper> gate_;
  std::map<NodeId, Peer> peers_;
  std::set<NodeId> lost_;
  EventLoop::TimerId tick_timer_;
  bool gave_up_ = false;
};

}  // namespace

std::unique_ptr<JobLink> make_job_host(EventLoop& loop, const LaunchConfig& config, Descriptor listener,
                                       JobLink::OnOrder on_order) {
  return std::make_unique<JobHost>(loop, config, std::move(listener), std::move(on_order));
}

}  // namespace bert
