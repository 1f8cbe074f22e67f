#include <unistd.h>

#include <algorithm>
#include <optional>

#include "app/launcher/job/job_link.h"
#include "app/launcher/job/job_messages.h"
#include "app/launcher/settings/job_token.h"
#include "app/launcher/store/store_relay.h"
#include "app/net/local_acceptor.h"
#include "app/net/secure_channel.h"
#include "app/system/console.h"
#include "app/system/exit_codes.h"
#include "app/system/signals.h"
#include "data/io/error.h"

namespace bert {
namespace {

using Clock = EventLoop::Clock;

constexpr double kFirstRetry_seconds = 0.1, kLongestRetry_seconds = 1;
constexpr double kTick_seconds = 0.1;
constexpr double kAnswer_seconds = 2;  // time for the host to order the end of the job after its decision is due
constexpr double kFirstNote_seconds = 3, kNoteInterval_seconds = 30;  // notes about a host that does not answer

/// The link of a node that is not the host.
class JobClient : public JobLink {
 public:
  JobClient(EventLoop& loop, const LaunchConfig& config, std::string token, OnOrder on_order)
      : loop_(loop),
        config_(config),
        endpoint_{config.rendezvous.host, config.rendezvous.port},
        on_order_(std::move(on_order)),
        token_(std::move(token)),
        relay_(loop, [this](uint8_t type, uint32_t stream, std::string_view payload) {
          if (channel_) channel_->send(type, stream, payload);
        }) {
    loop_.after(0, [this] { connect(); });
    note_timer_ = loop_.after(kFirstNote_seconds, [this] { note(); });
    join_timer_ = loop_.after(config.rendezvous.join_timeout, [this] { give_up(); });
  }
  ~JobClient() override {
    for (const auto& timer : {retry_timer_, join_timer_, note_timer_, tick_timer_, barrier_timer_, answer_timer_}) {
      if (timer) loop_.cancel(*timer);
    }
  }

  StoreAddress open_round(const Assignment&) override {
    if (!acceptor_) {
      // Takes the endpoint's own port if it is free. Then MASTER_PORT is the same as under torchrun.
      Descriptor listener = try_listen_on({"127.0.0.1", config_.rendezvous.dynamic ? 0 : config_.rendezvous.port});
      if (!listener) listener = listen_on({"127.0.0.1", 0});
      acceptor_.emplace(loop_, std::move(listener), [this](Descriptor rank) {
        if (channel_ && channel_->ready()) relay_.connected(std::move(rank));
      });
    }
    relay_.close_all();
    return {"127.0.0.1", acceptor_->port(), channel_ ? channel_->local_address() : ""};
  }
  void stopped(int64_t round, const SaveResult& saved) override {
    stopped_ = true;
    tell(StoppedMessage{round, saved});
  }
  void succeeded(int64_t round) override {
    tell(SucceededMessage{round});
    barrier_timer_ =
        loop_.after(config_.exit_barrier_seconds, [this] { end(kOk, "the other nodes are not done yet; leaving"); });
  }
  void failed(const FailureReport& report) override {
    tell(report);
    if (report.failure.exit_code == kPreempted) preempted_ = true;
    if (!culprit_.hear(report.failure, Clock::now())) return;
    if (answer_timer_) loop_.cancel(*answer_timer_);
    // The host's next order is known, so the wait is short. The lost host may be the cause of this failure.
    const bool last = config_.max_restarts == 0 && !preempted_;
    if (!last || ended_) return;
    const std::chrono::duration<double> until_decision = culprit_.decision() - Clock::now();
    answer_timer_ = loop_.after(until_decision.count() + kAnswer_seconds, [this] {
      end(culprit_.likeliest().exit_code, one_line(culprit_.likeliest()) + "; the host of the job at " +
                                              to_string(endpoint_) +
                                              " does not answer either; check that machine and the network to it");
    });
  }
  void interrupted(int signal) override {
    if (ended_) return;
    const std::string what = "signal " + std::to_string(signal) + " (" + signal_name(signal) + ") on " +
                             config_.rendezvous.local_addr + " (bertrun's pid " + std::to_string(getpid()) + ")";
    if (!joined_) return end(kPreempted, what + kNoRankRuns);
    tell(InterruptedMessage{signal});
    // The host's decision comes with kLeave. The ranks do not wait for the decision or for a lost host.
    ended_ = true;
    JobOrder order;
    order.kind = JobOrder::kEnd;
    order.exit_code = started_ ? 128 + signal : kPreempted;
    order.signal = signal;
    order.reason = started_ ? what : what + kNoRankRuns;
    deliver(order);
  }
  [[nodiscard]] bool finished() const override {
    const bool sent = alone_ && stopped_ && channel_ && channel_->flushed();
    return ended_ && (left_ || unreachable_ || sent || !channel_ || channel_->closed());
  }

