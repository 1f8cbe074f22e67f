// The entry of libbert.so, which holds the verbs that need LibTorch. build/bert calls it.
#pragma once

/// Runs a verb; argv[0] is its name. "doctor" and "version" run the LibTorch part of these verbs. Returns an exit code
/// of app/system/exit_codes.h; never throws.
extern "C" int bert_torch_command(int argc, char** argv);
using BertTorchCommand = int (*)(int, char**);
inline constexpr const char* kBertTorchCommandSymbol = "bert_torch_command";
