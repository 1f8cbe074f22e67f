#include "app/launcher/rendezvous.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <cstring>
#include <tuple>

#include "app/exit_codes.h"

namespace bert {
namespace {

Rendezvous::Time later(Rendezvous::Time now, double seconds) {
  return now + std::chrono::milliseconds(static_cast<int64_t>(1000 * seconds));
}

}  // namespace

Rendezvous::Rendezvous(const RendezvousConfig& config, int64_t max_restarts, Time now, Send send,
                       std::optional<NodeId> first)
    : config_(config),
      max_restarts_(max_restarts),
      send_(std::move(send)),
      first_(first),
      join_deadline_(later(now, config.join_timeout)) {}

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
  } else if (state_ == State::kRunning && members() < config_.max_nodes) {
    restart(name_of(nodes_[id]) + " joins; restarting all ranks", false);
  }
  return "";
}

void Rendezvous::tick(Time now) {
  if (state_ != State::kForming) return;
  const auto count = static_cast<int64_t>(nodes_.size());
  const int64_t least = config_.dynamic ? config_.min_nodes : config_.max_nodes;
  if (count >= least && last_call_ && now >= *last_call_) {
    complete(now);
  } else if (now >= join_deadline_) {
    end(kPeerFailure, missing_nodes());
  }
}

std::string Rendezvous::missing_nodes() const {
  std::string message = "rendezvous " + config_.id + ": " + std::to_string(nodes_.size()) + " of " +
                        std::to_string(config_.dynamic ? config_.min_nodes : config_.max_nodes) +
                        " nodes have joined within " + std::to_string(static_cast<int64_t>(config_.join_timeout)) +
                        " s; there:";
  std::vector<bool> taken(static_cast<size_t>(config_.max_nodes));
  for (const auto& [id, node] : nodes_) {
    message += fmt::format(" {},", name_of(node));
    if (!config_.dynamic) taken[static_cast<size_t>(node.info.node_rank)] = true;
  }
  if (nodes_.empty()) message += " none,";
  message.back() = ';';
  if (!config_.dynamic) {
    message += " missing: --node-rank";
    for (size_t i = 0; i < taken.size(); ++i) message += taken[i] ? "" : fmt::format(" {}", i);
    message += ";";
  }
  return message +
         " check that bertrun runs on every machine with the same --rdzv-id and endpoint, that no firewall is "
         "between, and that all have the same token";
}

void Rendezvous::complete(Time now) {
  std::vector<std::pair<NodeId, Node*>> order;
  for (auto& [id, node] : nodes_) {
    if (static_cast<int64_t>(order.size()) < config_.max_nodes) order.emplace_back(id, &node);
  }
  const auto place = [&](const std::pair<NodeId, Node*>& entry) {
    const NodeInfo& info = entry.second->info;
    return std::make_tuple(entry.first != first_.value_or(entry.first), info.node_rank, info.host, info.pid,
                           entry.first);
  };
  std::sort(order.begin(), order.end(), [&](const auto& a, const auto& b) { return place(a) < place(b); });
  std::map<std::string, int64_t> role_sizes;
  int64_t world_size = 0;
  for (const auto& [id, node] : order) {
    role_sizes[node->info.role] += node->info.local_world_size;
    world_size += node->info.local_world_size;
  }
  state_ = State::kRunning;
  last_call_.reset();
  join_deadline_ = later(now, config_.join_timeout);
  std::map<std::string, int64_t> role_ranks;
  JobOrder start;
  start.assignment.round = round_++;
  start.assignment.group_world_size = static_cast<int64_t>(order.size());
  start.assignment.world_size = world_size;
  start.assignment.restart_count = restarts_;
  for (const auto& [id, node] : order) {
    node->member = true, node->done = false, node->stopped = false;
    start.assignment.first_role_rank = role_ranks[node->info.role];
    start.assignment.role_world_size = role_sizes[node->info.role];
    send_(id, start);
    ++start.assignment.group_rank;
    start.assignment.first_rank += node->info.local_world_size;
    role_ranks[node->info.role] += node->info.local_world_size;
  }
}

int64_t Rendezvous::members() const {
  return std::count_if(nodes_.begin(), nodes_.end(), [](const auto& entry) { return entry.second.member; });
}

