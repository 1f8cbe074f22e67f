#include "app/serve/connection.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "app/serve/http_types.h"

namespace bert {
namespace {

using Clock = Connection::Clock;

constexpr std::string_view kHeadEnd = "\r\n\r\n";
constexpr size_t kReadBytes = 16 << 10, kWriteBytes = 64 << 10;
// Chunks of one byte take six: "1\r\nx\r\n". A chunk's line may have extensions too.
constexpr int64_t kBytesOfChunkedByte = 8;

int milliseconds_until(Clock::time_point until) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 1'000'000));
}

/// Polls until an event, or `until`. Returns false for none.
template <size_t kCount>
bool poll_until(std::array<pollfd, kCount>& waiting, Clock::time_point until) {
  for (;;) {
    const int ready = poll(waiting.data(), kCount, milliseconds_until(until));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

}  // namespace

Clock::time_point Connection::after(std::chrono::duration<double> time) const {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(time);
}

bool Connection::wait_for_request() {
  if (!waiting().empty()) return true;
  std::array<pollfd, 2> events = {{{socket_, POLLIN, 0}, {end_, POLLIN, 0}}};
  return poll_until(events, after(limits_.read)) && events[0].revents != 0 && receive(Clock::now());
}

bool Connection::wait_readable(Clock::time_point until) {
  std::array<pollfd, 1> events = {{{socket_, POLLIN, 0}}};
  timed_out_ = !poll_until(events, until);
  return !timed_out_;
}

/// Appends what has arrived to received_, after a wait if nothing has. Returns false at the end of the connection, and
/// if nothing comes in time: timed_out().
bool Connection::receive(Clock::time_point until) {
  if (!wait_readable(until)) return false;
  received_.erase(0, std::exchange(used_, 0));
  const size_t before = received_.size();
  received_.resize(before + kReadBytes);
  ssize_t got = -1;
  do {
    got = recv(socket_, received_.data() + before, kReadBytes, MSG_DONTWAIT);
  } while (got < 0 && errno == EINTR);
  received_.resize(before + static_cast<size_t>(std::max<ssize_t>(got, 0)));
  return got > 0;
}

std::optional<RequestHead> Connection::read_head() {
  replace_head();
  const Clock::time_point until = after(limits_.read);
  body_deadline_ = after(limits_.request);
  size_t end = std::string::npos, searched = 0;
  while ((end = waiting().find(kHeadEnd, searched)) == std::string::npos && waiting().size() <= kMaxHeadBytes) {
    searched = waiting().size() - std::min(waiting().size(), kHeadEnd.size() - 1);
    if (receive(until)) continue;
    if (!timed_out_) return std::nullopt;
    throw HttpError(408, "the head of the request did not arrive in time");
  }
  if (end == std::string::npos || end + kHeadEnd.size() > kMaxHeadBytes)
    throw HttpError(431, "the head of the request has more than " + std::to_string(kMaxHeadBytes) + " bytes");
  end += kHeadEnd.size();
  head_ = parse_request_head(waiting().substr(0, end));
  used_ += end;
  head_text_ = head_.text();
  body_left_ = head_.chunked ? limits_.max_body_bytes * kBytesOfChunkedByte : head_.content_length;
  return head_;
}

void Connection::replace_head() {
  head_ = RequestHead();
  head_text_ = "GET / HTTP/1.1\r\n\r\n";
  head_read_ = 0;
  body_left_ = 0;
  last_bytes_ = 0;
  timed_out_ = too_large_ = false;
  answer_.clear();
  answer_deadline_.reset();
}

ssize_t Connection::read(char* bytes, size_t size) {
  if (head_read_ < head_text_.size()) {
    const size_t taken = head_text_.copy(bytes, size, head_read_);
    head_read_ += taken;
    return static_cast<ssize_t>(taken);
  }
  if (body_left_ == 0) {
    too_large_ = head_.chunked;
    return -1;
  }
  if (waiting().empty()) {
    if (std::exchange(head_.expects_continue, false) && !send_all("HTTP/1.1 100 Continue\r\n\r\n")) return -1;
    if (!receive(std::min(after(limits_.read), body_deadline_))) return -1;
  }
  const size_t taken = waiting().copy(bytes, std::min(size, static_cast<size_t>(body_left_)));
  used_ += taken;
  body_left_ -= static_cast<int64_t>(taken);
  constexpr size_t kLast = sizeof last_bytes_;
  for (size_t i = taken - std::min(taken, kLast); i < taken; ++i)
    last_bytes_ = last_bytes_ << 8 | static_cast<unsigned char>(bytes[i]);
  return static_cast<ssize_t>(taken);
}

bool Connection::end_body() {
  constexpr uint32_t kTwoLineEnds = 0x0D0A0D0A;
  body_left_ = 0;
  return !head_.chunked || last_bytes_ == kTwoLineEnds;
}

ssize_t Connection::write(const char* bytes, size_t size) {
  answer_.append(bytes, size);
  return answer_.size() < kWriteBytes || flush() ? static_cast<ssize_t>(size) : -1;
}

bool Connection::flush() { return send_all(std::exchange(answer_, {})); }

bool Connection::send_all(std::string_view bytes) {
  if (!answer_deadline_) answer_deadline_ = after(limits_.request);
  while (!bytes.empty()) {
    const ssize_t sent = send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
      continue;
    }
    if (sent < 0 && errno == EINTR) continue;
    if (sent == 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) return false;
    std::array<pollfd, 1> events = {{{socket_, POLLOUT, 0}}};
    if (!poll_until(events, std::min(after(limits_.read), *answer_deadline_))) return false;
  }
  return true;
}

void Connection::linger() {
  constexpr std::chrono::duration<double> kMostTime(2);
  constexpr size_t kMostBytes = size_t{64} << 20;
  shutdown(socket_, SHUT_WR);
  const Clock::time_point until = after(kMostTime);
  size_t taken = 0;
  do {
    taken += waiting().size();
    used_ = received_.size();
  } while (taken < kMostBytes && Clock::now() < until && receive(until));
}

void Connection::get_remote_ip_and_port(std::string& ip, int& port) const {
  ip.clear();
  port = 0;
}

void Connection::get_local_ip_and_port(std::string& ip, int& port) const {
  ip.clear();
  port = 0;
}

}  // namespace bert
