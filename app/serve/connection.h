// A client's connection, with limits on the time and the size of what it sends.
#pragma once

#include <httplib.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "app/serve/http_types.h"
#include "app/serve/request_head.h"

namespace bert {

/// The stream that cpp-httplib reads a request from and writes the answer to. cpp-httplib's own stream waits anew for
/// each byte, so a client with one byte every 4 s could keep a thread for hours, and it reads lines of any length.
/// One thread uses a connection; shutdown() of its socket by another thread ends every wait.
class Connection final : public httplib::Stream {
 public:
  using Clock = std::chrono::steady_clock;

  /// `end`: a descriptor that becomes readable when idle connections are to be closed. The caller closes both.
  Connection(int socket, int end, const ConnectionLimits& limits) : socket_(socket), end_(end), limits_(limits) {}

  /// Waits for the first byte of a request. Returns false if the client has gone or is silent, or the server ends.
  bool wait_for_request();
  /// Reads the head of the next request, after which read() gives RequestHead::text() and the body. Returns nothing if
  /// the client has gone. Throws HttpError: 408, 431, and those of parse_request_head.
  std::optional<RequestHead> read_head();
  /// Makes read() give a head of a request without a body, so that cpp-httplib answers what has no valid head.
  void replace_head();
  /// True if bytes of the current request's body have not been read, or may not have been.
  [[nodiscard]] bool has_unread_body() const { return body_left_ > 0; }
  /// To be called when cpp-httplib has read the body to its end, which a chunked body does not tell before. Returns
  /// false if a chunked body does not end with an empty line: cpp-httplib 0.11 takes a chunk that is longer than it says
  /// for the last one.
  bool end_body();
  /// The reason why the body did not arrive.
  [[nodiscard]] bool timed_out() const { return timed_out_; }
  [[nodiscard]] bool too_large() const { return too_large_; }
  /// Sends what write() has collected. Returns false if the client does not take it.
  bool flush();
  /// Takes what the client still sends, for 2 s and 64 MiB at most, so that it gets to read the answer: a socket that
  /// is closed with unread bytes is reset, and the client may lose the answer.
  void linger();

  bool is_readable() const override { return true; }
  bool is_writable() const override { return true; }
  ssize_t read(char* bytes, size_t size) override;
  ssize_t write(const char* bytes, size_t size) override;
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string& ip, int& port) const override;
  socket_t socket() const override { return socket_; }

 private:
  bool wait_readable(Clock::time_point until);
  bool receive(Clock::time_point until);
  bool send_all(std::string_view bytes);
  [[nodiscard]] Clock::time_point after(std::chrono::duration<double> time) const;

  [[nodiscard]] std::string_view waiting() const { return std::string_view(received_).substr(used_); }

  const int socket_, end_;
  const ConnectionLimits limits_;
  std::string received_;   // bytes of the client
  size_t used_ = 0;        // those at the begin that have been read
  std::string head_text_;  // bytes that read() gives before the body
  size_t head_read_ = 0;   // those at the begin that have been read
  std::string answer_;     // collected by write()
  RequestHead head_;
  int64_t body_left_ = 0;    // bytes of the body that read() may still give
  uint32_t last_bytes_ = 0;  // of the body: the last four
  bool timed_out_ = false, too_large_ = false;
  Clock::time_point body_deadline_;
  std::optional<Clock::time_point> answer_deadline_;  // from the first byte of the answer
};

}  // namespace bert
