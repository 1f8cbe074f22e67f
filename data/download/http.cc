#include "data/download/http.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <exception>

#include "data/io/text_parts.h"

namespace bert {
namespace {

constexpr long kMostRedirects = 10;
constexpr long kSlowBytesPerSecond = 64;  // a connection below this for the whole timeout stalls

/// A write to a connection that the other side has closed must not end the process. libcurl leaves this to its caller.
class NoBrokenPipe {
 public:
  NoBrokenPipe() {
    struct sigaction ignore {};
    ignore.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &ignore, &before_);
  }
  ~NoBrokenPipe() { sigaction(SIGPIPE, &before_, nullptr); }
  NoBrokenPipe(const NoBrokenPipe&) = delete;
  NoBrokenPipe& operator=(const NoBrokenPipe&) = delete;

 private:
  struct sigaction before_ {};
};

std::optional<int64_t> whole_number(std::string_view text) {
  const auto value = number_of<int64_t>(text);
  return value && *value >= 0 ? value : std::nullopt;
}

/// "bytes 500-999/1000", or "bytes */1000" of an answer 416 (RFC 9110, 14.4). `*` stands for an unknown number.
void read_content_range(std::string_view value, HttpResponse& response) {
  if (!in_small_letters(value).starts_with("bytes ")) return;
  value = trimmed(value.substr(std::string_view("bytes ").size()));
  const size_t slash = value.find('/');
  if (slash == std::string_view::npos) return;
  response.range_size = whole_number(value.substr(slash + 1));
  const std::string_view range = value.substr(0, slash);
  response.range_first = whole_number(range.substr(0, range.find('-')));
}

void read_header(std::string_view line, HttpResponse& response) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return;
  const std::string name = in_small_letters(trimmed(line.substr(0, colon)));
  const std::string_view value = trimmed(line.substr(colon + 1));
  if (name == "etag" && !value.starts_with("W/")) response.etag = value;
  if (name == "last-modified") response.last_modified = value;
  if (name == "content-type") response.content_type = value;
  if (name == "content-length") response.content_length = whole_number(value);
  if (name == "content-range") read_content_range(value, response);
  if (name == "retry-after") response.retry_after_seconds = whole_number(value);  // not the form with a date
  if (name == "transfer-encoding" && in_small_letters(value).ends_with("chunked")) response.end_is_marked = true;
}

}  // namespace

/// A request under way: libcurl calls back with a pointer to it.
struct HttpClient::Transfer {
  CURL* curl = nullptr;
  std::array<char, CURL_ERROR_SIZE> message{};
  const Begin* begin = nullptr;
  const Body* body = nullptr;
  HttpResponse response;
  bool begun = false, wanted = false;
  std::exception_ptr thrown;  // of begin or body: an exception must not pass through libcurl

  template <class Value>
  void set(CURLoption option, Value value) const {
    const CURLcode code = curl_easy_setopt(curl, option, value);
    if (code != CURLE_OK) throw std::runtime_error(std::string("libcurl: ") + curl_easy_strerror(code));
  }

  template <class Value>
  [[nodiscard]] Value info(CURLINFO what) const {
    Value value{};
    curl_easy_getinfo(curl, what, &value);
    return value;
  }

  /// Redirects may go to these protocols only.
  void follow(bool encrypted) const {
    set(CURLOPT_FOLLOWLOCATION, 1L);
    set(CURLOPT_MAXREDIRS, kMostRedirects);
#if LIBCURL_VERSION_NUM >= 0x075500
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    set(CURLOPT_REDIR_PROTOCOLS_STR, encrypted ? "https" : "http,https");
#else  // Ubuntu 22.04 has 7.81
    set(CURLOPT_PROTOCOLS, long{CURLPROTO_HTTP | CURLPROTO_HTTPS});
    set(CURLOPT_REDIR_PROTOCOLS, long{encrypted ? CURLPROTO_HTTPS : CURLPROTO_HTTP | CURLPROTO_HTTPS});
#endif
  }

  /// Calls begin() with the header, unless it has been called. Returns false if the body is not wanted.
  bool start_body() {
    if (begun) return wanted;
    begun = true;
    response.status = info<long>(CURLINFO_RESPONSE_CODE);
    const char* url = info<char*>(CURLINFO_EFFECTIVE_URL);
    response.url = url != nullptr ? url : "";
    const long version = info<long>(CURLINFO_HTTP_VERSION);
    if (response.end_is_marked) response.content_length.reset();  // chunks count, not a length beside them
    if (response.content_length || version == CURL_HTTP_VERSION_2_0 || version == CURL_HTTP_VERSION_3)
      response.end_is_marked = true;
    wanted = (*begin)(response);
    return wanted;
  }

  static size_t on_header(char* data, size_t, size_t bytes, void* self) {
    const std::string_view line(data, bytes);
    auto& transfer = *static_cast<Transfer*>(self);
    if (line.starts_with("HTTP/")) transfer.response = {};  // the answer after a redirect
    read_header(line, transfer.response);
    return bytes;
  }

  static size_t on_body(char* data, size_t, size_t bytes, void* self) {
    auto& transfer = *static_cast<Transfer*>(self);
    try {
      if (!transfer.start_body()) return 0;  // ends the transfer
      (*transfer.body)(std::string_view(data, bytes));
      return bytes;
    } catch (...) {
      transfer.thrown = std::current_exception();
      return 0;  // ends the transfer
    }
  }

