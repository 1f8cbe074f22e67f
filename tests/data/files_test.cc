#include "data/io/files.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "data/io/error.h"
#include "data/io/io_errors.h"
#include "tests/testing.h"

namespace bert {
namespace {

using testing::Contains;
using testing::TemporaryDirectory;

int64_t entries(const TemporaryDirectory& directory) {
  return std::distance(std::filesystem::directory_iterator(directory.path()), std::filesystem::directory_iterator());
}

TEST_CASE("AtomicFile shows nothing before commit and everything after", "[unit][files]") {
  const TemporaryDirectory directory;
  const std::string path = directory.path("file");
  {
    AtomicFile file(path);
    file.write("0000 world");
    file.write_at(0, "hell", 4);
    CHECK(file.size() == 10);
    CHECK_FALSE(std::filesystem::exists(path));
    file.commit();
  }
  CHECK(read_file(path) == "hell world");
  CHECK(entries(directory) == 1);
}

TEST_CASE("AtomicFile without commit leaves the earlier file and no litter", "[unit][files]") {
  const TemporaryDirectory directory;
  const std::string path = directory.path("file");
  std::ofstream(path) << "earlier";
  {
    AtomicFile file(path);
    file.write("later");
  }
  CHECK(read_file(path) == "earlier");
  CHECK(entries(directory) == 1);
}

TEST_CASE("A process that is killed while it writes leaves nothing once the file is written again", "[unit][files]") {
  const TemporaryDirectory directory;
  const std::string path = directory.path("file");
  const pid_t child = fork();
  if (child == 0) {
    AtomicFile file(path);
    file.write("half");
    raise(SIGKILL);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  // Temporary files that other file systems would leave behind, one of a living process, and names that are not
  // temporary ones.
  const std::string stale = fmt::format("{}.tmp-{}-1", path, child),
                    busy = fmt::format("{}.tmp-{}-999", path, getpid());
  const std::string other = path + ".tmp-notes", longer = fmt::format("{}.txt.tmp-{}-1", path, child);
  for (const std::string& name : {stale, busy, other, longer}) std::ofstream(name) << "x";
  AtomicFile file(path);
  CHECK_FALSE(std::filesystem::exists(stale));
  for (const std::string& name : {busy, other, longer}) CHECK(std::filesystem::exists(name));
  file.write("whole");
  file.commit();
  CHECK(read_file(path) == "whole");
  CHECK(entries(directory) == 4);
}

TEST_CASE("Nothing beside a file keeps it from being written", "[unit][files]") {
  const TemporaryDirectory directory;
  const std::string path = directory.path("out"), temporary = path + ".tmp-";
  // Files of an earlier process with the same number, as in a container, where the number is 1; and a pipe without a
  // writer.
  for (int i = 1; i < 200; ++i) std::ofstream(temporary + std::to_string(getpid()) + "-" + std::to_string(i)) << "old";
  REQUIRE(mkfifo((temporary + "2147483647-1").c_str(), 0600) == 0);
  AtomicFile file(path);
  file.write("new");
  file.commit();
  CHECK(read_file(path) == "new");
}

TEST_CASE("AtomicFile refuses to overwrite what is not written", "[unit][files]") {
  const TemporaryDirectory directory;
  AtomicFile file(directory.path("file"));
  file.write("1234");
  CHECK_THROWS_AS(file.write_at(2, "abc", 3), IoError);
  CHECK_THROWS_AS(file.write_at(-1, "a", 1), IoError);
}

TEST_CASE("A failed write throws with the path and keeps the earlier file", "[unit][files]") {
  const TemporaryDirectory directory;
  const std::string path = directory.path("file");
  std::ofstream(path) << "earlier";
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old_limit{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &old_limit) == 0);
  const rlimit small{1000, old_limit.rlim_max};
  REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  std::string message;
  try {
    AtomicFile file(path);
    file.write(std::string(2000, 'x'));
    file.commit();
  } catch (const IoError& error) {
    message = error.what();
  }
  setrlimit(RLIMIT_FSIZE, &old_limit);
  std::signal(SIGXFSZ, old_handler);
  CHECK_THAT(message, Contains(path) && Contains("write") && Contains("too large"));
  CHECK(read_file(path) == "earlier");
  CHECK(entries(directory) == 1);
}

TEST_CASE("AtomicFile writes names of every length that the system has, and refuses longer paths at once",
          "[unit][files]") {
  const TemporaryDirectory directory;
  for (const size_t letters : {size_t{228}, size_t{229}, size_t{230}, size_t{243}, size_t{244}, size_t{255}}) {
    CAPTURE(letters);
    const std::string path = directory.path(std::string(letters, 'n'));
    AtomicFile file(path);
    file.write("text");
    file.commit();
    CHECK(read_file(path) == "text");
  }
  CHECK(entries(directory) == 6);
  CHECK_THROWS_WITH(AtomicFile(directory.path(std::string(256, 'n'))), Contains("cannot create: File name too long"));
  // A path within the limit of the system, with a temporary path beyond it.
  std::string deep = directory.path();
  while (deep.size() + 51 < PATH_MAX - 40) std::filesystem::create_directory(deep += "/" + std::string(50, 'd'));
  const std::string path = deep + "/" + std::string(PATH_MAX - 3 - deep.size(), 'n');
  CHECK_THROWS_WITH(AtomicFile(path), Contains("cannot create: File name too long"));
}

TEST_CASE("What a killed process left of a file with a long name goes with the next", "[unit][files]") {
  const TemporaryDirectory directory;
  const std::string name(250, 'n'), path = directory.path(name);
  const pid_t child = fork();
  if (child == 0) _exit(0);
  REQUIRE(waitpid(child, nullptr, 0) == child);
  const std::string stale = directory.path(fmt::format("{}.tmp-{}-1", checksum(name.data(), name.size()), child)),
                    other = directory.path(fmt::format("{}.tmp-{}-1", checksum("other", 5), child));
  for (const std::string& left : {stale, other}) std::ofstream(left) << "x";
  AtomicFile file(path);
  CHECK_FALSE(std::filesystem::exists(stale));
  CHECK(std::filesystem::exists(other));
}

TEST_CASE("A directory that is not there is named", "[unit][files]") {
  const TemporaryDirectory directory;
  const std::string parent = directory.path("no/such"), path = parent + "/file";
  CHECK_THROWS_WITH(AtomicFile(path), path + ": cannot create: the directory " + parent + " does not exist; create it");
}

TEST_CASE("read_file and MappedFile tell a missing file from a bad one", "[unit][files]") {
  const TemporaryDirectory directory;
  CHECK_THROWS_AS(read_file(directory.path("absent")), InputMissing);
  CHECK_THROWS_AS(MappedFile(directory.path("absent")), InputMissing);
  CHECK_THROWS_AS(read_file(directory.path()), IoError);
  CHECK_THROWS_AS(MappedFile(directory.path()), IoError);
  std::ofstream(directory.path("ten")) << "0123456789";
  CHECK(read_file(directory.path("ten"), 10) == "0123456789");
  CHECK_THROWS_WITH(read_file(directory.path("ten"), 9), Contains("10 bytes") && Contains("at most 9"));
  CHECK_THROWS_AS(read_file(directory.path("ten"), 9), DataError);
  CHECK(MappedFile(directory.path("ten")).view() == "0123456789");
  std::ofstream(directory.path("empty")).flush();
  CHECK(read_file(directory.path("empty")).empty());
  CHECK(MappedFile(directory.path("empty")).view().empty());
}

TEST_CASE("read_file reads files that do not know their size", "[unit][files]") {
  CHECK_THAT(read_file("/proc/self/status"), Contains("Name:"));
  CHECK_THROWS_AS(read_file("/dev/zero", 100000), DataError);
}

TEST_CASE("checksum is XXH3-128, whole or in pieces", "[unit][files]") {
  // Published digests: of no bytes (xxHash test vectors) and of the well-known sentence.
  CHECK(checksum("", 0) == "99aa06d3014798d86001c324468d497f");
  const std::string text = "The quick brown fox jumps over the lazy dog";
  CHECK(checksum(text.data(), text.size()) == "ddd650205ca3e7fa24a1cc2e3a8a7651");
  Checksum pieces;
  pieces.update(text.data(), 10);
  pieces.update(text.data() + 10, text.size() - 10);
  CHECK(pieces.hexadecimal() == checksum(text.data(), text.size()));
}

TEST_CASE("AppendedFile adds whole pieces, and none that does not fit", "[unit][files]") {
  const TemporaryDirectory directory;
  const std::string path = directory.path("log");
  std::ofstream(path) << "first\n";
  {
    AppendedFile file(path);
    file.write("second\n");
    const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
    rlimit old_limit{};
    REQUIRE(getrlimit(RLIMIT_FSIZE, &old_limit) == 0);
    const rlimit small{16, old_limit.rlim_max};
    REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
    std::string message;
    try {
      file.write("the third\n");
    } catch (const IoError& error) {
      message = error.what();
    }
    setrlimit(RLIMIT_FSIZE, &old_limit);
    std::signal(SIGXFSZ, old_handler);
    CHECK_THAT(message, Contains(path) && Contains("too large"));
    file.write("4\n");
  }
  CHECK(read_file(path) == "first\nsecond\n4\n");
  CHECK_THROWS_WITH(
      AppendedFile("/dev/full").write("some bytes"),
      Contains("/dev/full: cannot write: the disk is full: 10 bytes more are needed") && Contains("free"));
  CHECK_THROWS_WITH(AppendedFile(directory.path("no/file")), Contains("No such file"));
}

TEST_CASE("A mapped file that becomes shorter reads zeros, and says so", "[unit][files]") {
  const TemporaryDirectory directory;
  const std::string path = directory.path("file");
  constexpr size_t kPage = 4096;
  const auto write = [&] { std::ofstream(path) << std::string(3 * kPage, 'x'); };
  const auto refusal = [&](size_t bytes) {
    return fmt::format("{}: byte {}: the file was cut to {} of its {} bytes while it was read. Make or copy it again.",
                       path, bytes, bytes, 3 * kPage);
  };
  for (const bool before : {false, true}) {  // the lost bytes are read before the check, or not at all
    CAPTURE(before);
    write();
    const MappedFile file(path);
    CHECK_NOTHROW(file.expect_whole());
    std::filesystem::resize_file(path, kPage + 10);
    if (before) CHECK(file.data()[2 * kPage + 7] == 0);
    CHECK_THROWS_AS(file.expect_whole(), DataError);
    CHECK_THROWS_WITH(file.expect_whole(), refusal(kPage + 10));
    CHECK_THROWS_WITH(expect_whole_mapping(file.data() + 2 * kPage), refusal(kPage + 10));
    CHECK_NOTHROW(expect_whole_mapping(path.data()));
  }
  write();
  const MappedFile last_page(path);  // no fault: the system fills the rest of a page with zeros
  std::filesystem::resize_file(path, 3 * kPage - 1);
  CHECK(last_page.data()[3 * kPage - 1] == 0);
  CHECK_THROWS_WITH(last_page.expect_whole(), refusal(3 * kPage - 1));
  write();
  const MappedFile grown(path);
  std::filesystem::resize_file(path, kPage);
  CHECK(grown.data()[2 * kPage] == 0);
  std::filesystem::resize_file(path, 3 * kPage);
  CHECK_THROWS_WITH(grown.expect_whole(),
                    fmt::format("{}: byte {}: the file was cut while it was read. Make or copy it "
                                "again.",
                                path, 2 * kPage));
  write();
  const MappedFile replaced(path);  // the mapping keeps the bytes of the file that had the name
  std::ofstream(directory.path("other")) << "short";
  std::filesystem::rename(directory.path("other"), path);
  CHECK(replaced.data()[2 * kPage] == 'x');
  CHECK_NOTHROW(replaced.expect_whole());
}

TEST_CASE("A device without an end is not read into memory for ever, a pipe is not waited for to be mapped", "[unit]") {
  CHECK_THROWS_WITH(read_file("/dev/zero", 1 << 20), Contains("/dev/zero: the file is too large"));
  const TemporaryDirectory directory;
  REQUIRE(mkfifo(directory.path("pipe").c_str(), 0600) == 0);
  CHECK_THROWS_WITH(MappedFile(directory.path("pipe")), Contains("pipe: cannot map: it is a pipe"));
}

TEST_CASE("Too little free space is told before anything is written", "[unit][files]") {
  const TemporaryDirectory directory;
  CHECK_NOTHROW(check_free_space(directory.path("file"), 1, "an export"));
  CHECK_THROWS_WITH(
      check_free_space(directory.path("file"), INT64_MAX, "an export"),
      Contains(directory.path("file") + ": the disk is full: an export needs 9223372036854775807 bytes, ") &&
          Contains("are free"));
}

TEST_CASE("A disk without a free inode is told from one without space", "[unit][files]") {
  const std::string inodes = "no inode free: it holds as many files as it can, though 4096 bytes are free";
  CHECK_THAT(no_room(ENOSPC, {.bytes = 4096, .files = 0}, 0), Contains(inodes));
  CHECK_THAT(no_room(ENOSPC, {.bytes = 4096, .files = 0}, 4095), Contains(inodes));
  CHECK_THAT(no_room(ENOSPC, {.bytes = 4096, .files = 0}, 8192),
             Contains("the disk is full: 8192 bytes more are needed, 4096 are free"));
  CHECK_THAT(no_room(ENOSPC, {.bytes = 4096, .files = 7}, 1), Contains("the disk is full: 1 bytes more"));
  CHECK_THAT(no_room(ENOSPC, {}, 1), Contains("the disk is full: 1 bytes more are needed, an unknown number are free"));
  CHECK_THAT(no_room(EDQUOT, {.bytes = 4096, .files = 0}, 1), Contains("the quota is used up"));

  const TemporaryDirectory directory;
  const std::string report = directory.path("report"), disk = directory.path("disk");
  std::filesystem::create_directory(disk);
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("none", disk.c_str(), "tmpfs", 0, "size=1m,nr_inodes=3") != 0) {
      _exit(1);
    }
    std::string said;
    for (int i = 0; i < 3; ++i) {
      try {
        check_free_space(disk + "/file", 1, "an export");
        AtomicFile(disk + "/file" + std::to_string(i)).commit();
      } catch (const IoError& error) {
        said = error.what();
      }
    }
    try {
      AtomicFile(disk + "/another").commit();
    } catch (const IoError& error) {
      std::ofstream(report) << said << '\n' << error.what() << '\n';
    }
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  if (status != 0) BERT_SKIP("mounting a disk of few inodes needs root");
  const std::string said = read_file(report);
  CHECK_THAT(said, Contains(disk + "/file: the disk has no inode free: it holds as many files as it can, though"));
  CHECK_THAT(said, Contains(disk + "/another: cannot create: the disk has no inode free"));
}

TEST_CASE("sync_path takes files and directories", "[unit][files]") {
  const TemporaryDirectory directory;
  std::ofstream(directory.path("file")) << "x";
  CHECK_NOTHROW(sync_path(directory.path("file")));
  CHECK_NOTHROW(sync_path(directory.path()));
  CHECK_THROWS_AS(sync_path(directory.path("absent")), IoError);
}

}  // namespace
}  // namespace bert
