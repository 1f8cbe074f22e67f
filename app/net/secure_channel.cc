#include "app/net/secure_channel.h"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "app/net/big_endian.h"
#include "app/system/crypto.h"

namespace bert {
namespace {

constexpr std::string_view kMagic = "bertrun1";
constexpr size_t kNonce = 32, kMac = 32, kTag = 16, kHeader = 12;
constexpr size_t kHostHello = kMagic.size() + kNonce, kAgentAnswer = kMagic.size() + kNonce + kMac;
constexpr size_t kHostAnswer = 1 + kMac;
constexpr const char* kNoBertrun = "it is no bertrun, or one of another version, that listens there";

std::string tag_of(const std::string& key, uint64_t number, std::string_view frame) {
  std::string text;
  append_big_endian(text, number, 8);
  text.append(frame);
  return hmac_sha256(key, text).substr(0, kTag);
}

}  // namespace

SecureChannel::SecureChannel(EventLoop& loop, Descriptor socket, Role role, std::string token, Events events)
    : loop_(loop),
      socket_(std::move(socket)),
      role_(role),
      token_(std::move(token)),
      events_(std::move(events)),
      own_nonce_(random_bytes(kNonce)) {
  if (role_ == Role::kHost) {
    peer_ = peer_of(socket_.get());
    state_ = State::kHandshake;
    host_nonce_ = own_nonce_;
    out_.append(kMagic).append(own_nonce_);
  } else {
    agent_nonce_ = own_nonce_;
  }
  deadline_ = loop_.after(kHandshake_seconds, [this] {
    close(state_ == State::kConnecting ? "no connection within 5 s" : "no handshake within 5 s");
  });
  loop_.watch(socket_.get(), POLLIN | POLLOUT, [this](short ready_events) { handle(ready_events); });
}

SecureChannel::~SecureChannel() {
  loop_.cancel(deadline_);
  if (socket_) loop_.unwatch(socket_.get());
}

std::string SecureChannel::mac(std::string_view label) const {
  return hmac_sha256(token_, std::string(label) + agent_nonce_ + host_nonce_);
}

std::string SecureChannel::refusal() const {
  return hmac_sha256(std::string(kMagic), "wrong token" + agent_nonce_ + host_nonce_);
}

void SecureChannel::close(const std::string& why) {
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  loop_.cancel(deadline_);
  loop_.unwatch(socket_.get());
  socket_.reset();
  in_.clear(), out_.clear();
  in_begin_ = out_begin_ = 0;
  events_.closed(why);
}

void SecureChannel::handle(short events) {
  if (state_ == State::kConnecting) {
    if (const int error = connection_error(socket_.get())) return close(std::strerror(error));
    if ((events & POLLOUT) == 0) return;
    peer_ = peer_of(socket_.get());
    state_ = State::kHandshake;
  }
  if ((events & POLLOUT) != 0) flush();
  if (state_ != State::kClosed && (events & (POLLIN | POLLHUP | POLLERR)) != 0) read_some();
}

void SecureChannel::flush() {
  while (queued() > 0) {
    const ssize_t written = ::send(socket_.get(), out_.data() + out_begin_, queued(), MSG_NOSIGNAL);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno != EAGAIN) return close(std::strerror(errno));
    if (written < 0) break;
    out_begin_ += static_cast<size_t>(written);
  }
  if (2 * out_begin_ >= out_.size()) {  // moves the rest rarely enough: the cost stays below that of writing it
    out_.erase(0, out_begin_);
    out_begin_ = 0;
  }
  loop_.set_events(socket_.get(), static_cast<short>(flushed() ? POLLIN : POLLIN | POLLOUT));
  if (congested_ && queued() < kLowWater) {
    congested_ = false;
    if (events_.congested) events_.congested(false);
  }
}

