// bertrun's command line, option by option of torchrun's contract (torch.distributed.run of PyTorch 2.11).
#include "app/launcher/settings/options.h"

#include <signal.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "app/net/socket.h"
#include "app/system/errors.h"
#include "app/system/machine/processors.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "tests/support/launcher_testing.h"

using namespace bert;
using bert::testing::TemporaryDirectory;

namespace {

template <class Reader>
auto read_with(const Reader& reader, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "bertrun");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  return reader(static_cast<int>(argv.size()), argv.data()).value();
}

LaunchConfig parse(const std::vector<std::string>& arguments) { return read_with(parse_launch_command, arguments); }

/// The options that differ from their defaults, as text.
std::map<std::string, std::string> changed(const LaunchOptions& options) {
  const auto texts = [](const LaunchOptions& of) {
    std::map<std::string, std::string> result;
    LaunchOptions::visit_fields(of, [&](const char* name, const auto& value, const char*) {
      std::ostringstream text;
      text << value;
      result[name] = text.str();
    });
    return result;
  };
  std::map<std::string, std::string> result = texts(options);
  for (const auto& [name, value] : texts(LaunchOptions())) {
    if (result.at(name) == value) result.erase(name);
  }
  return result;
}

class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

}  // namespace

TEST_CASE("bertrun's defaults are torchrun's", "[unit]") {
  const LaunchConfig config = parse({"x"});
  CHECK(config.nproc_per_node == 1);
  CHECK(config.rendezvous.min_nodes == 1);
  CHECK(config.rendezvous.max_nodes == 1);
  CHECK_FALSE(config.rendezvous.dynamic);
  CHECK(config.rendezvous.host == "127.0.0.1");
  CHECK(config.rendezvous.port == 29500);
  CHECK(config.rendezvous.id == "none");
  CHECK(config.rendezvous.node_rank == 0);
  CHECK(config.rendezvous.join_timeout == 900);
  CHECK(config.rendezvous.last_call_timeout == 30);
  CHECK(config.rendezvous.close_timeout == 30);
  CHECK(config.rendezvous.keep_alive_interval == 5);
  CHECK(config.rendezvous.keep_alive_max_attempt == 3);
  CHECK(config.max_restarts == 0);
  CHECK(config.role == "default");
  CHECK(config.logs.prefix_template == "[${role_name}${local_rank}]:");
  CHECK(config.logs.tail_interval_seconds == 0.1);
  CHECK(config.logs.redirects.of(0) == kNoStream);
  CHECK(config.ending_signals == std::vector<int>{SIGTERM, SIGINT, SIGHUP, SIGQUIT});
  CHECK(config.shutdown_timeout_seconds == 30);
  CHECK(config.exit_barrier_seconds == 300);
  CHECK_FALSE(config.virtual_local_rank);
}

TEST_CASE("every option has both spellings and its PET_ variable, and the command line wins", "[unit]") {
  const auto given = [](std::vector<std::string> arguments) {
    arguments.push_back("x");
    const LaunchCommand read = read_with(read_launch_command, std::move(arguments));
    CHECK(read.command == std::vector<std::string>{"x"});
    return changed(read.options);
  };
  using Changed = std::map<std::string, std::string>;
  CHECK(given({}).empty());
  int options = 0;
  const LaunchOptions defaults;
  LaunchOptions::visit_fields(defaults, [&](const char* name, const auto& initial, const char*) {
    CAPTURE(name);
    ++options;
    const std::string option = name;
    std::string dashed = option, variable = "PET_";
    for (char& c : dashed) c = c == '_' ? '-' : c;
    for (const char c : option) variable += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    if constexpr (std::is_same_v<std::decay_t<decltype(initial)>, bool>) {
      const Changed want = {{option, "1"}};
      CHECK(given({"--" + option}) == want);
      CHECK(given({"--" + dashed}) == want);
      for (const char* on : {"1", "2"}) {
        const Variable set(variable.c_str(), on);
        CHECK(given({}) == want);
      }
      const Variable off(variable.c_str(), "0");
      CHECK(given({}).empty());
      const Variable wrong(variable.c_str(), "yes");
      CHECK_THROWS_WITH(given({}), bert::testing::Contains(variable));
    } else {
      const Changed want = {{option, "7"}};
      CHECK(given({"--" + option, "7"}) == want);
      CHECK(given({"--" + dashed + "=7"}) == want);
      const Variable set(variable.c_str(), "7");
      CHECK(given({}) == want);
      CHECK(given({"--" + dashed, "8"}) == Changed{{option, "8"}});
    }
  });
  CHECK(options == 31);
  const Variable processes("PET_NPROC_PER_NODE", "3"), nodes("PET_NNODES", "2"), standalone("PET_NO_PYTHON", "1");
  CHECK(parse({"x"}).nproc_per_node == 3);
  CHECK(parse({"x"}).rendezvous.max_nodes == 2);
  CHECK(parse({"x.py"}).command == std::vector<std::string>{"x.py"});
  CHECK(parse({"--nproc-per-node", "2", "x"}).nproc_per_node == 2);
  CHECK(parse({"--nproc-per-node", "2", "--nproc-per-node", "4", "x"}).nproc_per_node == 4);  // the last value counts
}

