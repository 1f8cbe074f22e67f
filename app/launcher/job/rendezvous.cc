#include "app/launcher/job/rendezvous.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <tuple>

#include "app/system/exit_codes.h"
#include "app/system/signals.h"

namespace bert {
namespace {

Rendezvous::Time later(Rendezvous::Time now, double seconds) {
  return now + std::chrono::milliseconds(static_cast<int64_t>(1000 * seconds));
}

}  // namespace

Rendezvous::Rendezvous(const RendezvousConfig& config, const Limits& limits, Time now, Send send)
    : config_(config), limits_(limits), send_(std::move(send)), join_deadline_(later(now, config.join_timeout)) {}

std::string Rendezvous::name_of(const Node& node) {
  std::string name = node.info.host + " (bertrun's pid " + std::to_string(node.info.pid) + ")";
  return node.info.node_rank >= 0 ? "node " + std::to_string(node.info.node_rank) + " on " + name : name;
}

std::string Rendezvous::join(NodeId id, const NodeInfo& info, Time now) {
  if (state_ == State::kEnded) return "the job has ended";
  if (!config_.dynamic) {
    if (info.node_rank < 0 || info.node_rank >= config_.max_nodes) {
      return "--node-rank " + std::to_string(info.node_rank) + " is not below --nnodes " +
             std::to_string(config_.max_nodes);
    }
    for (const auto& [other, node] : nodes_) {
      if (node.info.node_rank == info.node_rank)
        return "--node-rank " + std::to_string(info.node_rank) + " is taken by " + name_of(node);
    }
  }
  nodes_[id].info = info;
  const auto count = static_cast<int64_t>(nodes_.size());
  if (state_ == State::kForming) {
    if (count == config_.min_nodes) last_call_ = later(now, config_.last_call_timeout);
    if (count == config_.max_nodes) complete(now);
  } else if (state_ == State::kRunning && !culprit_.heard() && members() < config_.max_nodes) {
    // Finished work is not repeated: if a node is done, the new node waits for a restart or the job's end.
    const bool begun = std::ranges::none_of(nodes_, [](const auto& entry) { return entry.second.done; });
    if (begun) restart(name_of(nodes_[id]) + " joins; restarting all ranks", false, now);
  }
  return "";
}

void Rendezvous::tick(Time now) {
  if (state_ == State::kRestarting && now >= stop_deadline_) {
    end(kPeerFailure, fmt::format("ranks were not stopped within {:.0f} s for a restart on {}; check those machines",
                                  limits_.stop_seconds, unfinished_nodes()));
  }
  decide(now);
  if (state_ != State::kForming) return;
  if (static_cast<int64_t>(nodes_.size()) >= least()) {
    if (now >= std::min(last_call_.value_or(join_deadline_), join_deadline_)) complete(now);
  } else if (now >= join_deadline_) {
    end(kPeerFailure, "rendezvous " + config_.id + ": " + waiting_for() +
                          fmt::format(" after {:.0f} s; check that bertrun runs on every machine with the same "
                                      "--rdzv-id and endpoint, that no firewall is between, and that all have the "
                                      "same token",
                                      config_.join_timeout));
  }
}

std::string Rendezvous::waiting_for() const {
  if (state_ != State::kForming) return "";
  std::string message = fmt::format("{} of {} nodes have joined:", nodes_.size(), least());
  std::vector<bool> taken(static_cast<size_t>(config_.max_nodes));
  for (const auto& [id, node] : nodes_) {
    message += fmt::format(" {},", name_of(node));
    if (!config_.dynamic) taken[static_cast<size_t>(node.info.node_rank)] = true;
  }
  if (nodes_.empty()) message += " none,";
  message.pop_back();
  if (!config_.dynamic) {
    message += "; missing: --node-rank";
    for (size_t i = 0; i < taken.size(); ++i) message += taken[i] ? "" : fmt::format(" {}", i);
  }
  return message;
}

void Rendezvous::complete(Time now) {
  std::vector<std::pair<NodeId, Node*>> order;
  for (auto& [id, node] : nodes_) {
    if (static_cast<int64_t>(order.size()) < config_.max_nodes) order.emplace_back(id, &node);
  }
  const auto place = [&](const std::pair<NodeId, Node*>& entry) {
    const NodeInfo& info = entry.second->info;
    return std::make_tuple(info.node_rank, info.host, info.pid, entry.first);
  };
  std::ranges::sort(order, [&](const auto& a, const auto& b) { return place(a) < place(b); });
  std::map<std::string, int64_t> role_sizes;
  int64_t world_size = 0;
  for (const auto& [id, node] : order) {
    role_sizes[node->info.role] += node->info.local_world_size;
    world_size += node->info.local_world_size;
  }
  state_ = State::kRunning;
  last_call_.reset();
  culprit_ = Culprit();
  join_deadline_ = later(now, config_.join_timeout);
  std::map<std::string, int64_t> role_ranks;
  JobOrder start;
  start.assignment.round = round_++;
  start.assignment.group_world_size = static_cast<int64_t>(order.size());
  start.assignment.world_size = world_size;
  start.assignment.restart_count = restarts_;
  for (const auto& [id, node] : order) {
    node->member = true, node->done = false, node->stopped = false;
    node->round = start.assignment.round, node->running = node->info.local_world_size;
    start.assignment.first_role_rank = role_ranks[node->info.role];
    start.assignment.role_world_size = role_sizes[node->info.role];
    send_(id, start);
    ++start.assignment.group_rank;
    start.assignment.first_rank += node->info.local_world_size;
    role_ranks[node->info.role] += node->info.local_world_size;
  }
}

int64_t Rendezvous::members() const {
  return std::ranges::count_if(nodes_, [](const auto& entry) { return entry.second.member; });
}

std::string Rendezvous::restarting() const {
  return "; restarting all ranks (" + std::to_string(restarts_) + " of " + std::to_string(limits_.max_restarts) + ")";
}

void Rendezvous::restart(const std::string& reason, bool failed, Time now) {
  state_ = State::kRestarting;
  stop_deadline_ = later(now, limits_.stop_seconds);
  JobOrder order;
  order.kind = JobOrder::kRestart;
  order.reason = reason;
  order.failed = failed;
  for (auto& [id, node] : nodes_) {
    if (node.member && !node.leaving) send_(id, order);
  }
}

/// Called when all nodes of the running round have stopped. Nodes that joined meanwhile take part in the next round.
void Rendezvous::form_again(Time now) {
  if (!all_stopped()) return;
  for (auto& [id, node] : nodes_) node.member = node.done = false;
  state_ = State::kForming;
  join_deadline_ = later(now, config_.join_timeout);
  last_call_ = now;  // all nodes are known, so no last call is needed unless there are too few
  tick(now);
}

void Rendezvous::stopped(NodeId id, int64_t round, const SaveResult& saved, Time now) {
  const auto found = nodes_.find(id);
  if (found == nodes_.end() || found->second.round != round) return;
  Node& node = found->second;
  if (state_ == State::kRunning && node.member && !node.done) return lost(id, "it has stopped its ranks", now);
  node.stopped = true;
  if (node.leaving) {
    Verdict verdict(128 + *node.leaving, /*saving=*/true);
    verdict.take(saved);
    JobOrder order;
    order.kind = JobOrder::kLeave;
    order.exit_code = verdict.result();
    send_(id, order);
    nodes_.erase(found);
  }
  if (state_ == State::kRestarting) form_again(now);
  if (state_ != State::kEnded) return;
  verdict_.take(saved);
  if (all_stopped()) leave();
}

void Rendezvous::succeeded(NodeId id, int64_t round) {
  const auto found = nodes_.find(id);
  if (found == nodes_.end() || found->second.round != round || state_ != State::kRunning) return;
  found->second.done = true, found->second.running = 0;
  const bool all =
      std::ranges::all_of(nodes_, [](const auto& entry) { return entry.second.done || !entry.second.member; });
  if (all) end(kOk, "");
}

void Rendezvous::failed(NodeId id, const FailureReport& report, Time now) {
  const auto found = nodes_.find(id);
  if (found == nodes_.end() || found->second.round != report.round || state_ != State::kRunning) return;
  found->second.running = report.running;
  culprit_.hear(report.failure, now);
  decide(now);
}

std::optional<Rendezvous::Time> Rendezvous::decides_at() const {
  return state_ == State::kRunning && culprit_.heard() ? std::optional(culprit_.decision()) : std::nullopt;
}

/// Ends or restarts the round if a rank has failed and no likelier culprit is waited for.
void Rendezvous::decide(Time now) {
  if (!decides_at()) return;
  const bool others =
      std::ranges::any_of(nodes_, [](const auto& entry) { return entry.second.member && entry.second.running > 0; });
  if (!others || now >= culprit_.decision()) conclude(now);
}

/// The likeliest failure so far ends or restarts the round.
void Rendezvous::conclude(Time now) {
  const Failure& failure = culprit_.likeliest();
  if (failure.exit_code == kPreempted || failure.pid == 0 || !restarts_left()) {
    end(failure.exit_code, one_line(failure));
    return;
  }
  ++restarts_;
  restart(one_line(failure) + restarting(), true, now);
}

/// True if the nodes beside `id` are as many as the job needs, and `id` is not where the job is.
bool Rendezvous::goes_on_without(NodeId id) const {
  const auto stays = [&](const auto& entry) { return entry.first != id && !entry.second.leaving; };
  const bool running = (state_ == State::kRunning && !culprit_.heard()) || state_ == State::kRestarting;
  return config_.dynamic && running && id != kHost && nodes_.contains(id) && !nodes_.at(id).done &&
         std::ranges::count_if(nodes_, stays) >= config_.min_nodes;
}

/// Ends the ranks of a node, and restarts those of the others when all have saved.
void Rendezvous::take_out(NodeId id, int signal, const std::string& what, Time now) {
  Node& node = nodes_.at(id);
  node.leaving = signal;
  JobOrder end;
  end.kind = JobOrder::kEnd;
  end.reason = "this node leaves the job, which goes on";  // the node has told its signal
  end.exit_code = 128 + signal;
  if (!node.member) node.stopped = false;  // it has no ranks, and says so
  if (state_ == State::kRunning && node.member)
    restart(what + "; it leaves the job, and the ranks of the others start again", false, now);
  send_(id, end);
}

void Rendezvous::interrupted(NodeId id, int signal, Time now) {
  const auto found = nodes_.find(id);
  const std::string where = found != nodes_.end() ? " on " + name_of(found->second) : "";
  const std::string what = "signal " + std::to_string(signal) + " (" + signal_name(signal) + ")" + where;
  if (signal == SIGTERM && goes_on_without(id)) return take_out(id, signal, what, now);
  if (state_ == State::kForming) return end(kPreempted, what + kNoRankRuns, signal);
  end(128 + signal, what, signal);
}

void Rendezvous::lost(NodeId id, const std::string& why, Time now) {
  const auto found = nodes_.find(id);
  if (found == nodes_.end()) return;
  const bool needed = found->second.member && !found->second.done;
  const std::string reason = "lost " + name_of(found->second) + ": " + why;
  nodes_.erase(found);
  switch (state_) {
    case State::kForming:
      if (static_cast<int64_t>(nodes_.size()) < config_.min_nodes) last_call_.reset();
      break;
    case State::kRunning:
      if (!needed) break;
      if (culprit_.heard() && cause_of(culprit_.likeliest()) != Cause::kConsequence) {
        conclude(now);
      } else if (restarts_left()) {
        ++restarts_;
        restart(reason + restarting(), true, now);
      } else {
        end(kPeerFailure, reason + "; check that machine and the network to it");
      }
      if (state_ == State::kRestarting) form_again(now);
      break;
    case State::kRestarting:
      form_again(now);
      break;
    case State::kEnded:
      if (all_stopped()) leave();
      break;
  }
}

void Rendezvous::end(int exit_code, const std::string& reason, int signal) {
  if (state_ == State::kEnded) return;
  state_ = State::kEnded;
  verdict_ = Verdict(exit_code, signal != 0 || exit_code == kPreempted);
  preempted_ = signal == 0 && exit_code == kPreempted;
  JobOrder order;
  order.kind = JobOrder::kEnd;
  order.reason = reason;
  order.exit_code = exit_code;
  order.signal = signal;
  for (auto& [id, node] : nodes_) {
    node.stopped = false;
    node.leaving.reset();
    send_(id, order);
  }
}

bool Rendezvous::all_stopped() const {
  return std::ranges::all_of(nodes_, [](const auto& entry) { return entry.second.stopped; });
}

void Rendezvous::leave() {
  if (left_) return;
  left_ = true;
  JobOrder order;
  order.kind = JobOrder::kLeave;
  order.exit_code = verdict_.result();
  for (const auto& [id, node] : nodes_) send_(id, order);
}

std::string Rendezvous::unfinished_nodes() const {
  std::string names;
  for (const auto& [id, node] : nodes_) {
    if (!node.stopped) names += (names.empty() ? "" : ", ") + name_of(node);
  }
  return names;
}

}  // namespace bert
