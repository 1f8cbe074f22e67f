// Files that verbs refuse to write over. Pipes stand for devices here, so that no device of the machine is named.
#include "app/verbs/output_paths.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "app/system/errors.h"
#include "app/verbs/verbs.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "tests/testing.h"

namespace bert {
namespace {

using testing::Contains;
using testing::TemporaryDirectory;

int run(int (*command)(int, char**), std::vector<std::string> arguments) {
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  return command(static_cast<int>(argv.size()), argv.data());
}

TEST_CASE("AtomicFile does not replace a pipe or a directory", "[unit][files]") {
  const TemporaryDirectory directory;
  const std::string pipe = directory.path("pipe"), link = directory.path("link");
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  std::filesystem::create_symlink("pipe", link);
  for (const std::string& path : {pipe, link}) {
    CHECK_THROWS_WITH(AtomicFile(path),
                      Contains(path + ": cannot write: it is a pipe") && Contains("Name a file, and"));
  }
  CHECK_THROWS_WITH(AtomicFile(directory.path()), Contains("it is a directory") && Contains("Name a file in it"));
  CHECK_THROWS_AS(AtomicFile(pipe), IoError);
  CHECK(std::filesystem::is_fifo(pipe));
}

TEST_CASE("AtomicFile writes the file that a link names and keeps the link", "[unit][files]") {
  const TemporaryDirectory directory;
  std::filesystem::create_directory(directory.path("elsewhere"));
  std::filesystem::create_symlink("elsewhere/file", directory.path("link"));
  std::filesystem::create_symlink("link", directory.path("second"));
  for (const char* text : {"made", "replaced"}) {  // the target does not exist at first
    AtomicFile file(directory.path("second"));
    file.write(text);
    file.commit();
    CHECK(read_file(directory.path("elsewhere/file")) == text);
  }
  CHECK(std::filesystem::is_symlink(directory.path("link")));
  CHECK(std::filesystem::is_symlink(directory.path("second")));
  std::filesystem::create_symlink("b", directory.path("a"));
  std::filesystem::create_symlink("a", directory.path("b"));
  CHECK_THROWS_WITH(AtomicFile(directory.path("a")), Contains("symbolic links"));
}

TEST_CASE("An output that is an input, another output or a checkpoint's file is refused", "[unit][output_paths]") {
  const TemporaryDirectory directory;
  const std::string text = directory.path("text"), link = directory.path("link"), absent = directory.path("absent");
  std::ofstream(text) << "text\n";
  std::filesystem::create_symlink("text", link);
  std::filesystem::create_hard_link(text, directory.path("hard"));
  const std::vector<NamedPath> inputs = {{"--input", text}, {"--vocab", ""}};
  for (const std::string& output : {text, link, directory.path("hard"), directory.path("./text")}) {
    CAPTURE(output);
    CHECK_THROWS_WITH(check_outputs({{"--output", output}}, inputs),
                      Contains("--output " + output + ": is the same file as --input " + text));
    CHECK_THROWS_AS(check_outputs({{"--output", output}}, inputs), UsageError);
  }
  CHECK_NOTHROW(check_outputs({{"--output", absent}, {"--validation-output", ""}}, inputs));
  CHECK_NOTHROW(check_outputs({{"--output", text}}, {}));  // an earlier result may be replaced
  int pipes[2];
  REQUIRE(pipe(pipes) == 0);
  CHECK_NOTHROW(check_outputs({{"--output", absent}}, {{"--input", "/dev/fd/" + std::to_string(pipes[0])}}));
  for (const int end : pipes) close(end);
  CHECK_THROWS_WITH(check_outputs({{"--output", absent}, {"--validation-output", directory.path("./absent")}}, inputs),
                    Contains("--validation-output") && Contains("is the same file as --output"));
  const auto here = std::filesystem::current_path();
  std::filesystem::current_path(directory.path());
  CHECK_THROWS_AS(check_outputs({{"--output", "new"}, {"--validation-output", "./new"}}, {}), UsageError);
  std::filesystem::current_path(here);

  std::filesystem::create_directory(directory.path("checkpoint"));
  std::filesystem::create_directory_symlink("checkpoint", directory.path("latest"));
  std::ofstream(directory.path("checkpoint/MANIFEST.json")) << "{}\n";
  for (const char* output : {"checkpoint/model.safetensors", "latest/new.pt"}) {
    CHECK_THROWS_WITH(check_outputs({{"--output", directory.path(output)}}, {}), Contains("lies in a checkpoint"));
  }
}

TEST_CASE("bert vocab and bert data create do not write over what they read", "[unit][output_paths]") {
  const TemporaryDirectory directory;
  const std::string text = directory.path("text"), vocabulary = directory.path("vocab.txt"),
                    pipe = directory.path("pipe");
  std::ofstream(text) << "the cat sat\n";
  std::ofstream(vocabulary) << "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\n";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  const std::string before = read_file(vocabulary);
  CHECK_THROWS_AS(run(vocab_command, {"vocab", "--input", text, "--size", "12", "--output", text}), UsageError);
  CHECK_THROWS_AS(run(vocab_command, {"vocab", "--input", text, "--size", "12", "--output", pipe}), IoError);
  CHECK_THROWS_AS(run(data_command, {"data", "create", "--input", text, "--vocab", vocabulary, "--output", vocabulary}),
                  UsageError);
  CHECK_THROWS_AS(run(data_command, {"data", "create", "--input", text, "--vocab", vocabulary, "--output",
                                     directory.path("o"), "--validation-output", directory.path("./o")}),
                  UsageError);
  CHECK_THROWS_AS(run(data_command, {"data", "create", "--input", text, "--vocab", vocabulary, "--output", pipe}),
                  IoError);
  CHECK(read_file(text) == "the cat sat\n");
  CHECK(read_file(vocabulary) == before);
  CHECK(std::filesystem::is_fifo(pipe));
}

}  // namespace
}  // namespace bert
