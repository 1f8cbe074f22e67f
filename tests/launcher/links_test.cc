// The host's link and another node's link to one job, in one event loop and without ranks.
#include <signal.h>

#include <deque>

#include "app/launcher/job/job_link.h"
#include "app/system/exit_codes.h"
#include "tests/support/event_loop_testing.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::run_until;

namespace {

/// A node whose ranks the test plays.
struct Node {
  JobLink::OnOrder take() {
    return [this](const JobOrder& order) {
      if (order.kind == JobOrder::kStart) round = order.assignment.round;
      orders.push_back(order);
    };
  }
  [[nodiscard]] bool is(JobOrder::Kind kind) const { return !orders.empty() && orders.back().kind == kind; }
  std::deque<JobOrder> orders;
  int64_t round = -1;
  std::unique_ptr<JobLink> link;
};

struct Job {
  explicit Job(int64_t max_restarts = 0) {
    const std::string token(32, 't');
    Descriptor listener = listen_on({"127.0.0.1", 0});
    config.rendezvous.port = port_of(listener.get());
    config.rendezvous.dynamic = true;
    config.rendezvous.min_nodes = config.rendezvous.max_nodes = 2;
    config.max_restarts = max_restarts;
    config.exit_barrier_seconds = 0.3;
    host.link = make_job_host(loop, config, token, std::move(listener), host.take());
    other.link = make_job_client(loop, config, token, other.take());
    REQUIRE(until([&] { return host.is(JobOrder::kStart) && other.is(JobOrder::kStart); }));
  }
  bool until(const std::function<bool()>& condition) { return run_until(loop, condition); }
  void pass(double seconds) {
    bool over = false;
    loop.after(seconds, [&] { over = true; });
    while (!over) loop.run_once();
  }
  LaunchConfig config;
  EventLoop loop;
  Node host, other;
};

Failure death(int code) {
  Failure failure;
  failure.pid = 7;
  failure.host = std::string(1, 'h');
  failure.exit_code = code;
  return failure;
}

}  // namespace

TEST_CASE("a node that was done takes part in the round after a restart to its end", "[unit]") {
  Job job(1);
  job.other.link->succeeded(job.other.round);
  job.pass(0.1);
  job.host.link->failed({job.host.round, death(3), 0});
  REQUIRE(job.until([&] { return job.host.is(JobOrder::kRestart) && job.other.is(JobOrder::kRestart); }));
  job.host.link->stopped(job.host.round, {});
  job.other.link->stopped(job.other.round, {});
  REQUIRE(job.until([&] { return job.host.is(JobOrder::kStart) && job.other.is(JobOrder::kStart); }));
  job.pass(0.6);  // longer than a node that is done waits for the others
  CHECK(job.other.is(JobOrder::kStart));
  CHECK(job.host.is(JobOrder::kStart));
  // When it is done again, the node waits no longer than before.
  job.other.link->succeeded(job.other.round);
  REQUIRE(job.until([&] { return job.other.is(JobOrder::kEnd); }));
  CHECK(job.other.orders.back().exit_code == kOk);
  job.other.link->stopped(job.other.round, {});
  CHECK(job.until([&] { return job.other.link->finished(); }));
}

TEST_CASE("a node with a signal ends at once, and a round that starts meanwhile does not wait for it", "[unit]") {
  Job job(1);
  job.host.link->failed({job.host.round, death(3), 0});
  REQUIRE(job.until([&] { return job.host.is(JobOrder::kRestart) && job.other.is(JobOrder::kRestart); }));
  job.host.link->stopped(job.host.round, {});
  job.other.link->stopped(job.other.round, {});
  job.other.link->interrupted(SIGTERM);  // crosses the order to start again
  REQUIRE(job.until([&] { return job.host.is(JobOrder::kEnd) && job.other.is(JobOrder::kEnd); }));
  CHECK(job.host.round == 1);
  CHECK(job.other.round == 0);
  CHECK(job.other.orders.back().exit_code == 128 + SIGTERM);
  CHECK(job.other.orders.back().signal == SIGTERM);
  job.other.link->stopped(job.other.round, {});
  job.host.link->stopped(job.host.round, {true, 0});
  REQUIRE(job.until([&] { return job.host.is(JobOrder::kLeave) && job.other.is(JobOrder::kLeave); }));
  CHECK(job.other.orders.back().exit_code == kPreempted);
}

TEST_CASE("the job's exit code reaches every node, and the host leaves last", "[unit]") {
  Job job;
  job.other.link->interrupted(SIGTERM);
  REQUIRE(job.until([&] { return job.host.is(JobOrder::kEnd) && job.other.is(JobOrder::kEnd); }));
  CHECK(job.host.orders.back().exit_code == 128 + SIGTERM);
  job.other.link->stopped(job.other.round, {true, 0});
  job.pass(0.2);
  CHECK_FALSE(job.other.link->finished());
  job.host.link->stopped(job.host.round, {});
  REQUIRE(job.until([&] { return job.host.is(JobOrder::kLeave) && job.other.is(JobOrder::kLeave); }));
  CHECK(job.host.orders.back().exit_code == kPreempted);
  CHECK(job.other.orders.back().exit_code == kPreempted);
  CHECK(job.other.link->finished());
  CHECK_FALSE(job.host.link->finished());
  job.other.link.reset();
  CHECK(job.until([&] { return job.host.link->finished(); }));
}