TEST_CASE("options cannot be abbreviated, and what follows the program is the program's", "[unit]") {
  CHECK_THROWS_AS(parse({"--nproc", "2", "x"}), UsageError);
  CHECK_THROWS_AS(parse({"--no-such-option", "x"}), UsageError);
  CHECK_THROWS_AS(parse({"--nproc-per-node", "2"}), UsageError);
  CHECK(parse({"/x", "--nproc-per-node", "2", "-r", "3"}).command ==
        std::vector<std::string>{"/x", "--nproc-per-node", "2", "-r", "3"});
  CHECK(parse({"--nnodes=1", "--", "/x", "--", "y"}).command == std::vector<std::string>{"/x", "--", "y"});
}

TEST_CASE("--nnodes and --nproc-per-node", "[unit]") {
  CHECK(parse({"--nnodes", "3", "--node-rank", "2", "x"}).rendezvous.min_nodes == 3);
  const auto elastic = parse({"--nnodes", "1:4", "--rdzv-backend", "c10d", "x"}).rendezvous;
  CHECK(elastic.min_nodes == 1);
  CHECK(elastic.max_nodes == 4);
  for (const char* bad : {"0", "2:1", "1:2:3", "x", "1:", "-1", ""}) {
    CAPTURE(bad);
    CHECK_THROWS_AS(parse({"--nnodes", bad, "x"}), UsageError);
  }
  CHECK_THROWS_WITH(parse({"--nnodes", "1:2:3", "x"}), bert::testing::Contains("not in \"MIN:MAX\" format"));
  CHECK(parse({"--nproc-per-node", "cpu", "x"}).nproc_per_node == usable_processors());
  for (const char* bad : {"0", "2x", "xpu", "-1", "1.5", ""}) {
    CAPTURE(bad);
    CHECK_THROWS_AS(parse({"--nproc-per-node", bad, "x"}), UsageError);
  }
  if (gpu_bus_ids().empty()) {
    CHECK_THROWS_WITH(parse({"--nproc-per-node", "gpu", "x"}), bert::testing::Contains("no CUDA device"));
    CHECK(parse({"--nproc-per-node", "auto", "x"}).nproc_per_node == usable_processors());
  } else {
    CHECK(parse({"--nproc-per-node", "auto", "x"}).nproc_per_node == static_cast<int64_t>(gpu_bus_ids().size()));
  }
}

