// Runs bert_mutations (tests/fuzz/mutations.cc) with few mutations in every test run. Its options allow more.
#include <sys/wait.h>

#include <cstdio>
#include <string>

#include "tests/places.h"
#include "tests/testing.h"

namespace bert {
namespace {

// Mutations of each format. A process takes ten times as long under a sanitizer.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kCount = 80;
#else
constexpr int kCount = 200;
#endif

struct Report {
  int code = 0;
  long mutations = 0, crashes = 0, silent = 0, timeouts = 0;
  std::string text;
};

/// The last line of the program of this name in the build directory, and its whole output with standard error.
Report report_of(const std::string& program) {
  Report report;
  FILE* output =
      popen(("'" BERT_BINARY_DIR "/" + program + "' --count " + std::to_string(kCount) + " 2>&1").c_str(), "r");
  REQUIRE(output != nullptr);
  for (int c = 0; (c = std::fgetc(output)) != EOF;) report.text += static_cast<char>(c);
  report.code = WEXITSTATUS(pclose(output));
  const size_t end = report.text.rfind('\n', report.text.size() - 2);
  REQUIRE(end != std::string::npos);
  std::sscanf(report.text.c_str() + end + 1, "%ld mutations, %ld crashes, %ld silent, %ld timeouts", &report.mutations,
              &report.crashes, &report.silent, &report.timeouts);
  return report;
}

}  // namespace

TEST_CASE("No damage to what is read crashes, hangs, or goes past a checksum", "[unit]") {
  const Report report = report_of("bert_mutations");
  INFO(report.text);
  CHECK(report.code == 0);
  CHECK(report.mutations >= 10 * kCount);
  CHECK(report.crashes == 0);
  CHECK(report.silent == 0);
  CHECK(report.timeouts == 0);
}

TEST_CASE("Without checksums damage is silent, and still crashes nothing", "[unit]") {
  const Report report = report_of("bert_mutations_without_checksums");
  INFO(report.text);
  CHECK(report.code == 1);
  CHECK(report.crashes == 0);
  CHECK(report.silent > 5);
  CHECK(report.timeouts == 0);
  CHECK(report.text.find("shard, mutation ") != std::string::npos);
  CHECK(report.text.find("checkpoint, mutation ") != std::string::npos);
  CHECK(report.text.find("torchscript, mutation ") != std::string::npos);
}

}  // namespace bert
