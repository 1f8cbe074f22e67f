// The sources of a job's token.
#include <grp.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "app/launcher/settings/job_token.h"
#include "app/system/crypto.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "data/io/descriptor.h"
#include "data/io/error.h"
#include "data/io/files.h"
// Last, because it includes Catch2.
#include "tests/testing.h"

using namespace bert;
using bert::testing::TemporaryDirectory;

namespace {

constexpr uid_t kUser = 54320;  // a user that nobody is

/// A child process with a text as its result.
class Child {
 public:
  /// Runs `body` as kUser with these groups. An exception's type is the result too.
  Child(const std::vector<gid_t>& groups, const std::function<std::string()>& body) {
    int ends[2];
    if (pipe(ends) != 0) return;
    pid_ = fork();
    if (pid_ == 0) {
      alarm(60);  // a child that waits for a file that it cannot see
      std::string result = "no other user";
      if (setgroups(groups.size(), groups.data()) == 0 && setgid(kUser) == 0 && setuid(kUser) == 0) {
        unsetenv("XDG_RUNTIME_DIR");
        try {
          result = body();
        } catch (...) {
          std::string message;
          exit_code_of_current_exception(result, message);
        }
      }
      if (write(ends[1], result.data(), result.size()) < 0) _exit(1);
      _exit(0);
    }
    close(ends[1]);
    result_ = Descriptor(ends[0]);
  }
  [[nodiscard]] pid_t pid() const { return pid_; }
  std::string wait() {
    waitpid(pid_, nullptr, 0);
    std::array<char, 4096> result{};
    const ssize_t got = read(result_.get(), result.data(), result.size());
    return {result.data(), static_cast<size_t>(std::max<ssize_t>(got, 0))};
  }

 private:
  pid_t pid_ = -1;
  Descriptor result_;
};

}  // namespace

TEST_CASE("a token comes from the environment, a private file, or the user's runtime directory", "[unit]") {
  const TemporaryDirectory directory;
  setenv("XDG_RUNTIME_DIR", directory.path().c_str(), 1);
  RendezvousConfig local, remote;
  remote.host = "192.0.2.1";
  const std::string digits(64, 'A');
  setenv(kTokenVariable, digits.c_str(), 1);
  CHECK(JobToken(remote).bytes() == std::string(32, '\xaa'));
  CHECK(std::getenv(kTokenVariable) == nullptr);  // ranks must not get it
  for (const char* bad : {"1234", "zz", ""}) {
    setenv(kTokenVariable, bad, 1);
    CHECK_THROWS(JobToken(remote));
  }
  const std::string path = directory.path("token");
  {
    AtomicFile file(path);
    file.write(digits + "\n");
    file.commit();
  }
  chmod(path.c_str(), 0600);
  setenv(kTokenFileVariable, path.c_str(), 1);
  CHECK(JobToken(remote).bytes() == std::string(32, '\xaa'));
  setenv(kTokenFileVariable, directory.path().c_str(), 1);
  CHECK_THROWS_WITH(JobToken(remote), bert::testing::Contains("is not a regular file"));
  chmod(path.c_str(), 0644);
  setenv(kTokenFileVariable, path.c_str(), 1);
  CHECK_THROWS_AS(JobToken(remote), RefusedError);
  CHECK_THROWS_WITH(JobToken(remote), bert::testing::Contains("BERTRUN_TOKEN_FILE"));
  // On loopback the first agent makes a token, and all others of this id and port get it.
  std::string made;
  {
    const JobToken first(local), second(local);
    made = first.bytes();
    CHECK(made.size() == 32);
    CHECK(second.bytes() == made);
    RendezvousConfig other = local;
    other.id = "another job";
    CHECK(JobToken(other).bytes() != made);
    CHECK(JobToken(local).bytes() == made);  // still the same after one agent has left
  }
  // The last agent removes the file. A file of a killed agent is not used again.
  CHECK(std::filesystem::is_empty(directory.path("bertrun")));
  const pid_t agent = fork();
  if (agent == 0) {
    const JobToken left(local);
    _exit(0);
  }
  waitpid(agent, nullptr, 0);
  REQUIRE(std::distance(std::filesystem::directory_iterator(directory.path("bertrun")), {}) == 1);
  const std::string file = std::filesystem::directory_iterator(directory.path("bertrun"))->path();
  const std::string left = read_file(file);
  const JobToken next(local);
  CHECK(read_file(file) != left);
  CHECK(to_hexadecimal(next.bytes()) == read_file(file));
  struct stat state {};
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory.path("bertrun"))) {
    REQUIRE(stat(entry.path().c_str(), &state) == 0);
    CHECK((state.st_mode & 077) == 0);
  }
  chmod(directory.path("bertrun").c_str(), 0755);
  CHECK_THROWS_AS(JobToken(local), RefusedError);
  // As after su, or in a batch job. The directory is then in /tmp.
  setenv("XDG_RUNTIME_DIR", directory.path("absent").c_str(), 1);
  CHECK(JobToken(local).bytes().size() == 32);
  unsetenv("XDG_RUNTIME_DIR");
}

