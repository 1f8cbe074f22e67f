#include "data/io/plugin.h"

#include <dlfcn.h>
#include <link.h>

#include <string>

#include "data/io/error.h"

namespace bert {

// RUNPATH does not serve here: under AddressSanitizer the call of dlopen is the sanitizer's, with another RUNPATH.
std::filesystem::path plugin_path(const char* name) {
  Dl_info unused;
  link_map* map = nullptr;
  const bool found = dladdr1(reinterpret_cast<const void*>(&plugin_path), &unused, reinterpret_cast<void**>(&map),
                             RTLD_DL_LINKMAP) != 0;
  const bool in_library = found && map->l_name[0] != '\0';  // the program itself has no name
  const std::filesystem::path holder = in_library ? map->l_name : std::filesystem::read_symlink("/proc/self/exe"),
                              here = std::filesystem::absolute(holder).parent_path();
  for (const std::filesystem::path& place : {here.parent_path() / "lib", here.parent_path()}) {
    if (!std::filesystem::exists(here / name) && std::filesystem::exists(place / name)) return place / name;
  }
  return here / name;
}

void* open_plugin(const char* name, const char* symbol, const char* advice) {
  int flags = RTLD_NOW | RTLD_LOCAL;
  // RTLD_DEEPBIND: a plugin's libraries use their own copies of templates, not LibTorch's. Programs under a sanitizer must
  // not use this flag, because their runtime has to replace the allocator everywhere. All sanitizers export this function.
  if (dlsym(RTLD_DEFAULT, "__sanitizer_print_stack_trace") == nullptr) flags |= RTLD_DEEPBIND;
  void* const library = dlopen(plugin_path(name).c_str(), flags);
  void* const address = library != nullptr ? dlsym(library, symbol) : nullptr;
  if (address == nullptr) throw IoError("cannot load " + std::string(name) + ": " + dlerror() + "; " + advice);
  return address;
}

}  // namespace bert
