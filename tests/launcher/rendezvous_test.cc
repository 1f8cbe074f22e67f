// The state machine of the rendezvous, transition by transition, without sockets or clocks.
#include "app/launcher/job/rendezvous.h"

#include <signal.h>

#include <algorithm>

#include "app/launcher/job/job_messages.h"
#include "app/system/exit_codes.h"
#include "data/io/error.h"
#include "tests/testing.h"

using namespace bert;

namespace {

/// A rendezvous with a clock that the test sets, and the last order to each node.
struct Fixture {
  explicit Fixture(const RendezvousConfig& given, int64_t max_restarts = 0)
      : config(given), rendezvous(given, {max_restarts, 60}, now, [this](Rendezvous::NodeId id, const JobOrder& order) {
          orders[id] = order;
          if (order.kind == JobOrder::kStart) rounds[id] = order.assignment.round;
          ++sent;
        }) {}
  std::string join(Rendezvous::NodeId id, int64_t node_rank = -1, const std::string& role = "default",
                   int64_t ranks = 2) {
    return rendezvous.join(id, {"host" + std::to_string(9 - id), 100 + id, node_rank, role, ranks}, now);
  }
  /// The last round that the node was told to start. Reports of a node are about this round.
  [[nodiscard]] int64_t round(Rendezvous::NodeId id) const { return rounds.contains(id) ? rounds.at(id) : -1; }
  void stopped(Rendezvous::NodeId id, const SaveResult& saved = {}) { rendezvous.stopped(id, round(id), saved, now); }
  void succeeded(Rendezvous::NodeId id) { rendezvous.succeeded(id, round(id)); }
  /// A failure, and the time until the rendezvous decides on it.
  void failed(Rendezvous::NodeId id, const Failure& failure) {
    rendezvous.failed(id, {round(id), failure, 1}, now);
    now = std::max(now, rendezvous.decides_at().value_or(now));
    rendezvous.tick(now);
  }
  void pass(int64_t seconds) {
    now += std::chrono::seconds(seconds);
    rendezvous.tick(now);
  }
  [[nodiscard]] bool is(Rendezvous::NodeId id, JobOrder::Kind kind) const {
    return orders.contains(id) && orders.at(id).kind == kind;
  }
  RendezvousConfig config;
  Rendezvous::Time now{};
  std::map<Rendezvous::NodeId, JobOrder> orders;
  std::map<Rendezvous::NodeId, int64_t> rounds;
  int sent = 0;
  Rendezvous rendezvous;
};

RendezvousConfig nodes(int64_t low, int64_t high, bool dynamic = true) {
  RendezvousConfig config;
  config.dynamic = dynamic;
  config.min_nodes = low, config.max_nodes = high;
  return config;
}

Failure death(int64_t rank, int code) {
  Failure failure;
  failure.rank = rank;
  failure.pid = 7;
  failure.host = std::string(1, 'h');
  failure.exit_code = code;
  return failure;
}

}  // namespace

TEST_CASE("static: ranks follow --node-rank, whatever the order of joining", "[unit]") {
  Fixture job(nodes(3, 3, false));
  CHECK(job.join(0, 2, "b", 1).empty());
  CHECK(job.join(1, 0, "a", 2).empty());
  CHECK(job.sent == 0);
  CHECK(job.join(2, 1, "b", 3).empty());
  REQUIRE(job.sent == 3);
  // torchrun's numbers for nodes a(2) b(3) b(1).
  CHECK(job.orders.at(1).assignment == Assignment{0, 0, 3, 0, 6, 0, 2, 0});
  CHECK(job.orders.at(2).assignment == Assignment{0, 1, 3, 2, 6, 0, 4, 0});
  CHECK(job.orders.at(0).assignment == Assignment{0, 2, 3, 5, 6, 3, 4, 0});
}

TEST_CASE("a rank that is taken or out of range is refused", "[unit]") {
  Fixture job(nodes(2, 2, false));
  CHECK(job.join(0, 1).empty());
  CHECK(job.join(1, 1).find("taken by node 1 on host9") != std::string::npos);
  CHECK(job.join(1, 2).find("not below") != std::string::npos);
  CHECK(job.join(1, -1).find("not below") != std::string::npos);
  CHECK(job.join(1, 0).empty());
  CHECK(job.is(1, JobOrder::kStart));
}

