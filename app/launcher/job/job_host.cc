#include <algorithm>
#include <set>

#include "app/launcher/job/job_link.h"
#include "app/launcher/job/job_messages.h"
#include "app/launcher/store/store_relay.h"
#include "app/launcher/store/store_server.h"
#include "app/net/gatekeeper.h"
#include "app/system/console.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "data/io/error.h"

namespace bert {
namespace {

using NodeId = Rendezvous::NodeId;

constexpr NodeId kSelf = Rendezvous::kHost;  // other nodes have the numbers of their connections
constexpr double kTick_seconds = 0.1;
constexpr std::chrono::seconds kFirstNote(3), kNoteInterval(30);  // notes about missing nodes

/// The value of --nnodes.
std::string nnodes(int64_t least, int64_t most) {
  return std::to_string(least) + (least == most ? "" : ":" + std::to_string(most));
}

/// The link of the node that hosts the rendezvous and the store.
class JobHost : public JobLink {
 public:
  JobHost(EventLoop& loop, const LaunchConfig& config, const std::string& token, Descriptor listener, OnOrder on_order)
      : loop_(loop),
        config_(config),
        on_order_(std::move(on_order)),
        store_(loop, store_endpoint(config.rendezvous)),
        rendezvous_(config.rendezvous, {config.max_restarts, stop_seconds(config)}, EventLoop::Clock::now(),
                    [this](NodeId id, const JobOrder& order) { send(id, order); }) {
    if (listener) {
      gate_ = std::make_unique<Gatekeeper>(
          loop, std::move(listener), token,
          Gatekeeper::Events{[this](uint64_t id) { admit(id); },
                             [this](uint64_t id, const Frame& frame) { take(static_cast<NodeId>(id), frame); },
                             [this](uint64_t id, const std::string& why) { lose(static_cast<NodeId>(id), why); },
                             [this](uint64_t id, bool on) { hold(static_cast<NodeId>(id), on); }});
      tick();
    }
    const std::string refusal = rendezvous_.join(kSelf, this_node(config), EventLoop::Clock::now());
    if (!refusal.empty()) throw UsageError(refusal);
  }
  ~JobHost() override {
    loop_.cancel(tick_timer_);
    loop_.cancel(decision_timer_);
  }

  StoreAddress open_round(const Assignment& assignment) override {
    StoreAddress address{store_.endpoint().host, store_.endpoint().port};
    store_.start_round(assignment.world_size);
    for (auto& [id, peer] : peers_) {
      peer.relay.set_target({address.host, address.port});
      if (peer.joined && address.local_address.empty()) address.local_address = peer.channel->local_address();
    }
    return address;
  }
  void stopped(int64_t round, const SaveResult& saved) override {
    if (!rendezvous_.ended()) store_.stop();  // at the job's end other nodes may still save
    rendezvous_.stopped(kSelf, round, saved, EventLoop::Clock::now());
    if (rendezvous_.ended()) wait_for_others();
  }
  void succeeded(int64_t round) override { rendezvous_.succeeded(kSelf, round); }
  void failed(const FailureReport& report) override { hear(kSelf, report); }
  void interrupted(int signal) override { rendezvous_.interrupted(kSelf, signal, EventLoop::Clock::now()); }
  /// The host leaves last, so that all nodes learn of the end from the host.
  [[nodiscard]] bool finished() const override {
    const bool alone = std::ranges::none_of(peers_, [](const auto& entry) { return entry.second.joined; });
    return left_ && (alone || gave_up_);
  }

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

  /// torchrun's own address and port if that address is loopback.
  static Endpoint store_endpoint(const RendezvousConfig& config) {
    if (config.dynamic) return {"127.0.0.1", 0};
    return {is_loopback(config.host) ? config.host : "127.0.0.1", config.port};
  }

  /// Seconds that a node has to stop its ranks: the time until SIGKILL and a margin.
  static double stop_seconds(const LaunchConfig& config, bool preempted = false) {
    const double stop = std::max(config.shutdown_timeout_seconds, config.failure_grace_seconds);
    return std::max(stop, preempted ? config.save_timeout_seconds : 0) + config.rendezvous.close_timeout;
  }

  void send(NodeId id, const JobOrder& order) {
    if (id == kSelf) {
      loop_.after(0, [this, order] {  // never from inside a call
        on_order_(order);
        left_ = order.kind == JobOrder::kLeave;
      });
    } else if (const auto peer = peers_.find(id); peer != peers_.end()) {
      peer->second.channel->send(kControlFrame, 0, encode(OrderMessage{order}));
    }
  }