TEST_CASE("a token file may be reached by links, as Kubernetes makes them; what counts is the file", "[unit]") {
  const TemporaryDirectory directory;
  RendezvousConfig remote;
  remote.host = "192.0.2.1";
  const std::string file = directory.path("..2026_11_22/token"), link = directory.path("token");
  std::filesystem::create_directory(directory.path("..2026_11_22"));
  std::ofstream(file) << std::string(64, 'A');
  chmod(file.c_str(), 0400);
  std::filesystem::create_symlink("..2026_11_22", directory.path("..data"));
  std::filesystem::create_symlink("..data/token", link);
  const auto token = [&] {
    setenv(kTokenFileVariable, link.c_str(), 1);
    return JobToken(remote).bytes();
  };
  CHECK(token() == std::string(32, '\xaa'));
  if (geteuid() != 0) {  // root's files have a rule of their own, see the next test
    chmod(file.c_str(), 0440);
    CHECK_THROWS_AS(token(), RefusedError);
  }
  for (const mode_t mode : {0404, 0620, 0602}) {
    CAPTURE(mode);
    chmod(file.c_str(), mode);
    CHECK_THROWS_AS(token(), RefusedError);
  }
  chmod(file.c_str(), 0400);
  if (geteuid() == 0) {  // only root can give a file away
    REQUIRE(chown(file.c_str(), 65534, 65534) == 0);
    CHECK_THROWS_WITH(token(), bert::testing::Contains("let it be your own"));
  }
  const auto lead_to = [&](const std::string& target) {
    std::filesystem::remove(link);
    std::filesystem::create_symlink(target, link);
  };
  lead_to("..data");
  CHECK_THROWS_WITH(token(), bert::testing::Contains("is not a regular file"));
  lead_to("/dev/null");
  CHECK_THROWS_WITH(token(), bert::testing::Contains("is not a regular file"));
  lead_to("absent");
  CHECK_THROWS_AS(token(), InputMissing);
  lead_to("token");
  CHECK_THROWS_WITH(token(), bert::testing::Contains("a circle of them"));
}

TEST_CASE("a token file of root is accepted if only a group of the user may read it", "[unit]") {
  if (geteuid() != 0) BERT_SKIP("only root can make files of root and become other users");
  constexpr gid_t kShared = 54321, kOther = 54322;  // groups that nobody has
  // As Kubernetes mounts a secret in a pod with runAsUser and fsGroup: links, and a file of root and the group.
  const TemporaryDirectory directory;
  std::filesystem::create_directory(directory.path("..2026"));
  const std::string file = directory.path("..2026/token"), link = directory.path("token");
  std::ofstream(file) << std::string(64, 'A');
  std::filesystem::create_symlink("..2026", directory.path("..data"));
  std::filesystem::create_symlink("..data/token", link);
  for (const std::string& each : {directory.path(), directory.path("..2026")}) chmod(each.c_str(), 0755);
  RendezvousConfig remote;
  remote.host = "192.0.2.1";
  struct Row {
    uid_t owner;
    gid_t group;
    mode_t mode;
    std::string answer;
  };
  const std::string accepted = std::string(64, 'a'), refused = "RefusedError";
  for (const Row& row : {Row{0, kShared, 0440, accepted}, Row{0, kShared, 0640, accepted},
                         Row{0, kOther, 0440, refused}, Row{0, kShared, 0444, refused}, Row{0, kShared, 0460, refused},
                         Row{0, kShared, 0450, refused}, Row{kUser, kShared, 0440, refused},
                         Row{kUser + 1, kShared, 0440, refused}, Row{kUser, kShared, 0400, accepted}}) {
    CAPTURE(row.owner, row.group, row.mode);
    REQUIRE(chown(file.c_str(), row.owner, row.group) == 0);
    REQUIRE(chmod(file.c_str(), row.mode) == 0);
    CHECK(Child({kShared}, [&] {
            setenv(kTokenFileVariable, link.c_str(), 1);
            return to_hexadecimal(JobToken(remote).bytes());
          }).wait() == row.answer);
  }
}