TEST_CASE("c10d: ranks by host name and process, as torchrun sorts them", "[unit]") {
  Fixture job(nodes(2, 2));
  CHECK(job.join(0).empty());  // on host9
  CHECK(job.join(5).empty());  // on host4
  CHECK(job.orders.at(5).assignment.group_rank == 0);
  CHECK(job.orders.at(0).assignment.first_rank == 2);
}

TEST_CASE("an elastic job starts with MIN nodes after the last call", "[unit]") {
  Fixture job(nodes(1, 3));
  CHECK(job.join(0).empty());
  job.pass(29);
  CHECK(job.sent == 0);
  job.pass(1);
  CHECK(job.orders.at(0).assignment.world_size == 2);
  // A new node restarts all nodes. This does not count as a restart.
  CHECK(job.join(1).empty());
  CHECK(job.is(0, JobOrder::kRestart));
  CHECK_FALSE(job.orders.at(0).failed);
  job.stopped(0);
  CHECK(job.orders.at(0).assignment.world_size == 4);
  CHECK(job.orders.at(1).assignment.restart_count == 0);
  CHECK(job.orders.at(1).assignment.round == 1);
}

TEST_CASE("nodes beyond MAX wait without disturbing", "[unit]") {
  Fixture job(nodes(1, 1), 1);
  CHECK(job.join(0).empty());
  CHECK(job.join(1).empty());
  CHECK(job.sent == 1);
  job.rendezvous.lost(0, "gone", job.now);  // another node takes its place
  CHECK(job.is(1, JobOrder::kStart));
}

TEST_CASE("missing nodes are named when the time is up", "[unit]") {
  Fixture job(nodes(3, 3, false));
  CHECK(job.join(0, 0).empty());
  CHECK(job.join(1, 2).empty());
  job.pass(599);
  CHECK(job.sent == 0);
  job.pass(1);
  REQUIRE(job.is(0, JobOrder::kEnd));
  CHECK(job.orders.at(1).exit_code == kPeerFailure);
  const std::string& reason = job.orders.at(0).reason;
  for (const char* part :
       {"2 of 3 nodes", "after 600 s", "node 0 on host9", "node 2 on host8", "missing: --node-rank 1 after", "token"})
    CHECK(reason.find(part) != std::string::npos);
}

TEST_CASE("the first failure ends all nodes with its code", "[unit]") {
  Fixture job(nodes(2, 2));
  CHECK(job.join(0).empty());
  CHECK(job.join(1).empty());
  job.failed(1, death(1, 137));
  job.failed(0, death(2, 1));
  for (const int id : {0, 1}) {
    REQUIRE(job.is(id, JobOrder::kEnd));
    CHECK(job.orders.at(id).exit_code == 137);
    CHECK(job.orders.at(id).reason.find("rank 1 ") != std::string::npos);
  }
  CHECK_FALSE(job.rendezvous.finished());
  job.stopped(0);
  CHECK(job.rendezvous.unfinished_nodes().find("host8") != std::string::npos);
  job.rendezvous.lost(1, "gone", job.now);
  CHECK(job.rendezvous.finished());
  CHECK(job.join(2) == "the job has ended");
}

TEST_CASE("restarts: all nodes together, one count, 75 and what cannot start are not restarted", "[unit]") {
  Fixture job(nodes(2, 2), 2);
  CHECK(job.join(0).empty());
  CHECK(job.join(1).empty());
  for (int64_t count = 1; count <= 2; ++count) {
    job.failed(0, death(0, 3));
    job.failed(1, death(2, 1));  // a consequence of the first failure
    CHECK(job.is(1, JobOrder::kRestart));
    CHECK(job.orders.at(1).failed);
    job.stopped(1);
    CHECK(job.is(1, JobOrder::kRestart));
    job.stopped(0);  // no other node is waited for
    REQUIRE(job.is(1, JobOrder::kStart));
    CHECK(job.orders.at(0).assignment.restart_count == count);
    CHECK(job.orders.at(1).assignment.restart_count == count);
  }
  job.failed(0, death(0, 3));
  CHECK(job.orders.at(1).exit_code == 3);

  Fixture preempted(nodes(1, 1), 2);
  CHECK(preempted.join(0).empty());
  preempted.failed(0, death(0, kPreempted));
  CHECK(preempted.is(0, JobOrder::kEnd));
  CHECK(preempted.orders.at(0).exit_code == kPreempted);
  Fixture absent(nodes(1, 1), 2);
  CHECK(absent.join(0).empty());
  Failure failure = death(0, kInputMissing);
  failure.pid = 0;
  absent.failed(0, failure);
  CHECK(absent.is(0, JobOrder::kEnd));
}

