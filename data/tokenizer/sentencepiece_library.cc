#include "data/tokenizer/sentencepiece_library.h"

#include <dlfcn.h>
#include <link.h>

#include <filesystem>

#include "data/io/error.h"

namespace bert {
namespace {

constexpr const char* kName = "libbert_sentencepiece.so";

/// Path of the library. It is beside libbert.so, in ../lib of an installed program, or in .. of a test. RUNPATH does not
/// serve here: under AddressSanitizer the call of dlopen is the sanitizer's, with another RUNPATH.
std::filesystem::path library_path() {
  Dl_info unused;
  link_map* map = nullptr;
  const bool found = dladdr1(kName, &unused, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) != 0;
  const bool in_library = found && map->l_name[0] != '\0';  // the program itself has no name
  const std::filesystem::path holder = in_library ? map->l_name : std::filesystem::read_symlink("/proc/self/exe"),
                              here = std::filesystem::absolute(holder).parent_path();
  for (const std::filesystem::path& place : {here.parent_path() / "lib", here.parent_path()}) {
    if (!std::filesystem::exists(here / kName) && std::filesystem::exists(place / kName)) return place / kName;
  }
  return here / kName;
}

const SentencePieceLibrary* open_library() {
  int flags = RTLD_NOW | RTLD_LOCAL;
  // RTLD_DEEPBIND: sentencepiece uses its own copies of templates, not LibTorch's. Programs under a sanitizer must not
  // use this flag, because their runtime has to replace the allocator everywhere. All sanitizers export this function.
  if (dlsym(RTLD_DEFAULT, "__sanitizer_print_stack_trace") == nullptr) flags |= RTLD_DEEPBIND;
  const std::filesystem::path path = library_path();
  void* const library = dlopen(path.c_str(), flags);
  void* const symbol = library != nullptr ? dlsym(library, "bert_sentencepiece_library") : nullptr;
  if (symbol == nullptr) {
    throw IoError("cannot load sentencepiece: " + std::string(dlerror()) +
                  "; build or install bert again, with all of its libraries");
  }
  return reinterpret_cast<decltype(&bert_sentencepiece_library)>(symbol)();
}

}  // namespace

const SentencePieceLibrary& sentencepiece_library() {
  static const SentencePieceLibrary* const library = open_library();
  return *library;
}

}  // namespace bert
