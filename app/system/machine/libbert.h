// Functions of libbert.so for executables that start without LibTorch.
#pragma once

#include "app/system/machine/library_search.h"

namespace bert {

/// Loads libbert.so (once) and looks up a symbol. On failure returns nullptr and sets `problem`.
void* torch_library_symbol(const char* name, LoadProblem& problem);

/// Throws IoError if the current directory has been removed. MKL, which LibTorch loads, would end the process and blame
/// one of its own files.
void check_current_directory();

}  // namespace bert