  [[noreturn]] void fail(CURLcode code, const std::string& url) const {
    std::string cause = message.front() != '\0' ? message.data() : curl_easy_strerror(code);
    switch (code) {
      case CURLE_COULDNT_RESOLVE_HOST:
      case CURLE_COULDNT_RESOLVE_PROXY:
      case CURLE_COULDNT_CONNECT:
        throw TransferError(cause, false, true);
      case CURLE_OPERATION_TIMEDOUT:
        // The time of the connection is 0 for one that an earlier request has opened.
        throw TransferError(
            cause, info<curl_off_t>(CURLINFO_CONNECT_TIME_T) > 0 || info<curl_off_t>(CURLINFO_PRETRANSFER_TIME_T) > 0,
            true);
      case CURLE_TOO_MANY_REDIRECTS:
        throw TransferError(fmt::format("more than {} redirects", kMostRedirects), true, false);
      case CURLE_UNSUPPORTED_PROTOCOL: {
        const char* target = info<char*>(CURLINFO_REDIRECT_URL);
        throw TransferError(
            fmt::format("the server redirects to {}, which is not followed: {}",
                        target != nullptr ? target : "another protocol",
                        url.starts_with("https:") ? "only https is, from https" : "only http and https are"),
            true, false);
      }
      case CURLE_URL_MALFORMAT:
        throw TransferError(cause, true, false);
      case CURLE_PEER_FAILED_VERIFICATION:
      case CURLE_SSL_CACERT_BADFILE:
        throw TransferError(
            cause +
                "; the certificates of this machine are in the package ca-certificates, and CURL_CA_BUNDLE may name a "
                "file with others",
            true, false);
      default:
        throw TransferError(cause, true, true);
    }
  }
};

HttpClient::HttpClient(const HttpOptions& options) : transfer_(std::make_unique<Transfer>()) {
  static const CURLcode ready = curl_global_init(CURL_GLOBAL_DEFAULT);
  transfer_->curl = ready == CURLE_OK ? curl_easy_init() : nullptr;
  if (transfer_->curl == nullptr) throw std::runtime_error("libcurl cannot be initialised");
  const Transfer& to = *transfer_;
  to.set(CURLOPT_ERRORBUFFER, transfer_->message.data());
  to.set(CURLOPT_NOSIGNAL, 1L);
  to.set(CURLOPT_USERAGENT, options.user_agent.c_str());
  to.set(CURLOPT_CONNECTTIMEOUT, static_cast<long>(options.timeout_seconds));
  to.set(CURLOPT_LOW_SPEED_LIMIT, kSlowBytesPerSecond);
  to.set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(options.timeout_seconds));
  to.set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);  // of a proxy: they are not the file's
  to.set(CURLOPT_HEADERFUNCTION, &Transfer::on_header);
  to.set(CURLOPT_HEADERDATA, transfer_.get());
  to.set(CURLOPT_WRITEFUNCTION, &Transfer::on_body);
  to.set(CURLOPT_WRITEDATA, transfer_.get());
  for (const char* variable : {"SSL_CERT_FILE", "CURL_CA_BUNDLE"}) {  // the later one counts, as for curl
    const char* certificates = std::getenv(variable);
    if (certificates != nullptr && *certificates != '\0') to.set(CURLOPT_CAINFO, certificates);
  }
}

HttpClient::~HttpClient() { curl_easy_cleanup(transfer_->curl); }

HttpResponse HttpClient::get(const HttpRequest& request, const Begin& begin, const Body& body) {
  const NoBrokenPipe guard;
  Transfer& transfer = *transfer_;
  transfer.begin = &begin;
  transfer.body = &body;
  transfer.response = {};
  transfer.begun = transfer.wanted = false;
  transfer.thrown = nullptr;
  transfer.message.front() = '\0';
  transfer.set(CURLOPT_URL, request.url.c_str());
  transfer.follow(request.url.starts_with("https:"));
  const std::string range = fmt::format("{}-", request.first_byte), condition = "If-Range: " + request.if_range;
  transfer.set(CURLOPT_RANGE, request.first_byte > 0 ? range.c_str() : nullptr);
  std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)> headers(nullptr, curl_slist_free_all);
  if (request.first_byte > 0 && !request.if_range.empty()) headers.reset(curl_slist_append(nullptr, condition.c_str()));
  transfer.set(CURLOPT_HTTPHEADER, headers.get());
  const CURLcode code = curl_easy_perform(transfer.curl);
  if (transfer.thrown) std::rethrow_exception(transfer.thrown);
  if (transfer.begun && !transfer.wanted) return transfer.response;
  if (code != CURLE_OK) transfer.fail(code, request.url);
  transfer.start_body();  // an empty body
  return transfer.response;
}

std::string host_of(const std::string& url) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!in_small_letters(url.substr(0, scheme.size())).starts_with(scheme)) continue;
    const std::string rest = url.substr(scheme.size());
    const std::string authority = rest.substr(0, rest.find_first_of("/?#"));
    return authority.substr(authority.rfind('@') + 1);
  }
  return "";
}

}  // namespace bert