TEST_CASE("a stranger's directories in /tmp do not keep agents from sharing a token", "[unit]") {
  if (geteuid() != 0) BERT_SKIP("only root can become other users");
  const std::string prefix = "/tmp/bertrun-" + std::to_string(kUser);
  const auto clean = [&] {
    for (const auto& entry : std::filesystem::directory_iterator("/tmp")) {
      if (entry.path().string().starts_with(prefix)) std::filesystem::remove_all(entry.path());
    }
  };
  clean();
  // Names that somebody else, here root, has taken: directories, a link to a directory of the user, a file.
  const TemporaryDirectory home;
  chmod(home.path().c_str(), 0700);
  REQUIRE(chown(home.path().c_str(), kUser, kUser) == 0);
  std::ofstream(home.path("made")) << "";
  std::filesystem::create_directory(prefix);
  for (const char* name : {".000000", ".000001"}) {
    std::filesystem::create_directory(prefix + name);
    std::filesystem::create_symlink("1", prefix + name + "/ticket");
  }
  chmod((prefix + ".000000").c_str(), 0700);
  chmod((prefix + ".000001").c_str(), 0777);
  std::filesystem::create_directory_symlink(home.path(), prefix + ".000002");
  std::ofstream(prefix + ".000003") << "";
  // Agents that start together make one token, although each may find no directory yet.
  std::deque<Child> agents;
  const std::string go = home.path("go"), leave = home.path("leave");
  const auto exists = [](const std::string& path) { return access(path.c_str(), F_OK) == 0; };
  for (int i = 0; i < 8; ++i) {
    agents.emplace_back(std::vector<gid_t>(), [&] {
      while (!exists(go)) usleep(100);
      const JobToken token((RendezvousConfig()));
      std::ofstream(home.path(std::to_string(getpid()))) << "";
      while (!exists(leave)) usleep(1000);  // every agent holds the token until all have it
      return to_hexadecimal(token.bytes());
    });
  }
  std::ofstream(go) << "";
  const auto have_it = [&] {
    return std::ranges::count_if(agents,
                                 [&](const Child& agent) { return exists(home.path(std::to_string(agent.pid()))); });
  };
  for (int i = 0; i < 1000 && have_it() < 8; ++i) usleep(10'000);
  std::ofstream(leave) << "";
  std::set<std::string> tokens;
  for (Child& agent : agents) tokens.insert(agent.wait());
  REQUIRE(tokens.size() == 1);
  CHECK(tokens.begin()->size() == 64);
  CHECK(std::distance(std::filesystem::directory_iterator(home.path()), {}) == 8 + 3);  // no token is in it
  clean();
}

TEST_CASE("links in the user's runtime directory are refused", "[unit]") {
  const TemporaryDirectory directory;
  setenv("XDG_RUNTIME_DIR", directory.path().c_str(), 1);
  const RendezvousConfig local;
  const std::string own = directory.path("own");
  std::filesystem::create_directory(own);
  chmod(own.c_str(), 0700);
  std::filesystem::create_directory_symlink(own, directory.path("bertrun"));
  CHECK_THROWS_WITH(JobToken(local), bert::testing::Contains("is a symbolic link"));
  std::filesystem::remove(directory.path("bertrun"));
  std::string name;
  {
    const JobToken made(local);
    name = std::filesystem::directory_iterator(directory.path("bertrun"))->path();
  }
  std::ofstream(own + "/token") << std::string(64, 'A');
  chmod((own + "/token").c_str(), 0600);
  std::filesystem::create_symlink(own + "/token", name);
  CHECK_THROWS_WITH(JobToken(local), bert::testing::Contains("is a symbolic link"));
  unsetenv("XDG_RUNTIME_DIR");
}
