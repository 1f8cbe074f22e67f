// The reason for which a shared library does not load.
#pragma once

#include <filesystem>
#include <string>

namespace bert {

/// The remedy for a LibTorch that is absent or damaged.
inline constexpr const char* kInstallAgain =
    "run app/setup.sh again (for an installation with --prefix); it installs LibTorch and rebuilds";

struct LoadProblem {
  std::string reason, remedy;
};

/// Explains the failure of dlopen(library), whose message is `dlerror`: looks for the missing library in the RUNPATH of
/// the one that needs it, as the loader does, and names the directory that is absent or closed to this user. Where this
/// finds nothing, the reason is `dlerror`.
LoadProblem explain_load_failure(const std::filesystem::path& library, const std::string& dlerror);

}  // namespace bert
