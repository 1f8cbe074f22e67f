#include "app/system/machine/libbert.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "data/io/error.h"

namespace bert {
namespace {

/// Makes waiting threads of OpenMP sleep soon. By default they spin for milliseconds, even if the thread that they wait
/// for has lost its core to another process: beside one busy process a step of the quick start took 8 times as long.
/// GNU's OpenMP reads the variable once, when LibTorch is loaded.
void shorten_spinning() {
  if (std::getenv("OMP_WAIT_POLICY") == nullptr) setenv("GOMP_SPINCOUNT", "1000", /*overwrite=*/0);
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

void check_current_directory() {
  std::error_code error;
  static_cast<void>(std::filesystem::current_path(error));
  if (error) throw IoError("the current directory is gone (" + error.message() + "): change to one that is there");
}

}  // namespace bert