 private:
  void connect() {
    retry_timer_.reset();
    channel_.reset();
    if (ended_) return;
    unreachable_ = false;
    try {
      SecureChannel::Events events;
      events.ready = [this] { join(); };
      events.frame = [this](const Frame& frame) { take(frame); };
      events.closed = [this](const std::string& why) { closed(why); };
      events.congested = [this](bool on) { relay_.hold(on); };
      channel_ = std::make_unique<SecureChannel>(loop_, start_connect(endpoint_, attempt_++),
                                                 SecureChannel::Role::kAgent, token_, events);
    } catch (const IoError& error) {
      closed(error.what());
    }
  }

  void closed(const std::string& why) {
    relay_.close_all();
    const bool known = unreachable_;
    unreachable_ = true;
    const std::string lost = "lost the host of the job at " + to_string(endpoint_) + ": " + why;
    if (ended_) {
      if (saving_ && !alone_ && !leaving_ && !known) say(lost + "; what the ranks here say is this node's exit code");
      return;
    }
    if (joined_ && preempted_) return end(kPreempted, lost + "; a rank here was preempted");
    if (joined_) return end(kPeerFailure, lost + "; check that machine and the network to it");
    if (channel_ && channel_->refused()) {
      return end(kRefused, to_string(endpoint_) + ": " + why + "; give all machines the same --rdzv-id and " +
                               kTokenFileVariable + " or " + kTokenVariable +
                               "; if another job meets there, name another port");
    }
    // Keep trying: another program may hold that port, and the host may still start.
    last_error_ = why;
    retry_timer_ = loop_.after(retry_seconds_, [this] { connect(); });
    retry_seconds_ = std::min(2 * retry_seconds_, kLongestRetry_seconds);
  }

  void give_up() {
    if (joined_) return;
    end(kPeerFailure, "rendezvous " + config_.rendezvous.id + ": no host at " + to_string(endpoint_) + " within " +
                          std::to_string(static_cast<int64_t>(config_.rendezvous.join_timeout)) + " s (" + last_error_ +
                          "); check that bertrun runs there with the same --rdzv-id and endpoint, and that no firewall "
                          "is between");
  }

  /// Prints the host that this node waits for, every kNoteInterval_seconds.
  void note() {
    if (joined_ || ended_) return;
    const std::string owner = is_this_machine(endpoint_.host) ? owner_of_port(endpoint_.port) : "";
    say("rendezvous " + config_.rendezvous.id + ": waiting for the host at " + to_string(endpoint_) + " (" +
        last_error_ + (owner.empty() ? "" : "; the port is held by " + owner) + ")");
    note_timer_ = loop_.after(kNoteInterval_seconds, [this] { note(); });
  }

  void join() {
    joined_ = true;
    heard_ = Clock::now();
    channel_->set_timeout(config_.rendezvous.silence_seconds());
    const RendezvousConfig& own = config_.rendezvous;
    tell(JoinMessage{own.id, own.min_nodes, own.max_nodes, this_node(config_)});
    tick();
  }

  void take(const Frame& frame) {
    heard_ = Clock::now();
    if (frame.type == kPingFrame) return;
    std::string wrong;
    if (frame.type == kControlFrame) {
      try {
        obey(decode(frame.payload));
      } catch (const DataError& error) {
        wrong = error.what();
      }
    } else {
      wrong = relay_.take(frame);
    }
    if (!wrong.empty()) end(kPeerFailure, "the host at " + to_string(endpoint_) + " breaks the protocol: " + wrong);
  }

