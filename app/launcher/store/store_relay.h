// Carries the connections between ranks and the store over one channel between two agents.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "app/net/event_loop.h"
#include "app/net/secure_channel.h"
#include "app/net/socket.h"

namespace bert {

/// Types of the frames between agents. The connecting side chooses the stream numbers. Frames without a stream have
/// number 0.
enum FrameType : uint8_t {
  kControlFrame = 1,  // a message, see job_messages.h
  kPingFrame = 2,     // empty; shows that the sender lives
  kOpenFrame = 3,     // a rank has connected
  kDataFrame = 4,     // bytes of a stream
  kCreditFrame = 5,   // number of bytes (4, big-endian) that have been passed on; the sender may send as many more
  kEndFrame = 6,      // no more bytes in this direction
  kCloseFrame = 7,    // the connection is closed
};

/// One side of a channel. At most kWindow bytes per stream and direction are on their way, so a slow reader uses
/// bounded memory and does not hold up other streams.
class StoreRelay {
 public:
  using Send = std::function<void(uint8_t type, uint32_t stream, std::string_view payload)>;
  static constexpr size_t kWindow = 256 << 10;
  static constexpr size_t kMostStreams = 4096;

  StoreRelay(EventLoop& loop, Send send) : loop_(loop), send_(std::move(send)) {}
  ~StoreRelay() { close_all(); }
  StoreRelay(const StoreRelay&) = delete;
  StoreRelay& operator=(const StoreRelay&) = delete;

  /// The agent's side: makes a stream of a rank's connection.
  void connected(Descriptor rank);
  /// The host's side: sets the target of kOpenFrame.
  void set_target(const Endpoint& store) { target_ = store; }
  /// Handles a frame of a stream. Returns "", or an error, after which the caller must close the channel.
  [[nodiscard]] std::string take(const Frame& frame);
  void close_all();
  /// Stops reading from the ranks and the store while the channel is behind.
  void hold(bool on);
  [[nodiscard]] size_t streams() const { return streams_.size(); }

 private:
  struct Stream {
    Descriptor socket;
    bool connecting = false, local_end = false, remote_end = false;
    size_t unacknowledged = 0;  // bytes sent that have no credit yet
    size_t passed_on = 0;       // bytes passed on whose credit has not been sent yet
    std::string out;            // bytes to be written to the socket
  };
  void add(uint32_t id, Descriptor socket, bool connecting);
  void handle(uint32_t id, short events);
  bool read_some(uint32_t id, Stream& stream);
  bool write_some(uint32_t id, Stream& stream);
  void update(uint32_t id, Stream& stream);
  void drop(uint32_t id, bool tell);

  EventLoop& loop_;
  const Send send_;
  Endpoint target_;
  std::map<uint32_t, Stream> streams_;
  uint32_t next_ = 1;
  bool held_ = false;
};

}  // namespace bert