  void admit(uint64_t id) {
    // Deferred: this code runs inside a call of the channel, which the gate still owns.
    loop_.after(0, [this, id] {
      std::unique_ptr<SecureChannel> channel = gate_->take(id);
      if (!channel) return;
      Peer& peer = peers_.try_emplace(static_cast<NodeId>(id), loop_, std::move(channel)).first->second;
      if (peer.channel->closed()) return lose(static_cast<NodeId>(id), "closed");
      peer.relay.set_target({store_.endpoint().host, store_.endpoint().port});
      peer.channel->set_timeout(config_.rendezvous.silence_seconds());
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
      int code = kPeerFailure;
      if (join->min_nodes != own.min_nodes || join->max_nodes != own.max_nodes) {
        refusal = "--nnodes is " + nnodes(own.min_nodes, own.max_nodes) + " on the host and " +
                  nnodes(join->min_nodes, join->max_nodes) + " on this node; give every bertrun of the job the same";
        code = kBadConfiguration;
      }
      if (refusal.empty()) refusal = rendezvous_.join(id, join->node, now);
      peer.joined = peer.joined || refusal.empty();
      if (refusal.empty()) return;
      gate_->count("not admitted: " + refusal, peer.channel->peer());
      peer.channel->send(kControlFrame, 0, encode(RefusedMessage{code, refusal}));
      return;
    }
    if (!peer.joined) throw DataError("a message before joining");
    if (const auto* stopped = std::get_if<StoppedMessage>(&message)) {
      rendezvous_.stopped(id, stopped->round, stopped->saved, now);
    } else if (const auto* succeeded = std::get_if<SucceededMessage>(&message)) {
      rendezvous_.succeeded(id, succeeded->round);
    } else if (const auto* failed = std::get_if<FailedMessage>(&message)) {
      hear(id, *failed);
    } else if (const auto* interrupted = std::get_if<InterruptedMessage>(&message)) {
      rendezvous_.interrupted(id, interrupted->signal, now);
    } else {
      throw DataError("a message that only the host sends");
    }
  }

  void hear(NodeId id, const FailureReport& report) {
    rendezvous_.failed(id, report, EventLoop::Clock::now());
    await_decision();
  }

  /// Keeps the time of the state machine's decision to the millisecond: tick() may come too late, and a host of one node
  /// has none.
  void await_decision() {
    loop_.cancel(decision_timer_);
    const auto time = rendezvous_.decides_at();
    if (!time) return;
    const std::chrono::duration<double> left = *time - EventLoop::Clock::now();
    decision_timer_ = loop_.after(std::max(left.count(), 0.0), [this] {
      rendezvous_.tick(EventLoop::Clock::now());
      await_decision();
    });
  }

  void hold(NodeId id, bool on) {
    if (const auto peer = peers_.find(id); peer != peers_.end()) peer->second.relay.hold(on);
  }

  void lose(NodeId id, const std::string& why) {
    const auto found = peers_.find(id);
    if (found == peers_.end() || lost_.contains(id)) return;
    lost_.insert(id);
    // Deferred: this code may run inside a call of the channel.
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
    const std::chrono::duration<double> silence(config_.rendezvous.silence_seconds());
    for (auto& [id, peer] : peers_) {
      if (now - peer.pinged >= interval) {
        peer.pinged = now;
        peer.channel->send(kPingFrame, 0, "");
      }
      if (now - peer.heard > silence)
        lose(id, "silent for " + std::to_string(static_cast<int64_t>(silence.count())) + " s");
    }
    rendezvous_.tick(now);
    if (rendezvous_.waiting_for().empty()) {
      next_note_ = now + kFirstNote;
    } else if (now >= next_note_) {
      next_note_ = now + kNoteInterval;
      say("rendezvous " + config_.rendezvous.id + " on " +
          to_string(Endpoint{config_.rendezvous.host, config_.rendezvous.port}) + ": " + rendezvous_.waiting_for());
    }
    tick_timer_ = loop_.after(kTick_seconds, [this] { tick(); });
  }

  /// Called at the job's end. The other nodes stop their ranks, and until then they need the store.
  void wait_for_others() {
    if (waits_) return;
    waits_ = true;
    loop_.after(stop_seconds(config_, rendezvous_.preempted()), [this] {
      if (!rendezvous_.finished()) {
        say("not waiting any longer for " + rendezvous_.unfinished_nodes() + "; check those machines");
      }
      gave_up_ = true;
      rendezvous_.leave();
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
  EventLoop::TimerId tick_timer_, decision_timer_;
  EventLoop::Clock::time_point next_note_ = EventLoop::Clock::now() + kFirstNote;
  bool waits_ = false, gave_up_ = false, left_ = false;
};

}  // namespace

std::unique_ptr<JobLink> make_job_host(EventLoop& loop, const LaunchConfig& config, const std::string& token,
                                       Descriptor listener, JobLink::OnOrder on_order) {
  return std::make_unique<JobHost>(loop, config, token, std::move(listener), std::move(on_order));
}

}  // namespace bert
