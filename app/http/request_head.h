// The head of an HTTP request: request line and fields.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace bert {

inline constexpr size_t kMaxHeadBytes = 16 << 10, kMaxTargetBytes = 1 << 10, kMaxFields = 100;

/// The parts of a head that this server uses.
struct RequestHead {
  std::string method;
  std::string target;  // in origin form: /PATH?QUERY
  std::string host;    // with its port, if it has one
  std::string authorization, content_type, origin, fetch_site;
  std::string json_bytes;  // Inference-Header-Content-Length
  bool http_1_0 = false;
  bool close = false;             // the connection ends with the answer
  bool compressed = false;        // the body is gzip or deflate: inflated()
  bool chunked = false;           // the body has chunked coding, and its length is not known
  bool expects_continue = false;  // the client waits for 100 before it sends the body
  int64_t content_length = 0;     // bytes of a body that is not chunked
};

/// Parses a head that ends with an empty line. It is strict where servers have disagreed on the end of a request (RFC
/// 9112, section 11.2): lines end with CR LF; a length is given once, by digits alone, and not beside a coding; no field
/// is folded or has a space before its colon. Throws HttpError: 400; 411 for a POST without a length; 413; 414; 415 for
/// a body in another coding than gzip or deflate; 417; 431; 501; 505.
RequestHead parse_request_head(std::string_view head);

}  // namespace bert
