// A TCP connection between two agents. Both sides prove that they know the job's token. After that they exchange frames
// that nobody else can make, change, repeat or reorder.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "app/net/event_loop.h"
#include "app/net/socket.h"

namespace bert {

/// Note [Handshake]
///
///   host -> agent   "bertrun1", 32 bytes of nonce Nh
///   agent -> host   "bertrun1", nonce Na, HMAC(token, "agent" Na Nh)
///   host -> agent   1, HMAC(token, "host" Na Nh); or 0, HMAC("bertrun1", "wrong token" Na Nh)
///
/// The refusal needs no secret. It only tells a bertrun that has read this agent's answer from a program of another
/// kind, which says something by chance. So an agent that is refused may end at once. A stranger who plays bertrun on
/// the host's port can end agents with it; as long as the stranger holds the port, no host can take it anyway.
///
/// Each direction then has the key HMAC(token, "from agent" | "from host" Na Nh). A frame consists of length (4 bytes),
/// type (1), zeros (3), stream (4), the payload, and the first 16 bytes of HMAC(key, number of the frame (8), all bytes
/// before). Numbers are big-endian. Fresh nonces make recorded bytes useless later. The labels make them useless in the
/// other direction.
struct Frame {
  uint8_t type = 0;
  uint32_t stream = 0;
  std::string payload;
};

class SecureChannel {
 public:
  enum class Role { kAgent, kHost };
  struct Events {
    std::function<void()> ready;                         // the handshake has succeeded
    std::function<void(const Frame&)> frame;             // after `ready`
    std::function<void(const std::string& why)> closed;  // at most once, and always the last event
    // true: more than kHighWater bytes wait to be sent, and the owner must not send. false: fewer than kLowWater bytes
    // are left. May be empty.
    std::function<void(bool on)> congested = {};
  };
  static constexpr size_t kHighWater = 4 << 20, kLowWater = 1 << 20;
  static constexpr size_t kLargestPayload = 64 << 10;
  static constexpr double kHandshake_seconds = 5;

  /// `socket` is connected, or connecting if the role is kAgent. The owner must not destroy the channel inside an
  /// event.
  SecureChannel(EventLoop& loop, Descriptor socket, Role role, std::string token, Events events);
  ~SecureChannel();
  SecureChannel(const SecureChannel&) = delete;
  SecureChannel& operator=(const SecureChannel&) = delete;

  /// Queues a frame with a payload of at most kLargestPayload bytes. Does nothing on a closed channel.
  void send(uint8_t type, uint32_t stream, std::string_view payload);
  /// The kernel closes the connection if the other side acknowledges nothing for `seconds`.
  void set_timeout(double seconds) { set_peer_timeout(socket_.get(), seconds); }
  [[nodiscard]] bool ready() const { return state_ == State::kReady; }
  [[nodiscard]] bool closed() const { return state_ == State::kClosed; }
  /// True if the kernel has taken all queued bytes.
  [[nodiscard]] bool flushed() const { return queued() == 0; }
  /// Number of bytes that wait to be sent.
  [[nodiscard]] size_t queued() const { return out_.size() - out_begin_; }
  /// True if the other side is a bertrun with another token (role kAgent).
  [[nodiscard]] bool refused() const { return refused_; }
  [[nodiscard]] const std::string& peer() const { return peer_; }
  /// This machine's address on the connection; "" if it is closed.
  [[nodiscard]] std::string local_address() const { return local_address_of(socket_.get()); }

 private:
  enum class State { kConnecting, kHandshake, kReady, kClosed };
  void handle(short events);
  void read_some();
  void flush();
  void close(const std::string& why);
  void advance_handshake();
  void host_checks_agent();
  void agent_answers();
  void agent_checks_host();
  void become_ready();
  bool take_frame();
  [[nodiscard]] std::string mac(std::string_view label) const;
  [[nodiscard]] std::string refusal() const;

  EventLoop& loop_;
  Descriptor socket_;
  const Role role_;
  const std::string token_;
  const Events events_;
  std::string peer_;
  State state_ = State::kConnecting;
  EventLoop::TimerId deadline_;
  std::string own_nonce_, agent_nonce_, host_nonce_;
  std::string send_key_, receive_key_;
  uint64_t sent_ = 0, received_ = 0;
  std::string in_, out_;
  size_t in_begin_ = 0, out_begin_ = 0;  // earlier bytes have been taken, or sent
  bool answered_ = false, refused_ = false, congested_ = false;
};

}  // namespace bert
