// The streams, descriptors and signals that a bertrun inherits: closed, unread or shared streams, ignored signals.
#include "app/system/console.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <sstream>

#include "app/launcher/settings/job_token.h"
#include "app/net/socket.h"
#include "app/system/exit_codes.h"
// Last, because it includes Catch2.
#include "tests/places.h"
#include "tests/support/launcher_testing.h"

using namespace bert;
using namespace bert::testing;

namespace {

/// Starts bertrun from a shell, with redirections as a user would write them.
std::vector<std::string> from_shell(const std::string& arguments, const std::string& redirections) {
  return {"-c", "exec " BERTRUN_EXECUTABLE " " + arguments + " " + redirections};
}

/// Makes descriptor 9 a full pipe that nobody reads.
void make_unread() {
  int ends[2];
  if (pipe2(ends, O_NONBLOCK) != 0 || dup2(ends[0], 8) < 0 || dup2(ends[1], 9) < 0) _exit(99);
  while (write(9, "x", 1) == 1) {
  }
  fcntl(9, F_SETFL, 0);
}

}  // namespace

TEST_CASE("a bertrun whose stderr nobody reads does its work", "[unit]") {
  const int64_t port = port_of(listen_on({"127.0.0.1", 0}).get());
  // This command line causes many notes: a loopback address under another name, and options without a meaning.
  Launcher launcher(
      from_shell(fmt::format("--nnodes 1:2 --rdzv-backend c10d --rdzv-conf last_call_timeout=1,join_timeout=1 "
                             "--start-method fork --logs-specs x --rdzv-endpoint 0x7f.0.0.1:{} true",
                             port),
                 "2>&9"),
      make_unread, "/bin/sh");
  REQUIRE(eventually([&] { return launcher.ended(); }));
  CHECK(launcher.wait() == kOk);
}

TEST_CASE("a bertrun whose standard streams are closed does its work", "[unit]") {
  for (const char* closed : {">&-", "2>&-", "<&-", "<&- >&- 2>&-"}) {
    CAPTURE(closed);
    const TemporaryDirectory directory;
    Launcher launcher(
        from_shell("--standalone --nproc-per-node 2 sh -c 'echo out; echo err >&2; echo $RANK >>" +
                       directory.path("ranks") + "; [ $RANK = 0 ] || exit 3'",
                   closed),
        [] {}, "/bin/sh");
    REQUIRE(eventually([&] { return launcher.ended(); }));
    CHECK(launcher.wait() == 3);
    const std::string ranks = read_file(directory.path("ranks"));
    CHECK((ranks == "0\n1\n" || ranks == "1\n0\n" || ranks == "1\n"));
  }
}

TEST_CASE("where stdout and stderr are one file, a rank's lines keep their order", "[unit]") {
  Launcher launcher(
      from_shell("--standalone --nproc-per-node 2 sh -c 'for i in 1 2 3 4 5 6; do echo $RANK $((2 * i - 1)); echo "
                 "$RANK $((2 * i)) >&2; done'",
                 "2>&1"),
      [] { setenv("OMP_NUM_THREADS", "1", 1); }, "/bin/sh");
  CHECK(launcher.wait() == kOk);
  std::istringstream text(launcher.out());
  std::map<int, std::vector<int>> numbers;
  for (int rank = 0, number = 0; text >> rank >> number;) numbers[rank].push_back(number);
  const std::vector<int> in_order = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  CHECK(numbers[0] == in_order);
  CHECK(numbers[1] == in_order);
}

TEST_CASE("ranks have none of the descriptors that bertrun has inherited", "[unit]") {
  Launcher launcher(
      from_shell("--standalone sh -c '[ ! -e /proc/$$/fd/7 ] && [ -e $BERTRUN_STATE ]'", "7</dev/null"), [] {},
      "/bin/sh");
  CHECK(launcher.wait() == kOk);
}

TEST_CASE("under nohup a hangup is not the end", "[unit]") {
  const TemporaryDirectory directory;
  for (const bool nohup : {true, false}) {
    CAPTURE(nohup);
    const std::string running = directory.path(nohup ? "a" : "b"), go = directory.path("go");
    Launcher launcher(shell({}, "touch " + running + "; while [ ! -e " + go + " ]; do sleep 0.02; done"), [&] {
      signal(SIGHUP, nohup ? SIG_IGN : SIG_DFL);  // the tests themselves may run under nohup
    });
    REQUIRE(eventually([&] { return std::filesystem::exists(running); }));
    launcher.signal(SIGHUP);
    if (nohup) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      std::ofstream(go) << "now";
    }
    CHECK(launcher.wait() == (nohup ? kOk : 128 + SIGHUP));
    std::filesystem::remove(go);
  }
}

