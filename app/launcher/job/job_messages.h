// What agents and the host of a job tell each other, as JSON in control frames.
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
/// What an agent says of its ranks is about one round.
struct StoppedMessage {
  int64_t round = 0;
  SaveResult saved;
};
struct SucceededMessage {
  int64_t round = 0;
};
struct FailedMessage {
  int64_t round = 0;
  Failure failure;
};
struct InterruptedMessage {
  int signal = 0;
};
/// The host's: why the agent may not join.
struct RefusedMessage {
  std::string reason;
};
struct OrderMessage {
  JobOrder order;
};

using JobMessage = std::variant<JoinMessage, StoppedMessage, SucceededMessage, FailedMessage, InterruptedMessage,
                                RefusedMessage, OrderMessage>;

/// Texts in it are shortened to what fits a frame.
std::string encode(const JobMessage& message);

/// Throws DataError.
JobMessage decode(const std::string& text);

}  // namespace bert
