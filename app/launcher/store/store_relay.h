// Carries the ranks' connections to the store over one channel between two agents.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "app/net/event_loop.h"
#include "app/net/secure_channel.h"
#include "app/net/socket.h"

namespace bert {

/// What the frames of a channel between agents are. Stream numbers are the connecting side's; 0 where there is none.
enum FrameType : uint8_t {
  kControlFrame = 1,  // a message of job_messages.h
  kPingFrame = 2,     // nothing; that the other side lives
  kOpenFrame = 3,     // a rank has connected
  kDataFrame = 4,     // bytes of a stream
  kCreditFrame = 5,   // that many bytes (4, big-endian) have been passed on: as many more may be sent
  kEndFrame = 6,      // no more bytes come in this direction
  kCloseFrame = 7,    // the connection is gone
};

/// One side of a channel. Per stream and direction at most kWindow bytes are under way, so that a slow reader costs
/// neither memory nor the other streams' progress.
class StoreRelay {
 public:
  using Send = std::function<void(uint8_t type, uint32_t stream, std::string_view payload)>;
  static constexpr size_t kWindow = 256 << 10;
  static constexpr size_t kMostStreams = 4096;

  StoreRelay(EventLoop& loop, Send send) : loop_(loop), send_(std::move(send)) {}
  ~StoreRelay() { close_all(); }
  StoreRelay(const StoreRelay&) = delete;
  StoreRelay& operator=(const StoreRelay&) = delete;

  /// The agent's side: a rank's connection becomes a stream.
  void connected(Descriptor rank);
  /// The host's side: where kOpenFrame connects to.
  void set_target(const Endpoint& store) { target_ = store; }
  /// A frame of a stream. Returns "" or what is wrong with it: the channel is to be closed then.
  [[nodiscard]] std::string take(const Frame& frame);
  void close_all();
  /// Reads nothing more from the ranks or the store while the channel is behind.
  void hold(bool on);
  [[nodiscard]] size_t streams() const { return streams_.size(); }

 private:
  struct Stream {
    Descriptor socket;
    bool connecting = false, local_end = false, remote_end = false;
    size_t unacknowledged = 0;  // bytes sent and not passed on yet
    size_t passed_on = 0;       // bytes for which no credit has been given yet
    std::string out;            // to be written to the socket
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
