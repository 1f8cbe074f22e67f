#include "app/net/turned_away.h"

#include <fmt/format.h>

#include "app/system/console.h"

namespace bert {
namespace {

constexpr double kReportInterval_seconds = 10;

}  // namespace

TurnedAway::TurnedAway(EventLoop& loop, int64_t port) : loop_(loop), port_(port) { report_later(); }

TurnedAway::~TurnedAway() {
  loop_.cancel(timer_);
  report();
}

void TurnedAway::count(const std::string& reason, const std::string& peer) {
  ++by_reason_[reason];
  last_ = peer;
}

void TurnedAway::report() {
  int64_t total = 0;
  std::string reasons;
  for (const auto& [reason, number] : by_reason_) {
    total += number;
    reasons += (reasons.empty() ? "" : ", ") + std::to_string(number) + " " + reason;
  }
  if (total == reported_) return;
  say(fmt::format("turned away {} connections to port {} so far ({}), the last from {}", total, port_, reasons, last_));
  reported_ = total;
}

void TurnedAway::report_later() {
  timer_ = loop_.after(kReportInterval_seconds, [this] {
    report();
    report_later();
  });
}

}  // namespace bert