std::string Rendezvous::restarting() const {
  return "; restarting all ranks (" + std::to_string(restarts_) + " of " + std::to_string(max_restarts_) + ")";
}

void Rendezvous::restart(const std::string& reason, bool failed) {
  state_ = State::kRestarting;
  JobOrder order;
  order.kind = JobOrder::kRestart;
  order.reason = reason;
  order.failed = failed;
  std::vector<NodeId> ids;
  for (auto& [id, node] : nodes_) {
    node.stopped = !node.member;
    if (node.member) ids.push_back(id);
  }
  for (const NodeId id : ids) send_(id, order);
}

void Rendezvous::form_again(Time now) {
  const bool all = std::all_of(nodes_.begin(), nodes_.end(), [](const auto& entry) { return entry.second.stopped; });
  if (!all) return;
  for (auto& [id, node] : nodes_) node.member = node.done = node.stopped = false;
  state_ = State::kForming;
  join_deadline_ = later(now, config_.join_timeout);
  last_call_ = now;  // whoever is there is known: nobody to wait for, unless there are too few
  tick(now);
}

void Rendezvous::stopped(NodeId id, Time now) {
  const auto found = nodes_.find(id);
  if (found == nodes_.end()) return;
  found->second.stopped = true;
  if (state_ == State::kRestarting) form_again(now);
}

void Rendezvous::succeeded(NodeId id) {
  const auto found = nodes_.find(id);
  if (found == nodes_.end() || state_ != State::kRunning) return;
  found->second.done = true;
  const bool all = std::all_of(nodes_.begin(), nodes_.end(),
                               [](const auto& entry) { return entry.second.done || !entry.second.member; });
  if (all) end(kOk, "");
}

void Rendezvous::failed(NodeId id, const Failure& failure) {
  if (state_ != State::kRunning || !nodes_.contains(id)) return;
  if (failure.exit_code == kPreempted || failure.pid == 0 || !restarts_left()) {
    end(failure.exit_code, one_line(failure));
    return;
  }
  ++restarts_;
  restart(one_line(failure) + restarting(), true);
}

void Rendezvous::interrupted(NodeId id, int signal) {
  const auto found = nodes_.find(id);
  const std::string where = found != nodes_.end() ? " on " + name_of(found->second) : "";
  end(128 + signal, "signal " + std::to_string(signal) + " (SIG" + sigabbrev_np(signal) + ")" + where, signal);
}

void Rendezvous::lost(NodeId id, const std::string& why, Time now) {
  const auto found = nodes_.find(id);
  if (found == nodes_.end()) return;
  const bool needed = found->second.member && !found->second.done && !found->second.stopped;
  const std::string reason = "lost " + name_of(found->second) + ": " + why;
  nodes_.erase(found);
  if (state_ == State::kForming) {
    if (static_cast<int64_t>(nodes_.size()) < config_.min_nodes) last_call_.reset();
  } else if (state_ == State::kRestarting) {
    form_again(now);
  } else if (state_ == State::kRunning && needed) {
    if (restarts_left()) {
      ++restarts_;
      restart(reason + restarting(), true);
      form_again(now);
    } else {
      end(kPeerFailure, reason + "; check that machine and the network to it");
    }
  }
}

void Rendezvous::end(int exit_code, const std::string& reason, int signal) {
  if (state_ == State::kEnded) return;
  state_ = State::kEnded;
  JobOrder order;
  order.kind = JobOrder::kEnd;
  order.reason = reason;
  order.exit_code = exit_code;
  order.signal = signal;
  std::vector<NodeId> ids;
  for (auto& [id, node] : nodes_) {
    node.stopped = false;
    ids.push_back(id);
  }
  for (const NodeId id : ids) send_(id, order);
}

bool Rendezvous::finished() const {
  return state_ == State::kEnded &&
         std::all_of(nodes_.begin(), nodes_.end(), [](const auto& entry) { return entry.second.stopped; });
}

std::string Rendezvous::unfinished_nodes() const {
  std::string names;
  for (const auto& [id, node] : nodes_) {
    if (!node.stopped) names += (names.empty() ? "" : ", ") + name_of(node);
  }
  return names;
}

}  // namespace bert
