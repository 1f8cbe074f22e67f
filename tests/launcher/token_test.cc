// The sources of a job's token.
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "app/launcher/settings/job_token.h"
#include "app/system/crypto.h"
#include "app/system/errors.h"
#include "data/io/error.h"
#include "data/io/files.h"
// Last, because it includes Catch2.
#include "tests/testing.h"

using namespace bert;
using bert::testing::TemporaryDirectory;

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
  chmod(path.c_str(), 0640);
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
  for (const mode_t mode : {0440, 0404, 0620, 0602}) {
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
