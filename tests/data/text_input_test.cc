// Inputs that every verb refuses as text.
#include "data/text/text_input.h"

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "app/system/exit_codes.h"
#include "app/verbs/verbs.h"
#include "data/io/error.h"
#include "tests/support/command_testing.h"
#include "tests/testing.h"

namespace bert {
namespace {

using namespace std::string_literals;
using testing::CommandResult;
using testing::Contains;
using testing::run_command;
using testing::TemporaryDirectory;

/// The beginning of "a" compressed by gzip 1.12, bzip2 1.0.8, xz 5.4.1 and zstd 1.5.4, of no bytes compressed by bzip2,
/// of a zip archive, and of "a" in UTF-16.
const std::vector<std::pair<std::string, std::string>> kPacked = {
    {"gzip", "\x1F\x8B\x08\0\0\0\0\0\0\x03\x4B\x04\0\x43\xBE\xB7\xE8\x01\0\0\0"s},
    {"bzip2", "BZh91AY&SY\x19\x93\x9B\x6B"s},
    {"bzip2", "BZh9\x17\x72\x45\x38\x50\x90\0\0\0\0"s},
    {"xz", "\xFD\x37zXZ\0\0\x04\xE6\xD6\xB4\x46"s},
    {"zstd", "\x28\xB5\x2F\xFD\x04\x58\x09\0\0\x61\x5B\x6E\x8C\xA9"s},
    {"zip", "PK\x03\x04\x0A\0\0\0"s},
    {"UTF-16", "\xFF\xFE\x61\0"s},
    {"UTF-16", "\xFE\xFF\0\x61"s},
};

struct Files {
  TemporaryDirectory directory;
  std::string vocab = directory.path("vocab.txt"), text = directory.path("text"), output = directory.path("output");
  Files() { std::ofstream(vocab) << "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n"; }
  /// The result of each verb that reads standard input, for `content`.
  [[nodiscard]] std::vector<CommandResult> pipe(const std::string& content) const {
    return {run_command(data_command, {"data", "split"}, content),
            run_command(tokenize_command, {"tokenize", "--vocab", vocab}, content)};
  }
  /// The result of `bert data create` for a file with `content`, as sentences and as prose.
  [[nodiscard]] std::vector<CommandResult> create(const std::string& content) const {
    std::ofstream(text, std::ios::binary) << content;
    return {run_command(data_command, {"data", "create", "--input", text, "--vocab", vocab, "--output", output}),
            run_command(data_command, {"data", "create", "--split-sentences", "--input", text, "--vocab", vocab,
                                       "--output", output})};
  }
};

TEST_CASE("Packed text on standard input is refused with what it is", "[unit][text_input]") {
  const Files files;
  for (const auto& [format, content] : kPacked) {
    for (const CommandResult& result : files.pipe(content)) {
      INFO(format << ": " << result.err);
      CHECK(result.code == kBadData);
      CHECK(result.out.empty());
      CHECK_THAT(result.err, Contains("standard input: is " + format + "; "));
    }
  }
  CHECK_NOTHROW(check_is_plain_text("a", ""));
  CHECK_NOTHROW(check_is_plain_text("a", "BZh9 is how bzip2 begins"));
  CHECK_NOTHROW(check_is_plain_text("a", "PK"));
}

TEST_CASE("Text with too much that is no UTF-8 is refused with the first such byte", "[unit][text_input]") {
  const Files files;
  std::string latin1 = "a b\n\u00E9";  // six bytes, then invalid ones
  for (int i = 0; i < 100; ++i) latin1 += "\xE9 a\n";
  for (const CommandResult& result : files.create(latin1)) {
    CHECK(result.code == kBadData);
    CHECK_THAT(result.err, Contains(files.text + ": byte 6: is not "));
    CHECK_FALSE(std::filesystem::exists(files.output));
  }
  const std::vector<CommandResult> results = files.pipe(latin1);
  CHECK(results[0].code == kBadData);
  CHECK_THAT(results[0].err, Contains(": byte 6: is not UTF-8, nor are 100 places of 406 bytes in all"));
  CHECK(results[1].code == kOk);  // tokenize writes while it reads: it drops and counts
  CHECK_THAT(results[1].err, Contains("dropped 100 invalid UTF-8 sequences"));
}

TEST_CASE("Damaged places are dropped, counted and told", "[unit][text_input]") {
  const Files files;
  std::string text;
  for (int i = 0; i < 20; ++i) text += "a b a b\nb a\n\n";
  const std::string damaged = "a\xFF b\n" + text;
  for (const auto& results : {files.create(damaged), files.pipe(damaged)}) {
    for (const CommandResult& result : results) {
      INFO(result.err);
      CHECK(result.code == kOk);
      CHECK_THAT(result.err, Contains("dropped 1 invalid UTF-8 sequences"));
    }
  }
  const std::string bytes(10000, 'a');
  CHECK_NOTHROW(check_share_of_invalid("a", bytes, 100));
  CHECK_THROWS_AS(check_share_of_invalid("a", bytes, 101), DataError);
  CHECK_NOTHROW(check_share_of_invalid("a", "a", 10));
  CHECK_THROWS_AS(check_share_of_invalid("a", "a", 11), DataError);
}

TEST_CASE("A file without text, and what is no file, are told with their names", "[unit][text_input]") {
  const Files files;
  const std::string blank = " bytes of white space and control characters.",
                    invalid = " bytes of invalid UTF-8, white space and control characters.";
  for (const auto& [content, why] : std::vector<std::pair<std::string, std::string>>{
           {"", "0 bytes."}, {" \n\t\n", "4" + blank}, {"\0\0 \x1B\n"s, "5" + blank}, {"\xFF \n", "3" + invalid}}) {
    for (const CommandResult& result : files.create(content)) {
      INFO(result.err);
      CHECK(result.code == kBadData);
      CHECK_THAT(result.err, Contains(files.text + ": no text: " + why + " Name a file with text in UTF-8."));
    }
    CHECK_FALSE(std::filesystem::exists(files.output));
  }
  std::ofstream(files.directory.path("empty")).flush();
  std::ofstream(files.text) << "\n";
  const CommandResult two = run_command(vocab_command, {"vocab", "--input", files.text, files.directory.path("empty"),
                                                        "--size", "9", "--output", files.output});
  CHECK_THAT(two.err, Contains(files.text + " and 1 more: no text: 1 bytes of white space"));
  std::ofstream(files.text) << std::string(201, 'a') << ' ' << std::string(300, 'b') << '\n';
  const CommandResult overlong =
      run_command(vocab_command, {"vocab", "--input", files.text, "--size", "9", "--output", files.output});
  CHECK(overlong.code == kBadData);
  CHECK_THAT(overlong.err, Contains("no word to learn from: all 2 are longer than 200 characters"));
}

}  // namespace
}  // namespace bert
