// main() of every test binary, and the helpers of testing.h.
#define CATCH_CONFIG_RUNNER
#if __has_include(<catch2/catch_session.hpp>)
#include <catch2/catch_session.hpp>
#endif
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <vector>

#include "tests/places.h"
#include "tests/support/test_program.h"
#include "tests/testing.h"

namespace bert::testing {
namespace {

std::map<std::string, void (*)()>& programs() {
  static std::map<std::string, void (*)()> all;
  return all;
}

/// Runs a program as the only test case of this process.
int run_program(const char* name, int argc, char** argv) {
  REGISTER_TEST_CASE(programs().at(name), name);
  std::vector<char*> arguments(argv, argv + argc);
  std::string filter = name;
  arguments.insert(arguments.begin() + 1, filter.data());
  return Catch::Session().run(static_cast<int>(arguments.size()), arguments.data());
}

}  // namespace

TestProgram::TestProgram(const char* program, void (*run)()) : name(program) {
  if (!programs().emplace(program, run).second) throw std::logic_error(std::string("two programs are ") + program);
}

void skipped(const std::string& reason) {
  std::printf("SKIPPED: %s\n", reason.c_str());
  std::fflush(stdout);
}

std::string shared_data() {
  const auto path = std::filesystem::path(BERT_SOURCE_DIR).parent_path() / "shared" / "data";
  return std::filesystem::is_directory(path) ? path.string() : std::string();
}

std::string golden(const std::string& name) {
  const auto path = std::filesystem::path(BERT_SOURCE_DIR) / "tests" / "golden" / name;
  if (!std::filesystem::exists(path)) throw std::runtime_error("no golden file " + path.string());
  return path.string();
}

TemporaryDirectory::TemporaryDirectory() {
  std::string name = (std::filesystem::temp_directory_path() / "bert-test-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make " + name);
  path_ = name;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace bert::testing

int main(int argc, char** argv) {
  const char* const program = std::getenv(bert::testing::TestProgram::kVariable);
  return program != nullptr ? bert::testing::run_program(program, argc, argv) : Catch::Session().run(argc, argv);
}
