#include "app/http/request_head.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/error.hpp>
#include <cstdint>
#include <iterator>
#include <limits>

#include "app/http/request_parser.h"
#include "app/http/types.h"

namespace bert {
namespace {

namespace http = boost::beast::http;
using boost::beast::iequals;

std::string_view view(boost::beast::string_view text) { return {text.data(), text.size()}; }

bool is_digits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

/// The value of the field that begins `text`.
std::string_view first_value(std::string_view text) {
  text = text.substr(0, text.find("\r\n"));
  text.remove_prefix(std::min(text.find(':'), text.size() - 1) + 1);
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  return text.substr(0, text.find_last_not_of(" \t") + 1);
}

/// The answer to a head that the parser does not take. `rest`: from the line that it does not take.
HttpError refusal(boost::beast::error_code error, std::string_view rest) {
  if (error == http::error::bad_version) {
    const std::string_view line = rest.substr(0, rest.find("\r\n"));
    const bool is_http = line.find(" HTTP/") != std::string_view::npos;
    return {is_http ? 505 : 400, "the request line does not end with HTTP/1.1 or HTTP/1.0"};
  }
  if (error == http::error::bad_method || error == http::error::bad_target)
    return {400, "the request line is not METHOD PATH HTTP/1.1"};
  if (error == http::error::bad_content_length) {
    const std::string_view value = first_value(rest);
    const bool large = is_digits(value) && value.size() > std::numeric_limits<uint64_t>::digits10;
    return large ? HttpError(413, "content-length is too large")
                 : HttpError(400, "content-length is not a number, or occurs more than once");
  }
  if (error == http::error::bad_transfer_encoding)
    return {400, "the request has transfer-encoding more than once, or content-length beside it"};
  if (error == http::error::need_more) return {400, "the head of the request does not end with an empty line"};
  return {400, "a field of the request is not NAME: VALUE; lines end with CR LF, and have no control character"};
}

using Request = RequestParser::value_type;

/// Sets target and host. The absolute form of a target, http://HOST/PATH, comes before the field Host (RFC 9112, section
/// 3.2.2).
void take_target(const Request& request, RequestHead& head) {
  std::string_view target = view(request.target());
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (target.size() < scheme.size() || !iequals({target.data(), scheme.size()}, {scheme.data(), scheme.size()}))
      continue;
    target.remove_prefix(scheme.size());
    const size_t path = std::min(target.find_first_of("/?"), target.size());
    head.host = target.substr(0, path);
    head.target = target.substr(path).starts_with('/') ? "" : "/";
    head.target += target.substr(path);
    return;
  }
  head.host = view(request[http::field::host]);
  head.target = target;
}

void check_request_line(const Request& request, const RequestHead& head) {
  // QUERY is a method of HTTP, later than Beast; like DELETE it gets 405.
  if (request.method() == http::verb::unknown && request.method_string() != "QUERY")
    throw HttpError(501, "unknown method; this server takes GET, HEAD and POST");
  const std::string_view target = head.target;
  if (target.size() > kMaxTargetBytes)
    throw HttpError(414, "the path has more than " + std::to_string(kMaxTargetBytes) + " bytes");
  const auto visible = [](unsigned char c) { return c > 0x20 && c < 0x7f; };
  if (!target.starts_with('/') || !std::all_of(target.begin(), target.end(), visible))
    throw HttpError(400, "the path does not begin with /, or has a character that is not visible ASCII");
}

/// The value of a field that may occur once at most; "" if it is absent.
std::string_view single(const Request& request, http::field name) {
  if (request.count(name) > 1)
    throw HttpError(400, "the field " + std::string(http::to_string(name)) + " occurs more than once");
  return view(request[name]);
}

/// Sets how long the body is.
void set_length(const Request& request, RequestHead& head) {
  const std::string_view length = single(request, http::field::content_length),
                         coding = single(request, http::field::transfer_encoding);
  if (request.count(http::field::transfer_encoding) > 0) {
    if (head.http_1_0) throw HttpError(400, "HTTP/1.0 has no transfer-encoding");
    if (!iequals({coding.data(), coding.size()}, "chunked"))
      throw HttpError(501, "the transfer-encoding is not chunked");
    head.chunked = true;
  } else if (request.count(http::field::content_length) > 0) {
    if (!is_digits(length)) throw HttpError(400, "content-length is not a number");
    const uint64_t value = std::stoull(std::string(length));  // the parser has taken it
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      throw HttpError(413, "content-length is too large");
    head.content_length = static_cast<int64_t>(value);
  } else if (request.method() == http::verb::post) {
    throw HttpError(411, "a POST needs content-length or transfer-encoding: chunked");
  }
}

}  // namespace

RequestHead parse_request_head(std::string_view text, RequestParser& parser) {
  if (text.find("\r\n ") != std::string_view::npos || text.find("\r\n\t") != std::string_view::npos)
    throw HttpError(400, "a line of the request's head begins with a space");
  parser.header_limit(static_cast<uint32_t>(std::max(text.size(), kMaxHeadBytes)));
  parser.body_limit(std::numeric_limits<uint64_t>::max());  // that of the body stands in ConnectionLimits
  boost::beast::error_code error;
  const size_t used = parser.put(boost::asio::buffer(text.data(), text.size()), error);
  if (error) throw refusal(error, text.substr(used));
  if (used != text.size()) throw HttpError(400, "the head of the request has an empty line inside");

  const Request& request = parser.get();
  RequestHead head;
  take_target(request, head);
  check_request_line(request, head);
  if (std::distance(request.begin(), request.end()) > static_cast<std::ptrdiff_t>(kMaxFields))
    throw HttpError(431, "the request has more than " + std::to_string(kMaxFields) + " fields");
  head.method = std::string(request.method_string());
  head.http_1_0 = request.version() == 10;
  if ((single(request, http::field::host).empty() || head.host.empty()) && !head.http_1_0)
    throw HttpError(400, "the request has no field host");
  set_length(request, head);
  const std::string_view coding = single(request, http::field::content_encoding),
                         expected = single(request, http::field::expect);
  const auto is_coding = [&](const char* name) { return iequals({coding.data(), coding.size()}, name); };
  head.compressed = is_coding("gzip") || is_coding("x-gzip") || is_coding("deflate");
  if (!coding.empty() && !head.compressed && !is_coding("identity"))
    throw HttpError(415, "the content-encoding is not gzip, deflate or identity; send the body as it is");
  if (!expected.empty()) {
    if (!iequals({expected.data(), expected.size()}, "100-continue"))
      throw HttpError(417, "the request expects something other than 100-continue");
    head.expects_continue = !head.http_1_0;
  }
  head.authorization = single(request, http::field::authorization);
  head.content_type = single(request, http::field::content_type);
  head.origin = single(request, http::field::origin);
  head.fetch_site = view(request["Sec-Fetch-Site"]);
  head.json_bytes = view(request["Inference-Header-Content-Length"]);
  head.close = head.http_1_0 || head.chunked || !parser.keep_alive();
  return head;
}

RequestHead parse_request_head(std::string_view text) {
  RequestParser parser;
  return parse_request_head(text, parser);
}

}  // namespace bert
