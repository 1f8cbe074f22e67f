#include "app/system/machine/libbert.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

#include "app/system/environment.h"
#include "data/io/error.h"

namespace bert {
namespace {

/// Makes waiting threads of OpenMP sleep after some 0.2 ms. By default they spin for milliseconds, even if the thread
/// that they wait for has lost its core to another process; threads that sleep at once wake late. Two cores of a Xeon:
///   spins                                           1,000   3,000   10,000   300,000 (the default)
///   a sentence by all-MiniLM-L6-v2, bf16, idle      5.1     2.6     2.3      2.3 ms
///   the same, one core busy with another process    4.9     7.6     13       58 to 88 ms
/// GNU's OpenMP reads the variable once, when LibTorch is loaded.
void shorten_spinning() {
  if (std::getenv("OMP_WAIT_POLICY") == nullptr) setenv("GOMP_SPINCOUNT", "3000", /*overwrite=*/0);
}

/// Keeps LibTorch's profiler from reporting as an error that a machine has no GPU. It reads the variable once.
void quieten_profiler() { setenv("KINETO_LOG_LEVEL", "5", /*overwrite=*/0); }

/// Path of libbert.so: beside the executable in a build, in ../lib in an installation.
std::filesystem::path torch_library() {
  const std::filesystem::path here = std::filesystem::read_symlink("/proc/self/exe").parent_path(),
                              installed = here.parent_path() / "lib" / "libbert.so";
  return std::filesystem::exists(here / "libbert.so") || !std::filesystem::exists(installed) ? here / "libbert.so"
                                                                                             : installed;
}

}  // namespace

void* torch_library_symbol(const char* name, LoadProblem& problem) {
  shorten_spinning();
  quieten_profiler();
  const std::filesystem::path path = torch_library();
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  void* const symbol = library != nullptr ? dlsym(library, name) : nullptr;
  if (symbol == nullptr) problem = explain_load_failure(path, dlerror());
  return symbol;
}

void use_huge_pages() {
  std::string tunables = variable_or("GLIBC_TUNABLES", ""), choice;
  std::getline(std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled"), choice);
  if (choice.find("[madvise]") == std::string::npos || tunables.find("glibc.malloc.hugetlb") != std::string::npos)
    return;
  // (glibc before 2.39 ends the variable at its first colon when it has read it.)
  tunables = "glibc.malloc.hugetlb=1" + (tunables.empty() ? "" : ":" + tunables);
  std::vector<std::string> arguments;
  std::ifstream file("/proc/self/cmdline");
  for (std::string argument; std::getline(file, argument, '\0');) arguments.push_back(argument);
  if (arguments.empty()) return;
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  setenv("GLIBC_TUNABLES", tunables.c_str(), /*overwrite=*/1);
  // (By its path, from which Linux takes the name that ps and pkill know.)
  std::error_code error;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe", error);
  execv(program.c_str(), argv.data());  // where it fails, the program goes on with small pages
}

void check_current_directory() {
  std::error_code error;
  static_cast<void>(std::filesystem::current_path(error));
  if (error) throw IoError("the current directory is gone (" + error.message() + "): change to one that is there");
}

}  // namespace bert
