// The event loop with descriptors of every kind.
#include "app/net/event_loop.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <vector>

#include "data/io/descriptor.h"
#include "data/io/error.h"
// Last, because they include Catch2.
#include "tests/support/event_loop_testing.h"
#include "tests/testing.h"

using namespace bert;
using namespace bert::testing;

namespace {

struct Pipe {
  Pipe() {
    std::array<int, 2> ends{};
    REQUIRE(pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) == 0);
    out = Descriptor(ends[0]);
    in = Descriptor(ends[1]);
  }
  void write() const { REQUIRE(::write(in.get(), "x", 1) == 1); }
  Descriptor out, in;
};

}  // namespace

TEST_CASE("a loop calls as long as an event holds, and only for the events that are waited for", "[unit]") {
  EventLoop loop;
  const Pipe pipe;
  int calls = 0;
  short events = 0;
  loop.watch(pipe.out.get(), POLLIN, [&](short which) {
    ++calls;
    events = which;
  });
  pipe.write();
  CHECK(run_until(loop, [&] { return calls == 3; }));  // nobody reads
  CHECK(events == POLLIN);
  loop.set_events(pipe.out.get(), 0);
  loop.after(0.01, [] {});
  loop.run_once();
  CHECK(calls == 3);
  loop.set_events(pipe.out.get(), POLLIN);
  CHECK(run_until(loop, [&] { return calls == 4; }));
  // A second watch replaces the first.
  bool second = false;
  loop.watch(pipe.out.get(), POLLIN, [&](short) { second = true; });
  CHECK(run_until(loop, [&] { return second; }));
  CHECK(calls == 4);
  loop.unwatch(pipe.out.get());
  loop.unwatch(pipe.out.get());
}

TEST_CASE("a loop tells of the other side's end even where no event is waited for", "[unit]") {
  EventLoop loop;
  Pipe pipe;
  short events = 0;
  loop.watch(pipe.out.get(), 0, [&](short which) { events = which; });
  pipe.in.reset();
  CHECK(run_until(loop, [&] { return events == POLLHUP; }));
}

TEST_CASE("an event of a descriptor that was closed in the same turn does not reach its successor", "[unit]") {
  EventLoop loop;
  std::vector<Pipe> pipes(3);
  for (const Pipe& pipe : pipes) pipe.write();
  // The first callback that runs closes all pipes, opens others with the same numbers, and watches those.
  std::vector<Pipe> successors;
  int calls = 0, wrong = 0;
  for (const Pipe& pipe : pipes) {
    loop.watch(pipe.out.get(), POLLIN, [&](short) {
      ++calls;
      for (const Pipe& each : pipes) loop.unwatch(each.out.get());
      pipes.clear();
      successors.resize(3);
      for (const Pipe& each : successors) loop.watch(each.out.get(), POLLIN, [&](short) { ++wrong; });
    });
  }
  loop.run_once();
  loop.after(0.01, [] {});
  loop.run_once();
  CHECK(calls == 1);
  CHECK(wrong == 0);
  for (const Pipe& each : successors) loop.unwatch(each.out.get());
}

TEST_CASE("a loop gives each of many ready descriptors its turn", "[unit]") {
  EventLoop loop;
  std::vector<Pipe> pipes(600);  // more than the kernel reports at once
  std::vector<int> calls(pipes.size());
  for (size_t i = 0; i < pipes.size(); ++i) {
    pipes[i].write();
    loop.watch(pipes[i].out.get(), POLLIN, [&calls, i](short) { ++calls[i]; });
  }
  for (int turn = 0; turn < 6; ++turn) loop.run_once();
  CHECK(*std::ranges::min_element(calls) >= 1);
  for (const Pipe& pipe : pipes) loop.unwatch(pipe.out.get());
}

TEST_CASE("a file that is always ready cannot be waited for", "[unit]") {
  EventLoop loop;
  const TemporaryDirectory directory;
  const Descriptor file(open(directory.path("file").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  REQUIRE(file);
  CHECK_THROWS_AS(loop.watch(file.get(), POLLIN, [](short) {}), IoError);
}