void SecureChannel::read_some() {
  // During the handshake nothing beyond its next message is read.
  size_t wanted = kLargestPayload;
  if (state_ == State::kHandshake) {
    wanted = role_ == Role::kHost ? kAgentAnswer : answered_ ? kHostAnswer : kHostHello;
    wanted -= in_.size();
  }
  std::array<char, kLargestPayload> buffer;
  const ssize_t got = recv(socket_.get(), buffer.data(), wanted, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got < 0) return close(std::strerror(errno));
  if (got == 0) {
    return close(state_ == State::kHandshake ? "closed in the handshake" : "the other side has closed the connection");
  }
  in_.append(buffer.data(), static_cast<size_t>(got));
  if (state_ == State::kHandshake) {
    if (static_cast<size_t>(got) == wanted) advance_handshake();
    return;
  }
  while (state_ == State::kReady && take_frame()) {
  }
  in_.erase(0, in_begin_);
  in_begin_ = 0;
}

void SecureChannel::advance_handshake() {
  if (role_ == Role::kHost) {
    host_checks_agent();
  } else if (!answered_) {
    agent_answers();
  } else {
    agent_checks_host();
  }
}

void SecureChannel::agent_answers() {
  if (in_.compare(0, kMagic.size(), kMagic) != 0) return close(kNoBertrun);
  host_nonce_ = in_.substr(kMagic.size());
  in_.clear();
  answered_ = true;
  out_.append(kMagic).append(agent_nonce_).append(mac("agent"));
  flush();
}

void SecureChannel::host_checks_agent() {
  if (in_.compare(0, kMagic.size(), kMagic) != 0) return close("no bertrun's greeting");
  agent_nonce_ = in_.substr(kMagic.size(), kNonce);
  const bool right = equal_secrets(std::string_view(in_).substr(kMagic.size() + kNonce), mac("agent"));
  in_.clear();
  if (!right) {
    const std::string answer = std::string(1, '\0') + refusal();
    [[maybe_unused]] const ssize_t sent = ::send(socket_.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
    return close("wrong token");
  }
  out_.append(1, '\1').append(mac("host"));
  flush();
  if (state_ != State::kClosed) become_ready();
}

void SecureChannel::agent_checks_host() {
  const std::string_view proof = std::string_view(in_).substr(1);
  refused_ = in_[0] == '\0' && equal_secrets(proof, refusal());
  if (refused_) return close("the host has another token");
  if (in_[0] != '\1') return close(kNoBertrun);
  if (!equal_secrets(proof, mac("host"))) return close("the host does not know the token");
  in_.clear();
  become_ready();
}

void SecureChannel::become_ready() {
  loop_.cancel(deadline_);
  const std::string from_agent = mac("from agent"), from_host = mac("from host");
  send_key_ = role_ == Role::kAgent ? from_agent : from_host;
  receive_key_ = role_ == Role::kAgent ? from_host : from_agent;
  state_ = State::kReady;
  events_.ready();
}

bool SecureChannel::take_frame() {
  const std::string_view in = std::string_view(in_).substr(in_begin_);
  if (in.size() < kHeader) return false;
  const size_t length = from_big_endian(in.substr(0, 4));
  if (length > kLargestPayload) {
    close("a frame of " + std::to_string(length) + " bytes; at most " + std::to_string(kLargestPayload) +
          " are allowed");
    return false;
  }
  const size_t whole = kHeader + length + kTag;
  if (in.size() < whole) return false;
  const std::string_view body = in.substr(0, kHeader + length);
  if (!equal_secrets(in.substr(body.size(), kTag), tag_of(receive_key_, received_, body))) {
    close("a frame with a wrong MAC");
    return false;
  }
  ++received_;
  Frame frame;
  frame.type = static_cast<uint8_t>(in[4]);
  frame.stream = static_cast<uint32_t>(from_big_endian(in.substr(8, 4)));
  frame.payload = in.substr(kHeader, length);
  in_begin_ += whole;
  events_.frame(frame);
  return true;
}

void SecureChannel::send(uint8_t type, uint32_t stream, std::string_view payload) {
  if (state_ != State::kReady) return;
  std::string frame;
  append_big_endian(frame, payload.size(), 4);
  frame.append(1, static_cast<char>(type)).append(3, '\0');
  append_big_endian(frame, stream, 4);
  frame.append(payload);
  out_.append(frame).append(tag_of(send_key_, sent_++, frame));
  loop_.set_events(socket_.get(), POLLIN | POLLOUT);
  if (!congested_ && queued() > kHighWater) {
    congested_ = true;
    if (events_.congested) events_.congested(true);
  }
}

}  // namespace bert