TEST_CASE("a lost node", "[unit]") {
  Fixture job(nodes(2, 2));
  CHECK(job.join(0).empty());
  CHECK(job.join(1).empty());
  job.rendezvous.lost(1, "silent for 15 s", job.now);
  REQUIRE(job.is(0, JobOrder::kEnd));
  CHECK(job.orders.at(0).exit_code == kPeerFailure);
  CHECK(job.orders.at(0).reason.find("lost host8 (bertrun's pid 101): silent for 15 s") != std::string::npos);

  Fixture elastic(nodes(1, 2), 1);
  CHECK(elastic.join(0).empty());
  CHECK(elastic.join(1).empty());
  elastic.rendezvous.lost(1, "gone", elastic.now);
  CHECK(elastic.is(0, JobOrder::kRestart));
  elastic.stopped(0);
  CHECK(elastic.orders.at(0).assignment.world_size == 2);
  CHECK(elastic.orders.at(0).assignment.restart_count == 1);

  Fixture waits(nodes(2, 2), 1);  // without this node there are too few, so the job waits for its return
  CHECK(waits.join(0).empty());
  CHECK(waits.join(1).empty());
  waits.rendezvous.lost(1, "gone", waits.now);
  waits.stopped(0);
  CHECK(waits.is(0, JobOrder::kRestart));
  CHECK(waits.join(2).empty());
  CHECK(waits.is(0, JobOrder::kStart));
  CHECK(waits.is(2, JobOrder::kStart));
}

TEST_CASE("a node that is done is not missed, and the job ends with the last one", "[unit]") {
  Fixture job(nodes(2, 2));
  CHECK(job.join(0).empty());
  CHECK(job.join(1).empty());
  job.succeeded(1);
  job.rendezvous.lost(1, "gone", job.now);
  CHECK(job.is(0, JobOrder::kStart));
  job.succeeded(0);
  REQUIRE(job.is(0, JobOrder::kEnd));
  CHECK(job.orders.at(0).exit_code == kOk);
}

TEST_CASE("a signal on one node reaches the ranks of all", "[unit]") {
  Fixture job(nodes(2, 2), 3);
  CHECK(job.join(0).empty());
  CHECK(job.join(1).empty());
  job.rendezvous.interrupted(1, SIGTERM, job.now);
  CHECK(job.orders.at(0).signal == SIGTERM);
  CHECK(job.orders.at(0).exit_code == 128 + SIGTERM);
  CHECK(job.orders.at(0).reason.find("(SIGTERM) on host8") != std::string::npos);
}

TEST_CASE("SIGTERM takes one of more nodes than needed out, and the others start again", "[unit]") {
  Fixture job(nodes(1, 3), 0);
  for (const int id : {0, 1, 2}) CHECK(job.join(id).empty());
  job.rendezvous.interrupted(1, SIGTERM, job.now);
  REQUIRE(job.is(1, JobOrder::kEnd));
  CHECK(job.orders.at(1).reason == "this node leaves the job, which goes on");
  for (const int id : {0, 2}) {
    REQUIRE(job.is(id, JobOrder::kRestart));
    CHECK_FALSE(job.orders.at(id).failed);
    CHECK(job.orders.at(id).reason.find("(SIGTERM) on host8") != std::string::npos);
    CHECK(job.orders.at(id).reason.find("leaves the job, and the ranks of the others start again") !=
          std::string::npos);
  }
  job.stopped(0);
  job.stopped(1, {true, 0});
  REQUIRE(job.is(1, JobOrder::kLeave));
  CHECK(job.orders.at(1).exit_code == kPreempted);
  CHECK(job.is(0, JobOrder::kRestart));  // not before node 2 has stopped
  job.stopped(2);
  for (const int id : {0, 2}) {
    REQUIRE(job.is(id, JobOrder::kStart));
    CHECK(job.orders.at(id).assignment.world_size == 4);
    CHECK(job.orders.at(id).assignment.restart_count == 0);  // no failure
  }
  // The host, and the last node that the job needs, end the job.
  job.rendezvous.interrupted(2, SIGTERM, job.now);
  job.stopped(0), job.stopped(2, {false, 70});
  REQUIRE(job.is(2, JobOrder::kLeave));
  CHECK(job.orders.at(2).exit_code == 70);
  REQUIRE(job.is(0, JobOrder::kStart));
  job.rendezvous.interrupted(0, SIGTERM, job.now);
  REQUIRE(job.is(0, JobOrder::kEnd));
  CHECK(job.orders.at(0).exit_code == 128 + SIGTERM);
}

