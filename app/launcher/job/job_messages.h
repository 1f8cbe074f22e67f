// The messages between agents and the host of a job, as JSON in control frames.
#pragma once

#include <string>
#include <variant>

#include "app/launcher/job/rendezvous.h"
#include "app/launcher/ranks/failure.h"

namespace bert {

/// An agent's first message.
struct JoinMessage {
  std::string id;  // --rdzv-id
  int64_t min_nodes = 1, max_nodes = 1;
  NodeInfo node;
};
/// Messages of an agent about its ranks. Each is about one round.
struct StoppedMessage {
  int64_t round = 0;
  SaveResult saved;
};
struct SucceededMessage {
  int64_t round = 0;
};
using FailedMessage = FailureReport;
struct InterruptedMessage {
  int signal = 0;
};
/// The host's reason for not admitting an agent, and the agent's exit code.
struct RefusedMessage {
  int exit_code = 0;
  std::string reason;
};
struct OrderMessage {
  JobOrder order;
};

using JobMessage = std::variant<JoinMessage, StoppedMessage, SucceededMessage, FailedMessage, InterruptedMessage,
                                RefusedMessage, OrderMessage>;

/// Encodes a message. Long texts are shortened so that the message fits a frame.
std::string encode(const JobMessage& message);

/// Throws DataError.
JobMessage decode(const std::string& text);

}  // namespace bert
