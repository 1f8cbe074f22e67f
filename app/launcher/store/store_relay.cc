#include "app/launcher/store/store_relay.h"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <vector>

#include "app/net/big_endian.h"
#include "data/io/error.h"

namespace bert {
namespace {

constexpr size_t kFrameBytes = 16 << 10;  // largest payload of a frame
constexpr size_t kCreditBytes = 4;        // size of the number in a credit frame
constexpr size_t kCreditStep = 64 << 10;  // credit is sent in steps of this size, or when all bytes have been written

}  // namespace

void StoreRelay::connected(Descriptor rank) {
  if (streams_.size() >= kMostStreams) return;  // the destructor closes the connection
  const uint32_t id = next_++;
  send_(kOpenFrame, id, "");
  add(id, std::move(rank), false);
}

void StoreRelay::add(uint32_t id, Descriptor socket, bool connecting) {
  Stream& stream = streams_[id];
  stream.socket = std::move(socket);
  stream.connecting = connecting;
  loop_.watch(stream.socket.get(), POLLIN, [this, id](short events) { handle(id, events); });
  update(id, stream);
}

/// Sets the events that the stream waits for.
void StoreRelay::update(uint32_t id, Stream& stream) {
  if (stream.local_end && stream.remote_end && stream.out.empty()) return drop(id, false);
  short events = 0;
  if (!stream.connecting && !stream.local_end && !held_ && stream.unacknowledged < kWindow) events |= POLLIN;
  if (stream.connecting || !stream.out.empty()) events |= POLLOUT;
  loop_.set_events(stream.socket.get(), events);
}

void StoreRelay::drop(uint32_t id, bool tell) {
  const auto found = streams_.find(id);
  if (found == streams_.end()) return;
  loop_.unwatch(found->second.socket.get());
  streams_.erase(found);
  if (tell) send_(kCloseFrame, id, "");
}

void StoreRelay::close_all() {
  while (!streams_.empty()) drop(streams_.begin()->first, false);
  held_ = false;
}

void StoreRelay::hold(bool on) {
  held_ = on;
  if (on) return;  // held streams stop at their next event; this call may come from inside one
  std::vector<uint32_t> ids;
  for (const auto& entry : streams_) ids.push_back(entry.first);
  for (const uint32_t id : ids) update(id, streams_.at(id));
}

void StoreRelay::handle(uint32_t id, short events) {
  Stream& stream = streams_.at(id);
  if (stream.connecting) {
    if (connection_error(stream.socket.get()) != 0) return drop(id, true);
    if ((events & POLLOUT) == 0) return;
    stream.connecting = false;
  }
  // A socket that failed, or that both sides have shut down, is always ready: poll would never wait again.
  const bool gone = (events & (POLLERR | POLLHUP)) != 0 && (events & POLLIN) == 0;
  if (gone) return drop(id, true);
  if ((events & POLLOUT) != 0 && !write_some(id, stream)) return;
  if ((events & POLLIN) != 0 && !held_ && !read_some(id, stream)) return;
  update(id, stream);
}

bool StoreRelay::read_some(uint32_t id, Stream& stream) {
  std::array<char, kFrameBytes> buffer;
  const size_t room = std::min(buffer.size(), kWindow - stream.unacknowledged);
  const ssize_t got = recv(stream.socket.get(), buffer.data(), room, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (got < 0) {
    drop(id, true);
    return false;
  }
  if (got == 0) {
    stream.local_end = true;
    send_(kEndFrame, id, "");
    return true;
  }
  stream.unacknowledged += static_cast<size_t>(got);
  send_(kDataFrame, id, {buffer.data(), static_cast<size_t>(got)});
  return true;
}

bool StoreRelay::write_some(uint32_t id, Stream& stream) {
  while (!stream.out.empty()) {
    const ssize_t written = ::send(stream.socket.get(), stream.out.data(), stream.out.size(), MSG_NOSIGNAL);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) break;
    if (written < 0) {
      drop(id, true);
      return false;
    }
    stream.out.erase(0, static_cast<size_t>(written));
    stream.passed_on += static_cast<size_t>(written);
  }
  if (stream.passed_on >= kCreditStep || (stream.out.empty() && stream.passed_on > 0)) {
    std::string credit;
    append_big_endian(credit, stream.passed_on, kCreditBytes);
    send_(kCreditFrame, id, credit);
    stream.passed_on = 0;
  }
  if (stream.remote_end && stream.out.empty()) shutdown(stream.socket.get(), SHUT_WR);
  return true;
}

std::string StoreRelay::take(const Frame& frame) {
  if (frame.type == kOpenFrame) {
    if (target_.port == 0) return "a stream opened towards the agent";
    if (streams_.contains(frame.stream)) return "stream " + std::to_string(frame.stream) + " opened twice";
    if (streams_.size() >= kMostStreams) {
      send_(kCloseFrame, frame.stream, "");
      return "";
    }
    try {
      add(frame.stream, start_connect(target_), true);
    } catch (const IoError&) {
      send_(kCloseFrame, frame.stream, "");
    }
    return "";
  }
  const auto found = streams_.find(frame.stream);
  if (found == streams_.end()) return "";  // closed here while the frame was on its way
  Stream& stream = found->second;
  switch (frame.type) {
    case kDataFrame:
      // Bytes that were passed on count until their credit has been sent.
      if (stream.out.size() + stream.passed_on + frame.payload.size() > kWindow) return "more bytes than were allowed";
      stream.out += frame.payload;
      if (!stream.connecting && !write_some(frame.stream, stream)) return "";
      break;
    case kCreditFrame: {
      const size_t credit = frame.payload.size() == kCreditBytes ? from_big_endian(frame.payload) : SIZE_MAX;
      if (credit > stream.unacknowledged) return "credit for bytes that were not sent";
      stream.unacknowledged -= credit;
      break;
    }
    case kEndFrame:
      stream.remote_end = true;
      if (!stream.connecting && !write_some(frame.stream, stream)) return "";
      break;
    case kCloseFrame:
      drop(frame.stream, false);
      return "";
    default:
      return "a frame of unknown type " + std::to_string(frame.type);
  }
  update(frame.stream, stream);
  return "";
}

}  // namespace bert