TEST_CASE("A job with too few other nodes, or another signal, ends", "[unit]") {
  for (const int signal : {SIGTERM, SIGINT}) {
    Fixture job(nodes(signal == SIGTERM ? 2 : 1, 3), 0);
    for (const int id : {0, 1}) CHECK(job.join(id).empty());
    job.pass(60);
    job.rendezvous.interrupted(1, signal, job.now);
    for (const int id : {0, 1}) CHECK(job.is(id, JobOrder::kEnd));
  }
}

TEST_CASE("a signal while nodes meet ends the job with 75: run again", "[unit]") {
  for (const bool again : {false, true}) {  // at the first meeting, and before a restart
    CAPTURE(again);
    Fixture job(nodes(3, 3), 1);
    for (int id = 0; id < (again ? 3 : 2); ++id) CHECK(job.join(id).empty());
    if (again) {
      job.rendezvous.lost(2, "gone", job.now);
      for (const int id : {0, 1}) job.stopped(id);
    }
    job.rendezvous.interrupted(1, SIGTERM, job.now);
    for (const int id : {0, 1}) {
      REQUIRE(job.is(id, JobOrder::kEnd));
      CHECK(job.orders.at(id).exit_code == kPreempted);
      CHECK(job.orders.at(id).reason.find("(SIGTERM) on host") != std::string::npos);
      CHECK(job.orders.at(id).reason.find("no rank runs; nothing is lost, run again") != std::string::npos);
    }
    for (const int id : {0, 1}) job.stopped(id, {true, 0});
    for (const int id : {0, 1}) {
      REQUIRE(job.is(id, JobOrder::kLeave));
      CHECK(job.orders.at(id).exit_code == kPreempted);
    }
  }
}

TEST_CASE("what is told of another round is ignored", "[unit]") {
  Fixture job(nodes(2, 2), 1);
  CHECK(job.join(0).empty());
  CHECK(job.join(1).empty());
  job.failed(0, death(0, 3));
  job.rendezvous.stopped(0, 1, {}, job.now);  // there is no round 1 yet
  job.stopped(1);
  CHECK(job.is(0, JobOrder::kRestart));
  job.stopped(0);
  REQUIRE(job.is(0, JobOrder::kStart));
  job.rendezvous.succeeded(0, 0);
  job.succeeded(1);
  job.rendezvous.failed(0, {0, death(0, 3), 1}, job.now);
  job.rendezvous.stopped(0, 0, {}, job.now);
  CHECK(job.is(0, JobOrder::kStart));
  job.succeeded(0);
  CHECK(job.orders.at(0).exit_code == kOk);
}

TEST_CASE("a node that stops its ranks without an order is lost", "[unit]") {
  Fixture job(nodes(2, 2));
  CHECK(job.join(0).empty());
  CHECK(job.join(1).empty());
  job.stopped(1);
  REQUIRE(job.is(0, JobOrder::kEnd));
  CHECK(job.orders.at(0).exit_code == kPeerFailure);
  CHECK(job.orders.at(0).reason.find("lost host8 (bertrun's pid 101): it has stopped its ranks") != std::string::npos);
  job.stopped(0);
  CHECK(job.rendezvous.finished());
}

