// Functions of libbert.so for executables that start without LibTorch.
#pragma once

#include <cstddef>

#include "app/system/library_search.h"

namespace bert {

/// Loads libbert.so (once) and looks up a symbol. On failure returns nullptr and sets `problem`.
void* torch_library_symbol(const char* name, LoadProblem& problem);

/// Throws IoError if the current directory has been removed. MKL, which LibTorch loads, would end the process and blame
/// one of its own files.
void check_current_directory();

}  // namespace bert

/// Serves a c10d::TCPStore on a listening socket until the process is killed. Returns only on failure, with the reason
/// in `message`.
extern "C" void bert_serve_store(int listener, const char* host, int port, char* message, size_t size);
using BertServeStore = void (*)(int, const char*, int, char*, size_t);
inline constexpr const char* kBertServeStoreSymbol = "bert_serve_store";
