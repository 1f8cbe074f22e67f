#include "data/io/bounded_child.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <stdexcept>
#include <vector>

#include "data/io/error.h"
#include "tests/testing.h"

namespace bert {
namespace {

using testing::Contains;

constexpr ChildLimits kLimits{.memory_bytes = int64_t{256} << 20, .processor_seconds = 60, .silent_ms = 60000};

std::string result_of(const ChildLimits& limits, const std::function<void(const BoundedChild::Write&)>& work) {
  BoundedChild child("a.file", limits, work);
  std::string got;
  for (char c = 0; child.read(&c, 1);) got += c;
  return got;
}

TEST_CASE("What a child writes arrives, whatever its size", "[unit][bounded_child]") {
  CHECK(result_of(kLimits, [](const auto& write) { write("hello", 5); }) == "hello");
  CHECK(result_of(kLimits, [](const auto&) {}).empty());
  constexpr size_t kCount = 3 << 20;
  BoundedChild child("a.file", kLimits, [](const auto& write) {
    for (uint32_t i = 0; i < kCount; ++i) write(&i, sizeof i);
  });
  uint32_t value = 0;
  bool same = true;
  for (uint32_t i = 0; i < kCount; ++i) same = child.read(&value, sizeof value) && value == i && same;
  CHECK(same);
  CHECK_FALSE(child.read(&value, 1));
}

TEST_CASE("The end of a child that crashes, fails or exceeds a limit is an error of the file",
          "[unit][bounded_child]") {
  CHECK_THROWS_AS(result_of(kLimits, [](const auto&) { raise(SIGSEGV); }), DataError);
  CHECK_THROWS_WITH(result_of(kLimits, [](const auto&) { raise(SIGSEGV); }),
                    Contains("a.file: ") && Contains("crashed"));
  CHECK_THROWS_WITH(result_of(kLimits, [](const auto&) { throw std::runtime_error("x"); }), Contains("failed"));
  CHECK_THROWS_WITH(result_of(kLimits,
                              [](const auto& write) {
                                write("hello", 5);
                                raise(SIGABRT);
                              }),
                    Contains("crashed"));
  ChildLimits limits = kLimits;
  limits.processor_seconds = 1;
  CHECK_THROWS_WITH(result_of(limits,
                              [](const auto&) {
                                while (getppid() > 0) {
                                }
                              }),
                    Contains("was stopped after 1 s of processor time"));
  limits = kLimits;
  limits.silent_ms = 50;
  CHECK_THROWS_WITH(result_of(limits, [](const auto&) { sleep(600); }), Contains("after 50 ms without a result"));
  BoundedChild child("a.file", kLimits, [](const auto& write) { write("abc", 3); });
  char bytes[4];
  CHECK_THROWS_WITH(child.read(bytes, 4), Contains("ended amid an answer"));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("A child gets no more memory than its limit", "[unit][bounded_child]") {
  CHECK_THROWS_WITH(result_of(kLimits, [](const auto&) { std::vector<char>(size_t{512} << 20, 'x'); }),
                    Contains("wanted more than 256 MB of memory"));
}
#endif

TEST_CASE("A child has no descriptors of its parent, and ends with its owner", "[unit][bounded_child]") {
  std::array<int, 2> ends{};
  REQUIRE(pipe(ends.data()) == 0);
  const Descriptor reading(ends[0]), writing(ends[1]);
  const std::string open = result_of(kLimits, [](const auto& write) {
    for (int i = 4; i < 100; ++i)
      if (fcntl(i, F_GETFD) != -1) write("x", 1);
  });
  CHECK(open.empty());
  pid_t number = 0;
  {
    BoundedChild child("a.file", kLimits, [](const auto& write) {
      const pid_t own = getpid();
      write(&own, sizeof own);
      sleep(600);
    });
    REQUIRE(child.read(&number, sizeof number));
    CHECK(kill(number, 0) == 0);
  }
  CHECK(kill(number, 0) == -1);
}

}  // namespace
}  // namespace bert
