#include "data/io/atomic_directory.h"

#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "data/io/error.h"
#include "data/io/files.h"
#include "tests/testing.h"

namespace bert {
namespace {

namespace fs = std::filesystem;
using testing::TemporaryDirectory;

void fill(const AtomicDirectory& directory, const std::string& text) {
  AtomicFile file(directory.temporary() + "/file");
  file.write(text);
  file.commit();
}

int64_t entries_in(const std::string& directory) {
  return std::distance(fs::directory_iterator(directory), fs::directory_iterator());
}

TEST_CASE("A directory appears whole, and replaces an earlier one", "[unit][files]") {
  const TemporaryDirectory parent;
  const std::string path = parent.path("a/b/");
  {
    const AtomicDirectory unfinished(path);
    fill(unfinished, "never");
    CHECK(unfinished.final_name() == parent.path("a/b"));
    CHECK_FALSE(fs::exists(path));
  }
  CHECK(entries_in(parent.path("a")) == 0);
  for (const std::string text : {"one", "two"}) {
    AtomicDirectory directory(path);
    fill(directory, text);
    directory.publish();
    CHECK(read_file(parent.path("a/b/file")) == text);
    CHECK(entries_in(parent.path("a")) == 1);
  }
  {
    const AtomicDirectory unfinished(path);
    fill(unfinished, "never");
  }
  CHECK(read_file(parent.path("a/b/file")) == "two");
}

TEST_CASE("The temporary directory of a killed process is removed, that of a living one stays", "[unit][files]") {
  const TemporaryDirectory parent;
  const std::string path = parent.path("model");
  const pid_t killed = fork();
  if (killed == 0) {
    const AtomicDirectory unfinished(path);
    _exit(0);  // without the destructor
  }
  int status = 0;
  REQUIRE(waitpid(killed, &status, 0) == killed);
  REQUIRE(entries_in(parent.path()) == 1);
  fs::create_directory(parent.path("tmp-model-1"));     // of process 1
  fs::create_directory(parent.path("tmp-model-copy"));  // of no process
  AtomicDirectory(path).publish();
  CHECK(fs::exists(parent.path("tmp-model-1")));
  CHECK(fs::exists(parent.path("tmp-model-copy")));
  CHECK(entries_in(parent.path()) == 3);
}

TEST_CASE("A file in the place of a directory, or of its parent, is an error", "[unit][files]") {
  const TemporaryDirectory parent;
  std::ofstream(parent.path("file")) << "text";
  CHECK_THROWS_AS(AtomicDirectory(parent.path("file/model")), IoError);
  AtomicDirectory directory(parent.path("file"));
  CHECK_THROWS_AS(directory.publish(), IoError);
  CHECK(read_file(parent.path("file")) == "text");
}

}  // namespace
}  // namespace bert
