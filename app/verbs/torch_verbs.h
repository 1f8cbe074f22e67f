// What build/bert calls in libbert.so, the part that needs LibTorch.
#pragma once

/// Runs one verb; argv[0] is its name. Never throws: returns an exit code of exit_codes.h.
extern "C" int bert_torch_command(int argc, char** argv);
using BertTorchCommand = int (*)(int, char**);
inline constexpr const char* kBertTorchCommandSymbol = "bert_torch_command";
