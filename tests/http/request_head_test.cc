// The head of a request. Expected values follow RFC 9112 and RFC 9110.
#include "app/http/request_head.h"

#include <string>
#include <utility>
#include <vector>

#include "app/http/types.h"
#include "tests/testing.h"

using namespace bert;

namespace {

int status_of(const std::string& head) {
  try {
    parse_request_head(head);
    return 200;
  } catch (const HttpError& error) {
    return error.status;
  }
}

std::string post(const std::string& fields) { return "POST /predict HTTP/1.1\r\nHost: a\r\n" + fields + "\r\n"; }

}  // namespace

TEST_CASE("A head is read into its parts", "[unit][serve]") {
  const RequestHead head = parse_request_head(
      "POST /predict?x=1 HTTP/1.1\r\nhost: a\r\nCONTENT-Length: \t12 \r\nAuthorization: Bearer abc\r\n"
      "Content-Type: application/json\r\nExpect: 100-Continue\r\nConnection: keep-alive, Close\r\nRange: "
      "bytes=0-1\r\n\r\n");
  CHECK(head.method == "POST");
  CHECK(head.target == "/predict?x=1");
  CHECK(head.content_length == 12);
  CHECK(head.authorization == "Bearer abc");
  CHECK(head.content_type == "application/json");
  CHECK(head.expects_continue);
  CHECK(head.close);
  CHECK_FALSE(head.chunked);
}

TEST_CASE("A connection is kept with HTTP/1.1, and closed with HTTP/1.0 and after a chunked body", "[unit][serve]") {
  CHECK_FALSE(parse_request_head("GET / HTTP/1.1\r\nHost: a\r\n\r\n").close);
  CHECK(parse_request_head("GET / HTTP/1.0\r\n\r\n").close);
  const RequestHead head = parse_request_head(post("Transfer-Encoding: Chunked\r\n"));
  CHECK(head.chunked);
  CHECK(head.close);
}

TEST_CASE("A target in absolute form names the host", "[unit][serve]") {  // RFC 9112, section 3.2.2
  const auto read = [](const std::string& target) {
    const RequestHead head = parse_request_head("GET " + target + " HTTP/1.1\r\nHost: a\r\n\r\n");
    return head.host + " " + head.target;
  };
  CHECK(read("/x?y=1") == "a /x?y=1");
  CHECK(read("http://b:8080/x?y=1") == "b:8080 /x?y=1");
  CHECK(read("HTTPS://b") == "b /");
  CHECK(read("http://b?y") == "b /?y");
  CHECK(status_of("GET http:///x HTTP/1.1\r\nHost: a\r\n\r\n") == 400);
  CHECK(status_of("GET ftp://b/x HTTP/1.1\r\nHost: a\r\n\r\n") == 400);
}

TEST_CASE("A head with two readings of its length, or of its lines, is refused", "[unit][serve]") {
  for (const std::string& head : {post("Content-Length: 5\r\nContent-Length: 6\r\n"),
                                  post("Content-Length: 5\r\nContent-Length: 5\r\n"),
                                  post("Content-Length: 5, 5\r\n"),
                                  post("Content-Length: +5\r\n"),
                                  post("Content-Length: -5\r\n"),
                                  post("Content-Length: 0x5\r\n"),
                                  post("Content-Length: 5 5\r\n"),
                                  post("Content-Length:\r\n"),
                                  post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"),
                                  post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
                                  post("Content-Length : 5\r\n"),
                                  post(" Content-Length: 5\r\n"),
                                  post("A: b\r\n folded\r\nContent-Length: 5\r\n"),
                                  post("A: b\nContent-Length: 5\r\n"),
                                  post("A: b\rContent-Length: 5\r\n"),
                                  post("A\r\nContent-Length: 5\r\n"),
                                  post(": b\r\nContent-Length: 5\r\n"),
                                  post("A: \x01\r\nContent-Length: 5\r\n"),
                                  post(std::string("A: \0b\r\nContent-Length: 5\r\n", 25)),
                                  post("Host: b\r\nContent-Length: 5\r\n"),
                                  std::string("POST /predict HTTP/1.1\r\nContent-Length: 5\r\n\r\n"),
                                  std::string("POST /predict HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"),
                                  std::string("POST  /predict HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n"),
                                  std::string("POST predict HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n"),
                                  std::string("GET /\r\n\r\n"),
                                  std::string("\r\n\r\n"),
                                  std::string("GET / HTTP/1.1\r\nHost: a\r\n"),
                                  std::string("GET /\x80 HTTP/1.1\r\nHost: a\r\n\r\n"),
                                  std::string("G(T / HTTP/1.1\r\nHost: a\r\n\r\n"),
                                  std::string("GET / HTTP/1.1\r\nHost: a\r\n\r\nB: c\r\n\r\n"),
                                  std::string("GET / FTP/1.1\r\nHost: a\r\n\r\n")}) {
    CAPTURE(head);
    CHECK(status_of(head) == 400);
  }
}

TEST_CASE("Heads that this server does not take get the status of their kind", "[unit][serve]") {
  const std::vector<std::pair<std::string, int>> cases = {
      {post(""), 411},
      {post("Content-Length: 99999999999999999999\r\n"), 413},
      {"GET /" + std::string(kMaxTargetBytes, 'a') + " HTTP/1.1\r\nHost: a\r\n\r\n", 414},
      {post("Content-Length: 5\r\nContent-Encoding: br\r\n"), 415},
      {post("Content-Length: 5\r\nContent-Encoding: gzip, gzip\r\n"), 415},
      {post("Content-Length: 5\r\nExpect: tea\r\n"), 417},
      {"BREW / HTTP/1.1\r\nHost: a\r\n\r\n", 501},
      {post("Transfer-Encoding: gzip, chunked\r\n"), 501},
      {"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505},
      {post("Content-Length: 5\r\nContent-Encoding: identity\r\n"), 200},
      {post("Content-Length: 5\r\nContent-Encoding: GZip\r\n"), 200},
  };
  for (const auto& [head, status] : cases) {
    CAPTURE(head);
    CHECK(status_of(head) == status);
  }
  std::string many = "GET / HTTP/1.1\r\nHost: a\r\n";
  for (size_t i = 0; i < kMaxFields; ++i) many += "A: b\r\n";
  CHECK(status_of(many + "\r\n") == 431);
}