TEST_CASE("rendezvous options", "[unit]") {
  const auto standalone = parse({"--standalone", "--rdzv-id", "mine", "x"}).rendezvous;
  CHECK(standalone.dynamic);
  CHECK(standalone.port == 0);
  CHECK(standalone.id.size() == 36);  // a UUID, whatever was given
  CHECK(parse({"--standalone", "x"}).rendezvous.id != standalone.id);
  const auto unnamed = parse({"--rdzv-id", "", "x"}).rendezvous;  // torchrun makes up an id too
  CHECK(unnamed.id.size() == 36);
  CHECK(unnamed.id != parse({"--rdzv-id", "", "x"}).rendezvous.id);
  const auto c10d = parse({"--rdzv-backend", "c10d", "--rdzv-endpoint", "h1", "--rdzv-id", "j", "x"}).rendezvous;
  CHECK(c10d.host == "h1");
  CHECK(c10d.port == 29400);
  CHECK(c10d.id == "j");
  CHECK(c10d.join_timeout == 600);
  CHECK(parse({"--rdzv-endpoint", "[::1]:7", "x"}).rendezvous.host == "::1");
  CHECK(parse({"--rdzv-endpoint", "h:7", "--master-addr", "other", "x"}).rendezvous.port == 7);
  CHECK(parse({"--master-addr", "h", "--master-port", "9", "x"}).rendezvous.host == "h");
  CHECK(parse({"--local-addr", "me", "x"}).rendezvous.local_addr == "me");
  const auto conf =
      parse({"--rdzv-backend", "c10d", "--rdzv-conf",
             "join_timeout=7, last_call_timeout=8,close_timeout=9,timeout=3,is_host=false,keep_alive_interval=2", "x"})
          .rendezvous;
  CHECK(conf.join_timeout == 7);
  CHECK(conf.last_call_timeout == 8);
  CHECK(conf.close_timeout == 9);
  CHECK(conf.keep_alive_interval == 2);
  CHECK(conf.is_host == false);
  CHECK(parse({"--rdzv-conf", "timeout=3", "x"}).rendezvous.join_timeout == 3);
  const std::vector<std::vector<std::string>> wrong = {
      {"--rdzv-backend", "etcd"},
      {"--rdzv-endpoint", "h:70000", "--rdzv-backend", "c10d"},
      {"--rdzv-endpoint", "h"},
      {"--rdzv-endpoint", "h:x"},
      {"--rdzv-conf", "timeout"},
      {"--rdzv-conf", "timeout=-1"},
      {"--rdzv-conf", "=1"},
      {"--rdzv-conf", "store_type=file"},
      {"--rdzv-conf", "is_host=maybe"},
      {"--node-rank", "1"},
      {"--node-rank", "-1"},
      {"--nnodes", "2", "--node-rank", "2"},
      {"--master-port", "70000"},
      {"--standalone", "--nnodes", "2"},
      {"--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", "--nnodes", "2"},
      {"--rdzv-endpoint", "a b:1"}};
  for (std::vector<std::string> arguments : wrong) {
    CAPTURE(arguments);
    arguments.push_back("x");
    CHECK_THROWS_AS(parse(arguments), UsageError);
  }
  CHECK_THROWS_WITH(parse({"--rdzv-backend", "etcd-v2", "x"}), bert::testing::Contains("expected static or c10d"));
}