TEST_CASE("a node that joins or is lost at any time neither hangs the job nor disturbs it", "[unit]") {
  // While a round forms, a node that leaves is not counted.
  Fixture forming(nodes(2, 3));
  CHECK(forming.join(0).empty());
  CHECK(forming.join(1).empty());
  forming.rendezvous.lost(1, "gone", forming.now);
  forming.pass(30);
  CHECK(forming.sent == 0);
  CHECK(forming.join(2).empty());
  forming.pass(30);
  CHECK(forming.is(2, JobOrder::kStart));

  // While the job restarts, a new node waits for the next round, and the restart does not wait for it.
  Fixture restarting(nodes(1, 3), 1);
  CHECK(restarting.join(0).empty());
  restarting.pass(30);
  restarting.failed(0, death(0, 3));
  CHECK(restarting.join(1).empty());
  CHECK(restarting.join(2).empty());
  restarting.rendezvous.lost(2, "gone", restarting.now);
  CHECK(restarting.is(0, JobOrder::kRestart));
  restarting.stopped(0);
  REQUIRE(restarting.is(0, JobOrder::kStart));
  CHECK(restarting.orders.at(1).assignment.world_size == 4);

  // The restart does not wait for a member that is lost meanwhile.
  Fixture shrinking(nodes(1, 2), 1);
  CHECK(shrinking.join(0).empty());
  CHECK(shrinking.join(1).empty());
  shrinking.failed(0, death(0, 3));
  shrinking.stopped(0);
  CHECK(shrinking.is(0, JobOrder::kRestart));
  shrinking.rendezvous.lost(1, "gone", shrinking.now);
  REQUIRE(shrinking.is(0, JobOrder::kStart));
  CHECK(shrinking.orders.at(0).assignment.world_size == 2);

  // After the job's end no node joins, and a lost node is not waited for.
  Fixture ended(nodes(2, 2));
  CHECK(ended.join(0).empty());
  CHECK(ended.join(1).empty());
  ended.failed(0, death(0, 3));
  CHECK_FALSE(ended.join(2).empty());
  ended.stopped(0);
  CHECK_FALSE(ended.rendezvous.finished());
  ended.rendezvous.lost(1, "gone", ended.now);
  CHECK(ended.rendezvous.finished());
}

TEST_CASE("ranks that do not stop for a restart end the job", "[unit]") {
  Fixture job(nodes(2, 2), 1);
  CHECK(job.join(0).empty());
  CHECK(job.join(1).empty());
  job.failed(0, death(0, 3));
  CHECK(job.join(2).empty());
  job.stopped(0);
  job.pass(59);
  CHECK(job.is(0, JobOrder::kRestart));
  job.pass(1);
  REQUIRE(job.is(0, JobOrder::kEnd));
  CHECK(job.orders.at(0).exit_code == kPeerFailure);
  CHECK(job.orders.at(0).reason.find("on host8 (bertrun's pid 101); check") != std::string::npos);
}

TEST_CASE("work that is done is not begun again for a newcomer", "[unit]") {
  Fixture job(nodes(1, 3));
  CHECK(job.join(0).empty());
  CHECK(job.join(1).empty());
  job.pass(30);
  job.succeeded(0);
  CHECK(job.join(2).empty());
  CHECK(job.is(0, JobOrder::kStart));
  CHECK_FALSE(job.orders.contains(2));
  job.succeeded(1);
  for (const int id : {0, 1, 2}) {
    REQUIRE(job.is(id, JobOrder::kEnd));
    CHECK(job.orders.at(id).exit_code == kOk);
    CHECK_FALSE(job.rendezvous.finished());
    job.stopped(id);
  }
  CHECK(job.rendezvous.finished());
}

TEST_CASE("enough nodes start when the time to join is up, also before the last call is", "[unit]") {
  RendezvousConfig config = nodes(1, 3);
  config.join_timeout = 20;  // last_call_timeout is 30
  Fixture job(config);
  CHECK(job.join(0).empty());
  job.pass(19);
  CHECK(job.sent == 0);
  job.pass(1);
  CHECK(job.is(0, JobOrder::kStart));
}