  void obey(const JobMessage& message) {
    if (const auto* refused = std::get_if<RefusedMessage>(&message)) {
      return end(refused->exit_code,
                 "the host at " + to_string(endpoint_) + " does not admit this node: " + refused->reason);
    }
    const auto* order = std::get_if<OrderMessage>(&message);
    if (order == nullptr) throw DataError("a message that only agents send");
    const bool leaves = order->order.kind == JobOrder::kLeave, starts = order->order.kind == JobOrder::kStart;
    // This node starts no ranks any more. Without a report the host would wait for them.
    if (ended_ && !alone_ && starts) tell(StoppedMessage{order->order.assignment.round, {}});
    if (ended_ && !alone_ && !leaves && order->order.signal == 0 && !order->order.reason.empty())
      say(order->order.reason);              // the end that was ordered before the signal arrived here
    if (leaves != ended_ || alone_) return;  // the node has already ended by itself
    leaving_ = leaves;
    started_ = started_ || starts;
    preempted_ = false;
    culprit_ = Culprit();
    for (auto* timer : {&barrier_timer_, &answer_timer_}) {  // they belonged to the last round
      if (*timer) loop_.cancel(**timer);
      timer->reset();
    }
    ended_ = leaves || order->order.kind == JobOrder::kEnd;
    stopped_ = false;
    deliver(order->order);
  }

  void deliver(const JobOrder& order) {
    if (order.kind == JobOrder::kEnd) saving_ = order.signal != 0 || order.exit_code == kPreempted;
    loop_.after(0, [this, order] {  // never from inside a call
      on_order_(order);
      left_ = order.kind == JobOrder::kLeave;
    });
  }

  /// Ends this node without an order of the host.
  void end(int exit_code, const std::string& reason) {
    if (ended_) return;
    ended_ = alone_ = true;
    JobOrder order;
    order.kind = JobOrder::kEnd;
    order.exit_code = exit_code;
    order.reason = reason;
    deliver(order);
  }

  void tell(const JobMessage& message) {
    if (channel_) channel_->send(kControlFrame, 0, encode(message));
  }

  void tick() {
    const auto now = Clock::now();
    const auto since = [&](Clock::time_point then) { return std::chrono::duration<double>(now - then).count(); };
    if (since(pinged_) >= config_.rendezvous.keep_alive_interval) {
      pinged_ = now;
      channel_->send(kPingFrame, 0, "");
    }
    const double silence = config_.rendezvous.silence_seconds();
    if (since(heard_) > silence) closed("silent for " + std::to_string(static_cast<int64_t>(silence)) + " s");
    tick_timer_ = loop_.after(kTick_seconds, [this] { tick(); });
  }

  EventLoop& loop_;
  const LaunchConfig& config_;
  const Endpoint endpoint_;
  const OnOrder on_order_;
  const std::string token_;
  std::unique_ptr<SecureChannel> channel_;
  StoreRelay relay_;
  std::optional<LocalAcceptor> acceptor_;  // of connections from ranks to the store
  std::optional<EventLoop::TimerId> retry_timer_, join_timer_, note_timer_, tick_timer_, barrier_timer_, answer_timer_;
  double retry_seconds_ = kFirstRetry_seconds;
  size_t attempt_ = 0;
  Clock::time_point heard_, pinged_;
  std::string last_error_ = "no answer";
  Culprit culprit_;  // among the failures of this node
  bool joined_ = false, started_ = false, stopped_ = false, ended_ = false;
  bool preempted_ = false;    // a rank here has exited with 75, and the host has not answered yet
  bool saving_ = false;       // the exit codes of the ranks count
  bool alone_ = false;        // the node has ended without the host's order
  bool unreachable_ = false;  // the host is unreachable
  bool leaving_ = false, left_ = false;
};

}  // namespace

std::unique_ptr<JobLink> make_job_client(EventLoop& loop, const LaunchConfig& config, const std::string& token,
                                         JobLink::OnOrder on_order) {
  return std::make_unique<JobClient>(loop, config, token, std::move(on_order));
}

}  // namespace bert
