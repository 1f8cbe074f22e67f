#include "app/launcher/job/job_messages.h"

#include <nlohmann/json.hpp>

#include "app/parse/bounded_json.h"
#include "app/system/console.h"
#include "data/io/error.h"

namespace bert {
namespace {

using Json = nlohmann::json;

constexpr size_t kLongestText = 1024;  // bytes; a message fits a frame even if every byte is escaped
constexpr const char* kWhere = "message of an agent";

int64_t number(const Json& object, const char* key) { return integer_member(object, key, kWhere); }
int exit_code(const Json& object, const char* key = "exit_code") {
  return static_cast<int>(number(object, key) & 0xff);
}

/// Reads the number of one of Linux' standard signals, or `low` = 0 for none. The number is sent to processes and
/// printed by name.
int signal_number(const Json& object, int low) {
  constexpr int64_t kLast = 31;  // SIGSYS
  const int64_t value = number(object, "signal");
  if (value < low || value > kLast) throw DataError(std::string(kWhere) + ": signal " + std::to_string(value));
  return static_cast<int>(value);
}

std::string text(const Json& object, const char* key) { return string_member(object, key, kWhere); }

Json to_json(const NodeInfo& node) {
  return {{"host", shortened(node.host, kLongestText)},
          {"pid", node.pid},
          {"node_rank", node.node_rank},
          {"role", shortened(node.role, kLongestText)},
          {"local_world_size", node.local_world_size}};
}

NodeInfo node_of(const Json& object) {
  constexpr int64_t kMostRanks = 1 << 20;
  NodeInfo node{text(object, "host"), number(object, "pid"), number(object, "node_rank"), text(object, "role"),
                number(object, "local_world_size")};
  if (node.local_world_size < 1 || node.local_world_size > kMostRanks)
    throw DataError(std::string(kWhere) + ": local_world_size " + std::to_string(node.local_world_size));
  return node;
}

Json to_json(const Failure& failure) {
  return {{"rank", failure.rank},
          {"local_rank", failure.local_rank},
          {"pid", failure.pid},
          {"host", shortened(failure.host, kLongestText)},
          {"exit_code", failure.exit_code},
          {"signal", failure.signal},
          {"message", shortened(failure.message, kLongestText)},
          {"phase", shortened(failure.phase, kLongestText)},
          {"last_collective", shortened(failure.last_collective, kLongestText)},
          {"error_file", shortened(failure.error_file, kLongestText)},
          {"note", shortened(failure.note, kLongestText)}};
}

Failure failure_of(const Json& object) {
  return {.rank = number(object, "rank"),
          .local_rank = number(object, "local_rank"),
          .pid = number(object, "pid"),
          .host = text(object, "host"),
          .exit_code = exit_code(object),
          .signal = signal_number(object, 0),
          .message = text(object, "message"),
          .phase = text(object, "phase"),
          .last_collective = text(object, "last_collective"),
          .error_file = text(object, "error_file"),
          .note = text(object, "note")};
}

Json to_json(const JobOrder& order) {
  const Assignment& place = order.assignment;
  return {{"kind", static_cast<int>(order.kind)},
          {"round", place.round},
          {"group_rank", place.group_rank},
          {"group_world_size", place.group_world_size},
          {"first_rank", place.first_rank},
          {"world_size", place.world_size},
          {"first_role_rank", place.first_role_rank},
          {"role_world_size", place.role_world_size},
          {"restart_count", place.restart_count},
          {"reason", shortened(order.reason, kLongestText)},
          {"failed", order.failed},
          {"exit_code", order.exit_code},
          {"signal", order.signal}};
}

JobOrder order_of(const Json& object) {
  JobOrder order;
  const int64_t kind = number(object, "kind");
  if (kind < JobOrder::kStart || kind > JobOrder::kLeave) throw DataError(std::string(kWhere) + ": unknown order");
  order.kind = static_cast<JobOrder::Kind>(kind);
  order.assignment = {.round = number(object, "round"),
                      .group_rank = number(object, "group_rank"),
                      .group_world_size = number(object, "group_world_size"),
                      .first_rank = number(object, "first_rank"),
                      .world_size = number(object, "world_size"),
                      .first_role_rank = number(object, "first_role_rank"),
                      .role_world_size = number(object, "role_world_size"),
                      .restart_count = number(object, "restart_count")};
  order.reason = text(object, "reason");
  order.failed = boolean_member(object, "failed", kWhere);
  order.exit_code = exit_code(object);
  order.signal = signal_number(object, 0);
  return order;
}

struct Encoder {
  Json operator()(const JoinMessage& message) const {
    return {{"type", "join"},
            {"id", shortened(message.id, kLongestText)},
            {"min_nodes", message.min_nodes},
            {"max_nodes", message.max_nodes},
            {"node", to_json(message.node)}};
  }
  Json operator()(const StoppedMessage& message) const {
    return {{"type", "stopped"},
            {"round", message.round},
            {"saved", message.saved.saved},
            {"failed", message.saved.failed}};
  }
  Json operator()(const SucceededMessage& message) const { return {{"type", "succeeded"}, {"round", message.round}}; }
  Json operator()(const FailedMessage& message) const {
    return {{"type", "failed"},
            {"round", message.round},
            {"failure", to_json(message.failure)},
            {"running", message.running}};
  }
  Json operator()(const InterruptedMessage& message) const {
    return {{"type", "interrupted"}, {"signal", message.signal}};
  }
  Json operator()(const RefusedMessage& message) const {
    return {{"type", "refused"}, {"exit_code", message.exit_code}, {"reason", shortened(message.reason, kLongestText)}};
  }
  Json operator()(const OrderMessage& message) const { return {{"type", "order"}, {"order", to_json(message.order)}}; }
};

}  // namespace

std::string encode(const JobMessage& message) {
  return std::visit(Encoder{}, message).dump(-1, ' ', false, Json::error_handler_t::replace);
}

JobMessage decode(const std::string& encoded) {
  const Json object = parse_bounded_json(encoded, kWhere);
  const std::string type = text(object, "type");
  const auto part = [&](const char* key) { return member(object, key, Json::value_t::object, kWhere); };
  if (type == "join")
    return JoinMessage{text(object, "id"), number(object, "min_nodes"), number(object, "max_nodes"),
                       node_of(part("node"))};
  if (type == "stopped") {
    return StoppedMessage{number(object, "round"),
                          {boolean_member(object, "saved", kWhere), exit_code(object, "failed")}};
  }
  if (type == "succeeded") return SucceededMessage{number(object, "round")};
  if (type == "failed")
    return FailedMessage{number(object, "round"), failure_of(part("failure")), number(object, "running")};
  if (type == "interrupted") return InterruptedMessage{signal_number(object, 1)};
  if (type == "refused") return RefusedMessage{exit_code(object), text(object, "reason")};
  if (type == "order") return OrderMessage{order_of(part("order"))};
  throw DataError(std::string(kWhere) + ": unknown type \"" + type.substr(0, 40) + "\"");
}

}  // namespace bert
