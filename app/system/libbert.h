// What executables that load without LibTorch call in libbert.so.
#pragma once

#include <cstddef>
#include <string>

namespace bert {

/// Opens libbert.so (beside this executable) once and looks a symbol up. nullptr and `error` on failure.
void* torch_library_symbol(const char* name, std::string& error);

/// Throws IoError where the current directory is gone: MKL, which LibTorch loads, ends the process then, and names a
/// file of its own as the cause.
void check_current_directory();

}  // namespace bert

/// Serves a c10d::TCPStore on a listening socket until the process is killed. Returns on failure only, with the reason
/// in `message`.
extern "C" void bert_serve_store(int listener, const char* host, int port, char* message, size_t size);
using BertServeStore = void (*)(int, const char*, int, char*, size_t);
inline constexpr const char* kBertServeStoreSymbol = "bert_serve_store";