TEST_CASE("the culprit is waited for as long as the failures so far demand", "[unit]") {
  const auto of_peer = [](int64_t rank) { return death(rank, kPeerFailure); };
  const auto killed = [](int64_t rank, int signal) {
    Failure failure = death(rank, 128 + signal);
    failure.signal = signal;
    return failure;
  };
  const auto silent = [](int64_t rank) { return death(rank, 1); };
  const auto exits = [](int64_t rank) {
    Failure failure = death(rank, 1);
    failure.message = "ValueError: a bad sample";
    return failure;
  };
  Failure unstarted = death(2, kInputMissing), told = death(0, 1);
  unstarted.pid = 0;
  told.message = "RuntimeError: Connection closed by peer [10.0.0.2]:5000";
  struct Report {
    int64_t at_ms;
    Rendezvous::NodeId node;
    Failure failure;
    int64_t running;
  };
  struct Row {
    const char* what;
    std::vector<Report> reports;
    int64_t end_ms;
    int code;
    int64_t rank;
  };
  // Two nodes with two ranks each; `running` ranks are left on the node of the report.
  const std::vector<Row> rows = {
      {"a crash or SIGKILL ends the job at once", {{0, 0, killed(0, SIGSEGV), 1}}, 0, 139, 0},
      {"so does a rank that cannot be started", {{0, 1, unstarted, 1}}, 0, kInputMissing, 2},
      {"so does a preempted rank", {{0, 1, death(2, kPreempted), 1}}, 0, kPreempted, 2},
      {"an exit with a reason waits a moment", {{0, 1, exits(2), 1}}, 50, 1, 2},
      {"for SIGKILL on another node", {{0, 1, exits(2), 1}, {40, 0, killed(1, SIGKILL), 1}}, 40, 137, 1},
      {"and the first of two such exits stays", {{0, 1, exits(2), 1}, {40, 0, exits(1), 1}}, 50, 1, 2},
      {"exit code 1 without a reason waits longer", {{0, 1, silent(2), 1}}, 500, 1, 2},
      {"for an exit with a reason", {{0, 1, silent(2), 1}, {400, 0, exits(1), 1}}, 450, 1, 1},
      {"a reaction waits for its cause", {{0, 0, of_peer(0), 1}, {1500, 1, exits(3), 1}}, 1550, 1, 3},
      {"that comes at the last moment", {{0, 0, of_peer(0), 1}, {1999, 1, exits(3), 1}}, 2049, 1, 3},
      {"or is a crash", {{0, 0, of_peer(0), 1}, {700, 1, killed(2, SIGSEGV), 1}}, 700, 139, 2},
      {"also a reaction that only its message tells", {{0, 0, told, 1}, {900, 1, exits(3), 1}}, 950, 1, 3},
      {"more reactions do not prolong the wait", {{0, 0, of_peer(1), 1}, {1900, 1, of_peer(2), 1}}, 2000, 69, 1},
      {"nor does anything wait when no rank is left", {{0, 0, of_peer(1), 0}, {300, 1, of_peer(2), 0}}, 300, 69, 1},
      {"where the last one is the cause", {{0, 0, of_peer(1), 0}, {300, 1, exits(2), 0}}, 300, 1, 2},
  };
  for (const Row& row : rows) {
    CAPTURE(row.what);
    Fixture job(nodes(2, 2));
    CHECK(job.join(1).empty());
    CHECK(job.join(0).empty());
    const auto start = job.now;
    const auto at = [&](int64_t ms) { return start + std::chrono::milliseconds(ms); };
    size_t next = 0;
    for (int64_t ms = 0; ms <= row.end_ms; ++ms) {
      CHECK_FALSE(job.rendezvous.ended());
      job.rendezvous.tick(at(ms));
      for (; next < row.reports.size() && row.reports[next].at_ms == ms; ++next) {
        const Report& report = row.reports[next];
        job.rendezvous.failed(report.node, {job.round(report.node), report.failure, report.running}, at(ms));
      }
    }
    for (const int id : {0, 1}) {
      REQUIRE(job.is(id, JobOrder::kEnd));
      CHECK(job.orders.at(id).exit_code == row.code);
      CHECK(job.orders.at(id).reason.find("rank " + std::to_string(row.rank) + " ") == 0);
    }
    CHECK_FALSE(job.rendezvous.decides_at());
  }
}

