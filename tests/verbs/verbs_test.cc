// The program `bert` from a shell: versions, unknown verbs and wrong values.
#include <sys/wait.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "app/system/exit_codes.h"
#include "tests/places.h"
#include "tests/testing.h"

namespace bert {
namespace {

using testing::Contains;
using testing::TemporaryDirectory;

struct Output {
  int status;
  std::string text;  // standard output and standard error
};

/// `variables`: environment variables as NAME=VALUE, before the name of the program.
Output run_bert(const std::string& arguments, const std::string& variables = "") {
  FILE* pipe = popen((variables + " " + BERT_EXECUTABLE + " " + arguments + " 2>&1").c_str(), "r");
  REQUIRE(pipe != nullptr);
  Output output;
  for (int c = 0; (c = std::fgetc(pipe)) != EOF;) output.text += static_cast<char>(c);
  output.status = WEXITSTATUS(pclose(pipe));
  return output;
}

}  // namespace

TEST_CASE("bert --version and bert version say the same", "[unit]") {
  const Output flag = run_bert("--version"), verb = run_bert("version");
  CHECK(flag.status == kOk);
  CHECK(flag.text == verb.text);
  CHECK_THAT(flag.text, Contains("bert ") && Contains("LibTorch ") && !Contains("no such verb"));
}

TEST_CASE("bert names an unknown verb, and every exit code", "[unit]") {
  const Output wrong = run_bert("pretrian c.json");
  CHECK(wrong.status == kUsage);
  CHECK_THAT(wrong.text, Contains("no verb 'pretrian'; did you mean 'pretrain'?"));
  const std::string help = run_bert("--help").text;
  for (const char* code : {"0 ok", "1 slower", "2 usage", "65 ", "66 ", "69 ", "70 ", "71 ", "74 ", "75 ", "77 ", "78 ",
                           "128+n killed by signal n"}) {
    CHECK_THAT(help, Contains(code));
  }
}

TEST_CASE("bert benchmark refuses devices, precisions and sizes that it does not have", "[unit]") {
  const TemporaryDirectory directory;
  const auto refused = [](const std::string& arguments, const std::string& why) {
    CAPTURE(arguments);
    const Output output = run_bert("benchmark " + arguments);
    CHECK(output.status == kUsage);
    CHECK_THAT(output.text, Contains(why));
  };
  refused("step --device foo", "--device: foo not in {auto,cpu,cuda}");
  refused("step --precision foo", "--precision: foo not in {fp32");
  refused("step --threads 100000", "--threads: want a number from 1 to 1024, got 100000");
  refused("step --batch 1000000000", "--batch: want a number from 1 to 1048576, got 1000000000");
  refused("step --steps 0", "--steps: want a number from 1 to 1000000000, got 0");
  refused("step --fail-below nan --compare x", "--fail-below: want a number from 0.001 to 1000, got nan");
  refused("step --length 513", "--length 513: the model takes at most 512");
  refused("setp", "no action 'setp'; did you mean 'step'?");
  std::ofstream(directory.path("lengths")) << "12\n\n513\n";
  const Output lengths = run_bert("benchmark step --lengths " + directory.path("lengths"));
  CHECK(lengths.status == kBadData);
  CHECK_THAT(lengths.text, Contains("lengths: line 3: want one length from 1 to 512") && Contains("got 513"));
  const std::string help = run_bert("benchmark step --help").text;
  CHECK_THAT(
      help, Contains("--batch N ") && Contains("[default 8]") && Contains("[default 128]") && Contains("[default 10]"));
}

TEST_CASE("An unknown fail point is reported at the start", "[unit]") {
  const Output output = run_bert("pretrain none.json", "BERT_FAIL_POINT=train.stpe");
  CHECK(output.status == kUsage);
  CHECK_THAT(output.text, Contains("BERT_FAIL_POINT=train.stpe: want NAME") && Contains("train.step"));
}

}  // namespace bert