TEST_CASE("an option that has no effect is accepted with a note", "[unit]") {
  struct Row {
    std::vector<std::string> options;
    std::string note;
  };
  const std::vector<Row> rows = {
      {{"--standalone", "--rdzv-id", "x"}, "--rdzv-id is not used: --standalone"},
      {{"--standalone", "--rdzv_endpoint=h:1"}, "--rdzv-endpoint is not used: --standalone"},
      {{"--standalone", "--rdzv-backend", "static"}, "--rdzv-backend is not used: --standalone"},
      {{"--standalone", "--master-port", "29500"}, "--master-port is not used: it is for --rdzv-backend static"},
      {{"--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", "--node-rank", "0"}, "--node-rank is not used"},
      {{"--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", "--master-addr", "h"}, "--master-addr is not used"},
      {{"--rdzv-endpoint", "localhost:29511", "--master-addr", "h"}, "--rdzv-endpoint comes before it"},
      {{"--standalone", "--rdzv-conf", "timeout=9"}, "--rdzv-conf timeout is not used: c10d has join_timeout"},
      {{"--rdzv-conf", "last_call_timeout=9"}, "--rdzv-conf last_call_timeout is not used"},
      {{"--rdzv-conf", "is_host=1"}, "--rdzv-conf is_host is not used"},
      {{"--duplicate-stdout-filters", "a"}, "--duplicate-stdout-filters is not used: it is about what --tee copies"},
      {{"--tee", "1", "--duplicate-stderr-filters", "a"}, "--duplicate-stderr-filters is not used"},
      {{"--log-line-prefix-template", "a"}, "--log-line-prefix-template is not used"},
      {{"--log-dir", "/dev/null", "-r", "3"}, "with --log-dir /dev/null all output goes to the console"},
      {{"--start-method", "fork"}, "--start-method has no meaning here"},
      {{"--event-log-handler", "console"}, "--event-log-handler has no meaning here"},
      {{"--logs-specs", "mine"}, "--logs-specs has no meaning here"},
      {{"--rdzv-conf", "read_timeout=5"}, "--rdzv-conf read_timeout has no meaning here"},
      // Options that have an effect cause no note.
      {{"--standalone", "--rdzv-backend", "c10d"}, ""},
      {{"--node-rank", "0", "--master-addr", "localhost", "--master-port", "29512", "--rdzv-conf", "timeout=9"}, ""},
      {{"--tee", "0:3", "--duplicate-stdout-filters", "a", "--duplicate-stderr-filters", "b"}, ""},
      {{"--tee", "2", "--log-line-prefix-template", "a", "--local-ranks-filter", "0"}, ""},
  };
  for (const Row& row : rows) {
    CAPTURE(row.options);
    std::vector<std::string> arguments = row.options;
    arguments.insert(arguments.end(), {"sh", "-c", "exit 0"});
    bert::testing::Launcher launcher(arguments);
    CHECK(launcher.wait() == 0);
    CAPTURE(launcher.err());
    if (row.note.empty()) CHECK(launcher.err().empty());
    CHECK(launcher.err().find(row.note) != std::string::npos);
  }
  const Variable rank("PET_NODE_RANK", "0"), health("TORCHELASTIC_HEALTH_CHECK_PORT", "1234"),
      timer("TORCHELASTIC_ENABLE_FILE_TIMER", "1");
  bert::testing::Launcher launcher({"--standalone", "sh", "-c", "exit 0"});
  CHECK(launcher.wait() == 0);
  CHECK(launcher.err().find("--node-rank is not used") != std::string::npos);
  CHECK(launcher.err().find("TORCHELASTIC_HEALTH_CHECK_PORT has no meaning here") != std::string::npos);
  CHECK(launcher.err().find("TORCHELASTIC_ENABLE_FILE_TIMER has no meaning here") != std::string::npos);
}

TEST_CASE("the program: python for a .py file or a module, else what is beside bertrun or in PATH", "[unit]") {
  using Words = std::vector<std::string>;
  CHECK(parse({"a/b.py", "--c"}).command == Words{"python3", "-u", "a/b.py", "--c"});
  CHECK(parse({"--no-python", "a/b.py"}).command == Words{"a/b.py"});
  CHECK(parse({"-m", "package.module", "1"}).command == Words{"python3", "-u", "-m", "package.module", "1"});
  CHECK(parse({"--run-path", "--no-python", "/s.py"}).command.at(2) == "-c");
  CHECK(parse({"some-program-in-path"}).command == Words{"some-program-in-path"});
  // Arguments after the program belong to the program, whatever they look like.
  const Words odd = {"p", "[1,2]", "data.train=[\"a.shard\"]", "", "[]", "--log-dir", "]"};
  CHECK(parse(odd).command == odd);
  CHECK(parse({"--rdzv-conf", "", "--role", "[a]", "p"}).role == "[a]");  // torchrun takes empty values
  CHECK_THROWS_AS(parse({"-m", "--no-python", "x"}), UsageError);
  const Variable interpreter("PYTHON_EXEC", "/opt/python");
  CHECK(parse({"b.py"}).command == Words{"/opt/python", "-u", "b.py"});
}