TEST_CASE("text of others is shown and does not control the terminal", "[unit]") {
  const std::vector<std::pair<std::string, std::string>> rows = {
      {"plain\tASCII ~", "plain\tASCII ~"},
      {"Gr\u00fc\u00dfe, \u65e5\u672c\u8a9e, \u05e9\u05dc\u05d5\u05dd, \U0001f600",
       "Gr\u00fc\u00dfe, \u65e5\u672c\u8a9e, \u05e9\u05dc\u05d5\u05dd, \U0001f600"},
      {"\x1b[2J\x1b]0;title\x07", R"(\x1b[2J\x1b]0;title\x07)"},
      {"a\nbertrun: b\r\x7f", R"(a\x0abertrun: b\x0d\x7f)"},
      {std::string("a\0b", 3), R"(a\x00b)"},
      {"\u0085\u009b31m", R"(\x85\x9b31m)"},                          // C1 controls: next line, control sequence
      {"\u202egpj.exe\u2066\u2028", R"(\u202egpj.exe\u2066\u2028)"},  // a change of direction, a line separator
      {"\xff\xc3(\xe2\x82", R"(\xff\xc3(\xe2\x82)"},                  // no UTF-8
      {"\xc0\x9b\xe0\x80\x9b\xed\xa0\x80\xf4\x90\x80\x80",            // too long forms, a surrogate, above U+10FFFF
       R"(\xc0\x9b\xe0\x80\x9b\xed\xa0\x80\xf4\x90\x80\x80)"},
      {"", ""},
  };
  for (const auto& [text, shown] : rows) CHECK(printable(text) == shown);
  CHECK(printable("a\nb\tc", "\n") == R"(a
b\x09c)");
  CHECK(shortened("a\u00fcb", 9) == "a\u00fcb");
  CHECK(shortened("a\u00fcb", 3) == "a\u00fc");
  CHECK(shortened("a\u00fcb", 2) == "a");
  CHECK(shortened("\U0001f600", 3).empty());
}

TEST_CASE("escape sequences of ranks and other machines do not reach bertrun's own lines", "[unit][distributed]") {
  const TemporaryDirectory directory;
  setenv(kTokenVariable, std::string(64, '5').c_str(), 1);
  const std::string port = std::to_string(port_of(listen_on({"127.0.0.1", 0}).get()));
  const auto agent = [&](int rank, std::vector<std::string> options, const std::string& script) {
    options.insert(options.begin(), {"--nnodes", "2", "--node-rank", std::to_string(rank), "--master-port", port});
    options.insert(options.end(), {"sh", "-c", script});
    return options;
  };
  const std::string evil = "\x1b]0;evil\x07\xff";
  Launcher host(agent(0, {}, "exec sleep 60"));
  Launcher stranger(agent(1, {"--rdzv-id", "id" + evil}, "exit 0"));
  CHECK(stranger.wait() == kPeerFailure);
  // Its name, its message, phase and collective are the other machine's.
  Launcher other(agent(1, {"--local-addr", "h\u00f6st" + evil},
                       R"(printf '%s' '{"message": "bad \u001b[2J\nbertrun: forged", "phase": "p\u001b[1m",)"
                       R"( "last_collective": "c\u0007"}' >$TORCHELASTIC_ERROR_FILE; exit 5)"));
  CHECK(other.wait() == 5);
  CHECK(host.wait() == 5);
  for (const Launcher* each : {&host, &stranger, &other}) {
    const std::string error = each->err();
    CAPTURE(error);
    CHECK(error.find_first_of("\x1b\x07\xff") == std::string::npos);
    CHECK(error.find("\nbertrun: forged") == std::string::npos);
  }
  CHECK(host.err().find("h\u00f6st\\x1b]0;evil\\x07") != std::string::npos);
  CHECK(host.err().find("bad \\x1b[2J") != std::string::npos);
  CHECK(host.err().find("not id\\x1b]0;evil") != std::string::npos);
  unsetenv(kTokenVariable);
}

TEST_CASE("an exception's message is printed without control characters, in its own lines", "[unit]") {
  Launcher launcher({"--nnodes", "1:\x1b[2J\xff", "true"});
  CHECK(launcher.wait() == kUsage);
  CHECK(launcher.err().find("\\x1b[2J\\xff") != std::string::npos);
  CHECK(launcher.err().find('\x1b') == std::string::npos);
}