TEST_CASE("while a culprit is waited for, lost nodes, newcomers, signals and restarts have their places", "[unit]") {
  const auto begin = [](Fixture& job, int code) {
    CHECK(job.join(0).empty());
    CHECK(job.join(1).empty());
    job.pass(30);  // the last call of an elastic job
    job.rendezvous.failed(0, {job.round(0), death(0, code), 1}, job.now);
    CHECK(job.is(0, JobOrder::kStart));
  };
  {  // A lost node is a likelier cause than a reaction.
    Fixture job(nodes(2, 2));
    begin(job, kPeerFailure);
    job.rendezvous.lost(1, "gone", job.now);
    REQUIRE(job.is(0, JobOrder::kEnd));
    CHECK(job.orders.at(0).reason.find("lost host8") == 0);
  }
  {  // It is no likelier than a rank that failed by itself.
    Fixture job(nodes(2, 2));
    begin(job, 3);
    job.rendezvous.lost(1, "gone", job.now);
    REQUIRE(job.is(0, JobOrder::kEnd));
    CHECK(job.orders.at(0).exit_code == 3);
  }
  {  // A newcomer waits for the decision. The failure counts as a restart.
    Fixture job(nodes(2, 3), 1);
    begin(job, kPeerFailure);
    CHECK(job.join(2).empty());
    CHECK(job.is(0, JobOrder::kStart));
    job.pass(2);
    CHECK(job.is(0, JobOrder::kRestart));
    for (const int id : {0, 1}) job.stopped(id);
    REQUIRE(job.is(2, JobOrder::kStart));
    CHECK(job.orders.at(2).assignment.restart_count == 1);
    job.rendezvous.failed(2, {job.round(2), death(4, 3), 1}, job.now);  // the round before is forgotten
    job.pass(1);
    CHECK(job.orders.at(0).exit_code == 3);
  }
  {  // A signal ends the job.
    Fixture job(nodes(2, 2));
    begin(job, kPeerFailure);
    job.rendezvous.interrupted(1, SIGTERM, job.now);
    CHECK(job.orders.at(0).exit_code == 128 + SIGTERM);
    job.pass(5);
    CHECK(job.orders.at(0).exit_code == 128 + SIGTERM);
  }
  {  // The rest is done: no rank is left that could be the cause.
    Fixture job(nodes(2, 2));
    begin(job, kPeerFailure);
    job.rendezvous.failed(0, {job.round(0), death(1, kPeerFailure), 0}, job.now);
    job.succeeded(1);
    job.pass(0);
    REQUIRE(job.is(0, JobOrder::kEnd));
    CHECK(job.orders.at(0).exit_code == kPeerFailure);
  }
}

TEST_CASE("all nodes leave with one exit code, when the last of them has stopped", "[unit]") {
  // A signal came, and the ranks of one node have saved. The result does not depend on the order of reports.
  struct Row {
    SaveResult first, second;
    int code;
  };
  const SaveResult saved{true, 0}, full{false, kIo}, both{true, kIo}, nothing;
  for (const Row& row : {Row{nothing, saved, 75}, Row{saved, nothing, 75}, Row{nothing, nothing, 143},
                         Row{saved, full, kIo}, Row{full, saved, kIo}, Row{nothing, both, kIo}, Row{full, full, kIo}}) {
    CAPTURE(row.first.saved, row.first.failed, row.second.saved, row.second.failed);
    Fixture job(nodes(2, 2));
    CHECK(job.join(0).empty());
    CHECK(job.join(1).empty());
    job.rendezvous.interrupted(1, SIGTERM, job.now);
    CHECK_FALSE(job.rendezvous.preempted());
    job.stopped(0, row.first);
    CHECK(job.is(0, JobOrder::kEnd));
    job.stopped(1, row.second);
    for (const int id : {0, 1}) {
      REQUIRE(job.is(id, JobOrder::kLeave));
      CHECK(job.orders.at(id).exit_code == row.code);
    }
  }
  // Without a signal: one rank was preempted, and a rank of another node could not save.
  Fixture preempted(nodes(2, 2), 1);
  CHECK(preempted.join(0).empty());
  CHECK(preempted.join(1).empty());
  preempted.failed(1, death(2, kPreempted));
  CHECK(preempted.rendezvous.preempted());
  CHECK(preempted.orders.at(0).exit_code == kPreempted);
  preempted.stopped(1, saved);
  preempted.stopped(0, full);
  CHECK(preempted.orders.at(1).exit_code == kIo);
  Fixture failed(nodes(1, 1));  // 75 counts only if ranks had to save
  CHECK(failed.join(0).empty());
  failed.failed(0, death(0, 3));
  failed.stopped(0, saved);
  CHECK(failed.orders.at(0).exit_code == 3);
  Fixture stuck(nodes(2, 2));
  CHECK(stuck.join(0).empty());
  CHECK(stuck.join(1).empty());
  stuck.rendezvous.interrupted(0, SIGTERM, stuck.now);
  stuck.stopped(0, saved);
  stuck.rendezvous.leave();  // the host stops waiting
  CHECK(stuck.is(1, JobOrder::kLeave));
  CHECK(stuck.orders.at(1).exit_code == kPreempted);
}

