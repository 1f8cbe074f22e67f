// One HTTP or HTTPS download by libcurl, with redirects, a proxy from the environment and the system's certificates.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace bert {

struct HttpOptions {
  std::string user_agent;        // Wikimedia answers 403 to a program that does not say its name
  int64_t timeout_seconds = 60;  // to connect, and without data
};

struct HttpRequest {
  std::string url;         // http:// or https://
  int64_t first_byte = 0;  // above 0: asks for the bytes from this one on
  std::string if_range;    // sent with first_byte: the ETag or the date of the file that the bytes must belong to
};

/// The header of an answer, after redirects. Text is empty, and numbers are absent, where the server sent none.
struct HttpResponse {
  int64_t status = 0;
  std::string url;            // of the last redirect
  std::string etag;           // a strong one; a weak one (W/"...") does not tell bytes apart (RFC 9110, 8.8.3)
  std::string last_modified;  // as the server spells it
  std::string content_type;
  std::optional<int64_t> content_length;           // bytes of the body
  std::optional<int64_t> range_first, range_size;  // of Content-Range: first byte of the body, size of the whole file
  std::optional<int64_t> retry_after_seconds;      // the server asks to wait
  bool end_is_marked = false;  // a cut body is noticed: by its length, by chunks, or by HTTP/2 frames
};

/// The network ended a transfer: no connection, a cut or a stall, a refused certificate or redirect.
struct TransferError : std::runtime_error {
  TransferError(const std::string& cause, bool connected_before, bool again)
      : std::runtime_error(cause), connected(connected_before), worth_again(again) {}
  bool connected;    // the server, or the proxy, could be reached
  bool worth_again;  // the next attempt may succeed
};

/// Keeps a connection open for the next request to the same server. Only http and https are followed, at most ten
/// redirects, and none from https to http. libcurl reads the proxy from http_proxy, https_proxy, all_proxy and
/// no_proxy, and CURL_CA_BUNDLE or SSL_CERT_FILE may name other certificates than the system's.
class HttpClient {
 public:
  explicit HttpClient(const HttpOptions& options);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  /// Called once, before the body. The result says if the body is wanted.
  using Begin = std::function<bool(const HttpResponse&)>;
  using Body = std::function<void(std::string_view piece)>;
  /// Requests a file. An answer of any status is returned; the functions may throw. Throws TransferError.
  HttpResponse get(const HttpRequest& request, const Begin& begin, const Body& body);

 private:
  struct Transfer;
  std::unique_ptr<Transfer> transfer_;
};

/// The host of a URL, with its port if it names one: "127.0.0.1:80". Empty if `url` is not http:// or https://.
std::string host_of(const std::string& url);

}  // namespace bert
