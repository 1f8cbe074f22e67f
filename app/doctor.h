// `bert doctor` and `bert version`: work where LibTorch does not load.
#pragma once

#include <string>

namespace bert {

int doctor_command(int argc, char** argv);
int version_command(int argc, char** argv);

/// Opens libbert.so (beside this executable) once and looks a symbol up. nullptr and `error` on failure.
void* torch_library_symbol(const char* name, std::string& error);

}  // namespace bert
