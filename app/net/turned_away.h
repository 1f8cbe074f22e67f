// Connections that a port has refused, counted and reported.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "app/net/event_loop.h"

namespace bert {

/// Counts refused connections by reason. A line about them is printed at most every ten seconds, and at the end.
class TurnedAway {
 public:
  TurnedAway(EventLoop& loop, int64_t port);
  ~TurnedAway();
  TurnedAway(const TurnedAway&) = delete;
  TurnedAway& operator=(const TurnedAway&) = delete;

  /// `peer`: address and port of the other side.
  void count(const std::string& reason, const std::string& peer);
  [[nodiscard]] const std::map<std::string, int64_t>& by_reason() const { return by_reason_; }

 private:
  void report();
  void report_later();

  EventLoop& loop_;
  const int64_t port_;
  std::map<std::string, int64_t> by_reason_;
  int64_t reported_ = 0;
  std::string last_;
  EventLoop::TimerId timer_;
};

}  // namespace bert