TEST_CASE("messages between agents survive the way there and back", "[unit]") {
  const auto back = [](const JobMessage& message) { return decode(encode(message)); };
  const auto join = std::get<JoinMessage>(back(JoinMessage{"job \"7\"", 1, 4, {"h", 12, 3, "role", 8}}));
  CHECK(join.id == "job \"7\"");
  CHECK(join.max_nodes == 4);
  CHECK(join.node.node_rank == 3);
  CHECK(join.node.local_world_size == 8);
  Failure failure = death(5, 139);
  failure.note = "rank 1 is stopped";
  failure.signal = SIGSEGV, failure.message = std::string(10'000, '\x01'), failure.phase = "save";
  const auto failed = std::get<FailedMessage>(back(FailedMessage{0, failure, 3})).failure;
  CHECK(failed.rank == 5);
  CHECK(failed.exit_code == 139);
  CHECK(failed.signal == SIGSEGV);
  CHECK(failed.phase == "save");
  CHECK(failed.note == "rank 1 is stopped");
  CHECK(failed.message.size() == 1024);
  CHECK(encode(FailedMessage{0, failure, 3}).size() < 64 << 10);
  JobOrder order;
  order.kind = JobOrder::kRestart, order.reason = "\xff no UTF-8", order.failed = true;
  order.assignment = {1, 2, 3, 4, 5, 6, 7, 8};
  const auto ordered = std::get<OrderMessage>(back(OrderMessage{order})).order;
  CHECK(ordered.kind == JobOrder::kRestart);
  CHECK(ordered.failed);
  CHECK(ordered.assignment == order.assignment);
  CHECK(std::get<StoppedMessage>(back(StoppedMessage{4, {}})).round == 4);
  CHECK(std::get<StoppedMessage>(back(StoppedMessage{4, {true, 74}})).saved == SaveResult{true, 74});
  CHECK(std::get<SucceededMessage>(back(SucceededMessage{3})).round == 3);
  CHECK(std::get<FailedMessage>(back(FailedMessage{2, failure, 3})).round == 2);
  CHECK(std::get<FailedMessage>(back(FailedMessage{2, failure, 3})).running == 3);
  CHECK(std::get<InterruptedMessage>(back(InterruptedMessage{15})).signal == 15);
  CHECK(std::get<RefusedMessage>(back(RefusedMessage{78, "no"})).reason == "no");
  CHECK(std::get<RefusedMessage>(back(RefusedMessage{78, "no"})).exit_code == 78);
  for (const char* bad : {"", "[]", "{}", R"({"type":"x"})", R"({"type":"join","id":"a"})",
                          R"({"type":"order","order":[]})", R"({"type":"interrupted","signal":"9"})",
                          R"({"type":"interrupted","signal":0})", R"({"type":"interrupted","signal":32})",
                          R"({"type":"interrupted","signal":120})", R"({"type":"interrupted","signal":-1})"}) {
    CAPTURE(bad);
    CHECK_THROWS_AS(decode(bad), DataError);
  }
  failure.signal = 64;
  CHECK_THROWS_AS(back(FailedMessage{0, failure, 3}), DataError);
  order.signal = 33;  // it would be sent to the ranks
  CHECK_THROWS_AS(back(OrderMessage{order}), DataError);
}
