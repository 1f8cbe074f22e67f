// Shared libraries of this program that are opened when they are first needed.
#pragma once

#include <filesystem>

namespace bert {

/// Path of a plugin, such as "libbert_sentencepiece.so": beside the program or libbert.so, in ../lib of an installed
/// program, or in .. of a test. The file may be absent.
std::filesystem::path plugin_path(const char* name);

/// Opens a plugin with a scope of its own, and returns the address of its one symbol. It stays open. Throws IoError if
/// that fails, with `advice` at the end.
void* open_plugin(const char* name, const char* symbol, const char* advice);

}  // namespace bert
