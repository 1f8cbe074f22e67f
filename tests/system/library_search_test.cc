#include "app/system/machine/library_search.h"

#include <filesystem>
#include <fstream>

#include "tests/testing.h"

namespace bert {
namespace {

using testing::Contains;
using testing::TemporaryDirectory;

constexpr const char* kNotFound = ": cannot open shared object file: No such file or directory";

TEST_CASE("The reason for a library that does not load", "[unit][system]") {
  const TemporaryDirectory directory;
  // This program needs libstdc++.so.6 and has a RUNPATH. Directories of a RUNPATH that lack a library are named.
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe");
  const LoadProblem needed = explain_load_failure(program, std::string("libstdc++.so.6") + kNotFound);
  CHECK_THAT(needed.reason, Contains(program.filename().string() + " needs libstdc++.so.6, and there is no /"));
  CHECK_THAT(needed.remedy, Contains("run app/setup.sh again"));

  CHECK(explain_load_failure(directory.path("lib/libbert.so"), "any").reason == "there is no " + directory.path("lib"));
  std::filesystem::create_directory(directory.path("lib"));
  CHECK(explain_load_failure(directory.path("lib/libbert.so"), "any").reason ==
        "there is no " + directory.path("lib/libbert.so"));

  // A link is followed to the directory that is gone.
  std::filesystem::create_symlink("../gone/bert", directory.path("lib/link"));
  CHECK(explain_load_failure(directory.path("lib/link/libbert.so"), "any").reason ==
        "there is no " + directory.path("gone"));
  std::filesystem::create_symlink("loop", directory.path("lib/loop"));
  CHECK_THAT(explain_load_failure(directory.path("lib/loop/libbert.so"), "any").reason,
             Contains("Too many levels of symbolic links"));

  // Another failure than a missing library is reported in the loader's words.
  std::ofstream(directory.path("text.so")) << "no ELF";
  for (const std::string& library : {program.string(), directory.path("text.so")}) {
    CHECK(explain_load_failure(library, "undefined symbol: f").reason == "undefined symbol: f");
    CHECK(explain_load_failure(library, std::string("libabsent.so") + kNotFound).reason ==
          std::string("libabsent.so") + kNotFound);
  }
}

}  // namespace
}  // namespace bert