TEST_CASE("log options", "[unit]") {
  const LogConfig logs = parse({"-r", "1", "-t", "0:2,11:3", "--local-ranks-filter", "0, 2", "x"}).logs;
  CHECK(logs.redirects.of(5) == kStdout);
  CHECK(logs.tee.of(0) == kStderr);
  CHECK(logs.tee.of(1) == kNoStream);
  CHECK(logs.tee.of(11) == (kStdout | kStderr));
  CHECK(logs.ranks_on_console == std::set<int64_t>{0, 2});
  CHECK(parse({"-t=3", "x"}).logs.tee.of(0) == (kStdout | kStderr));
  CHECK(parse({"-r=0:1", "x"}).logs.redirects.of(0) == kStdout);
  CHECK(parse({"--duplicate-stdout-filters", "a,b,,c", "x"}).logs.stdout_filters ==
        std::vector<std::string>{"a", "b,c"});
  for (const char* bad : {"4", "", "0:4", "0:1,", "x:1", "0:1:2", "12", "-1:1"}) {
    CAPTURE(bad);
    CHECK_THROWS_AS(parse({"--redirects", bad, "x"}), UsageError);
    CHECK_THROWS_AS(parse({"--tee", bad, "x"}), UsageError);
  }
  CHECK_THROWS_AS(parse({"--local-ranks-filter", "a", "x"}), UsageError);
  for (const char* bad : {"-1", "nan", "x"}) CHECK_THROWS_AS(parse({"--monitor-interval", bad, "x"}), UsageError);
  for (const char* none : {"0", "1e-9"})  // torchrun takes these values; here they are raised, to avoid a busy loop
    CHECK(parse({"--monitor-interval", none, "x"}).logs.tail_interval_seconds == 1e-3);
  const TemporaryDirectory directory;
  AtomicFile file(directory.path("file"));
  file.commit();
  CHECK_THROWS_AS(parse({"--log-dir", directory.path("file"), "x"}), UsageError);
  CHECK(parse({"--log-dir", "/dev/null", "x"}).logs.directory == "/dev/null");
  const Variable prefix("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "<${rank}>");
  CHECK(parse({"x"}).logs.prefix_template == "<${rank}>");
  CHECK(parse({"--log-line-prefix-template", "!", "x"}).logs.prefix_template == "!");
}

TEST_CASE("what a prefix template replaces", "[unit]") {
  const std::map<std::string, std::string> variables = {{"rank", "3"}, {"local_rank", "1"}};
  CHECK(substitute("[${rank}.$local_rank]", variables) == "[3.1]");
  CHECK(substitute("$ranks ${other} $$rank ${rank $", variables) == "$ranks ${other} $rank ${rank $");
}

TEST_CASE("signals, restarts and the shutdown time", "[unit]") {
  CHECK(parse({"--signals-to-handle", "SIGTERM, SIGUSR1", "x"}).ending_signals == std::vector<int>{SIGTERM, SIGUSR1});
  for (const char* bad : {"SIGKILL", "SIGTERM,SIGSTOP", "SIGCHLD"}) {
    CAPTURE(bad);
    CHECK_THROWS_AS(parse({"--signals-to-handle", bad, "x"}), UsageError);
  }
  // torchrun warns of an unknown name.
  for (const char* unknown : {"SIGNOPE,SIGHUP", "SIGHUP,TERM", "SIGHUP,"}) {
    CAPTURE(unknown);
    CHECK(parse({"--signals-to-handle", unknown, "x"}).ending_signals == std::vector<int>{SIGHUP});
  }
  CHECK_THROWS_AS(parse({"--max-restarts", "-1", "x"}), UsageError);
  CHECK_THROWS_AS(parse({"--max-restarts", "two", "x"}), UsageError);
  CHECK_THROWS_AS(parse({"--start-method", "thread", "x"}), UsageError);
  CHECK_THROWS_AS(parse({"--numa-binding", "core", "x"}), UsageError);
  {
    const Variable seconds("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "0.5");
    CHECK(parse({"x"}).shutdown_timeout_seconds == 0.5);
    CHECK(parse({"x"}).failure_grace_seconds == 0.5);
    CHECK(parse({"x"}).save_timeout_seconds == 300);
    const Variable longer("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "900");
    CHECK(parse({"x"}).save_timeout_seconds == 900);
    CHECK(parse({"--save-timeout", "20", "x"}).save_timeout_seconds == 20);
    CHECK(parse({"--save-timeout", "20", "x"}).shutdown_timeout_seconds == 20);
    CHECK(parse({"--save-timeout", "20", "x"}).failure_grace_seconds == 900);
  }
  for (const char* bad : {"soon", "-1", "nan", "5s"}) CHECK_THROWS_AS(parse({"--save-timeout", bad, "x"}), UsageError);
  {}
  const Variable wrong("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "soon");
  CHECK_THROWS_AS(parse({"x"}), UsageError);
}
