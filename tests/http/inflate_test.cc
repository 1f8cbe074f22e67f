// Compressed bodies. Bytes are those of Python's gzip.compress(b"one", mtime=0), zlib.compress(b"one") and
// zlib.compress(b"x" * 2000, 9).
#include "app/http/inflate.h"

#include <string>

#include "app/http/types.h"
#include "tests/testing.h"

using namespace bert;

namespace {

const std::string kGzip("\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xcb\xcf\x4b\x05\x00\xf1\x86\x6c\x7a\x03\x00\x00\x00",
                        23);
const std::string kZlib("\x78\x9c\xcb\xcf\x4b\x05\x00\x02\x91\x01\x43", 11);
const std::string kLong("\x78\xda\xab\xa8\x18\x05\xa3\x60\x14\x8c\x82\x51\x30\x0a\x46\xc1\x50\x07\x00\xcf\x40\xa9\xae",
                        23);

/// The content, or the status of the refusal.
std::string unpacked(const std::string& body, int64_t most = 1000) {
  try {
    return inflated(body, most);
  } catch (const HttpError& error) {
    return std::to_string(error.status);
  }
}

}  // namespace

TEST_CASE("Bodies of gzip and of zlib's form are unpacked up to a limit", "[unit][serve]") {
  CHECK(unpacked(kGzip) == "one");
  CHECK(unpacked(kZlib) == "one");
  CHECK(unpacked(kZlib, 3) == "one");
  CHECK(unpacked(kZlib, 2) == "413");
  CHECK(unpacked(kLong, 2000) == std::string(2000, 'x'));
  CHECK(unpacked(kLong, 1999) == "413");
  CHECK(unpacked("") == "400");
  CHECK(unpacked("one") == "400");
  CHECK(unpacked(kGzip + kGzip) == "oneone");  // RFC 1952, section 2.2
  CHECK(unpacked(kGzip + kGzip, 5) == "413");
  CHECK(unpacked(kGzip + "x") == "400");
  for (size_t size = 0; size < kGzip.size(); ++size) CHECK(unpacked(kGzip.substr(0, size)) == "400");
  for (size_t i = 10; i < kGzip.size(); ++i) {  // behind the head: the data, their checksum and their length
    std::string damaged = kGzip;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    CAPTURE(i);
    CHECK(unpacked(damaged) == "400");
  }
}
