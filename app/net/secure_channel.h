// A TCP connection between two agents. Both sides prove that they know the job's token. After that they exchange frames
// that nobody else can read, make, change, repeat or reorder.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "app/net/event_loop.h"
#include "app/net/socket.h"

struct ssl_st;  // OpenSSL's SSL

namespace bert {

/// Note [TLS between agents]
///
/// The connection is TLS 1.3 (RFC 8446) with a pre-shared key: HMAC-SHA256 of the token and a label. There are no
/// certificates. A new Diffie-Hellman exchange belongs to each connection, so that recorded bytes stay secret even if the
/// token is learned later. Each side proves that it knows the key, before it is believed; sessions are not resumed, and no
/// data comes before the proof. OpenSSL reads and writes bytes in memory; this class moves them.
///
/// A host with another token answers with the alert illegal_parameter (OpenSSL's for a proof that does not verify). So an agent that is refused may
/// end at once. A stranger who plays bertrun on the host's port can end agents with it; as long as the stranger holds the
/// port, no host can take it anyway.
///
/// A frame consists of length (4 bytes), type (1), zeros (3), stream (4) and the payload. Numbers are big-endian.
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
  SecureChannel(EventLoop& loop, Descriptor socket, Role role, const std::string& token, Events events);
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
  void shake_hands();
  void give_up_handshake();
  void become_ready();
  void take_encrypted();
  void read_plain();
  bool take_frame();

  EventLoop& loop_;
  Descriptor socket_;
  const Role role_;
  const Events events_;
  std::string key_;  // pre-shared
  std::string peer_;
  State state_ = State::kConnecting;
  EventLoop::TimerId deadline_;
  std::optional<EventLoop::TimerId> first_read_;  // of frames, which came with the end of the handshake
  std::unique_ptr<ssl_st, void (*)(ssl_st*)> tls_;
  std::string in_, out_;                 // plain bytes that have come, encrypted ones to be sent
  size_t in_begin_ = 0, out_begin_ = 0;  // earlier bytes have been taken, or sent
  bool refused_ = false, congested_ = false;
};

}  // namespace bert
