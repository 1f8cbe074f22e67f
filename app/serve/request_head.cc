#include "app/serve/request_head.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <map>

#include "app/serve/http_types.h"

namespace bert {
namespace {

constexpr std::string_view kLineEnd = "\r\n";

bool is_token(std::string_view text) {  // RFC 9110, section 5.6.2
  const auto allowed = [](unsigned char c) {
    return c < 0x80 && (std::isalnum(c) != 0 ||
                        std::string_view("!#$%&'*+-.^_`|~").find(static_cast<char>(c)) != std::string_view::npos);
  };
  return !text.empty() && std::all_of(text.begin(), text.end(), allowed);
}

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(c < 0x80 ? std::tolower(c) : c); });
  return result;
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

/// Removes the first line from `rest` and returns it without its end.
std::string_view take_line(std::string_view& rest) {
  const size_t end = rest.find(kLineEnd);
  if (end == std::string_view::npos) throw HttpError(400, "the head of the request does not end with an empty line");
  const std::string_view line = rest.substr(0, end);
  const auto is_control = [](unsigned char c) { return (c < 0x20 && c != '\t') || c == 0x7f; };
  if (std::any_of(line.begin(), line.end(), is_control))
    throw HttpError(400, "the head of the request has a control character; lines end with CR LF");
  rest.remove_prefix(end + kLineEnd.size());
  return line;
}

void parse_request_line(std::string_view line, RequestHead& head) {
  constexpr std::array<std::string_view, 8> kMethods = {"GET",    "HEAD",    "POST",  "PUT",
                                                        "DELETE", "OPTIONS", "PATCH", "TRACE"};
  const size_t first = line.find(' '), last = line.rfind(' ');
  if (first == std::string_view::npos || first == last)
    throw HttpError(400, "the request line is not METHOD PATH HTTP/1.1");
  const std::string_view method = line.substr(0, first), target = line.substr(first + 1, last - first - 1),
                         version = line.substr(last + 1);
  if (version != "HTTP/1.1" && version != "HTTP/1.0") {
    const bool http = version.starts_with("HTTP/");
    throw HttpError(http ? 505 : 400, "the request line does not end with HTTP/1.1 or HTTP/1.0");
  }
  if (!is_token(method)) throw HttpError(400, "the request line does not begin with a method");
  if (std::find(kMethods.begin(), kMethods.end(), method) == kMethods.end())
    throw HttpError(501, "unknown method; this server takes GET, HEAD and POST");
  if (target.size() > kMaxTargetBytes)
    throw HttpError(414, "the path has more than " + std::to_string(kMaxTargetBytes) + " bytes");
  const auto visible = [](unsigned char c) { return c > 0x20 && c < 0x7f; };
  if (!target.starts_with('/') || !std::all_of(target.begin(), target.end(), visible))
    throw HttpError(400, "the path does not begin with /, or has a character that is not visible ASCII");
  head.method = method;
  head.target = target;
  head.http_1_0 = version == "HTTP/1.0";
}

using Fields = std::multimap<std::string, std::string>;

Fields parse_fields(std::string_view rest) {
  Fields fields;
  for (std::string_view line = take_line(rest); !line.empty(); line = take_line(rest)) {
    if (fields.size() == kMaxFields)
      throw HttpError(431, "the request has more than " + std::to_string(kMaxFields) + " fields");
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos || !is_token(line.substr(0, colon)))
      throw HttpError(400, "a field of the request is not NAME: VALUE");
    fields.emplace(lower(line.substr(0, colon)), trimmed(line.substr(colon + 1)));
  }
  if (!rest.empty()) throw HttpError(400, "the head of the request has an empty line inside");
  return fields;
}

/// The value of a field that may occur once at most; "" if it is absent.
std::string single(const Fields& fields, const std::string& name) {
  const auto [begin, end] = fields.equal_range(name);
  if (begin == end) return "";
  if (std::next(begin) != end) throw HttpError(400, "the field " + name + " occurs more than once");
  return begin->second;
}

/// Sets how long the body is. Two ways to say it are refused: a proxy in front might believe the other one.
void set_length(const Fields& fields, RequestHead& head) {
  const std::string length = single(fields, "content-length"), coding = lower(single(fields, "transfer-encoding"));
  const bool has_length = fields.contains("content-length");
  if (fields.contains("transfer-encoding")) {
    if (has_length) throw HttpError(400, "the request has both content-length and transfer-encoding");
    if (head.http_1_0) throw HttpError(400, "HTTP/1.0 has no transfer-encoding");
    if (coding != "chunked") throw HttpError(501, "the transfer-encoding is not chunked");
    head.chunked = true;
    return;
  }
  if (has_length) {
    const char* end = length.data() + length.size();
    const bool digits = !length.empty() &&
                        std::all_of(length.begin(), length.end(), [](unsigned char c) { return c >= '0' && c <= '9'; });
    if (!digits) throw HttpError(400, "content-length is not a number");
    if (std::from_chars(length.data(), end, head.content_length).ec != std::errc())
      throw HttpError(413, "content-length is too large");
  } else if (head.method == "POST") {
    throw HttpError(411, "a POST needs content-length or transfer-encoding: chunked");
  }
}

bool has_word(const Fields& fields, const std::string& name, const std::string& word) {
  const auto [begin, end] = fields.equal_range(name);
  for (auto field = begin; field != end; ++field) {
    std::string_view rest = field->second;
    while (!rest.empty()) {
      const size_t comma = std::min(rest.find(','), rest.size());
      if (lower(trimmed(rest.substr(0, comma))) == word) return true;
      rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
  }
  return false;
}

}  // namespace

RequestHead parse_request_head(std::string_view text) {
  RequestHead head;
  parse_request_line(take_line(text), head);
  const Fields fields = parse_fields(text);
  if (const std::string host = single(fields, "host"); host.empty() && !head.http_1_0)
    throw HttpError(400, "the request has no field host");
  set_length(fields, head);
  if (const std::string coding = lower(single(fields, "content-encoding")); !coding.empty() && coding != "identity")
    throw HttpError(415, "the body is compressed; send it as it is");
  if (const std::string expected = lower(single(fields, "expect")); !expected.empty()) {
    if (expected != "100-continue") throw HttpError(417, "the request expects something other than 100-continue");
    head.expects_continue = !head.http_1_0;
  }
  head.authorization = single(fields, "authorization");
  head.content_type = single(fields, "content-type");
  head.close = head.http_1_0 || head.chunked || has_word(fields, "connection", "close");
  return head;
}

std::string RequestHead::text() const {
  std::string text = method + " " + target + (http_1_0 ? " HTTP/1.0\r\n" : " HTTP/1.1\r\n");
  text += chunked ? "Transfer-Encoding: chunked" : "Content-Length: " + std::to_string(content_length);
  return text + "\r\n\r\n";
}

}  // namespace bert
