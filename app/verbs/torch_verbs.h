// The entry of libbert.so, which holds the verbs that need LibTorch. build/bert calls it.
#pragma once

/// Runs a verb; argv[0] is its name. "data", "doctor" and "evaluate" run the LibTorch part of these verbs. Returns a code
/// of app/system/exit_codes.h; never throws.
extern "C" int bert_torch_command(int argc, char** argv);
using BertTorchCommand = int (*)(int, char**);
inline constexpr const char* kBertTorchCommandSymbol = "bert_torch_command";

namespace bert {
struct CommandDescription;  // app/cli/description.h
}  // namespace bert

/// Describes the command line of a verb; that of an unknown verb stays empty.
extern "C" void bert_torch_describe(const char* verb, bert::CommandDescription* description);
using BertTorchDescribe = void (*)(const char*, bert::CommandDescription*);
inline constexpr const char* kBertTorchDescribeSymbol = "bert_torch_describe";

namespace bert {

/// The description of the command line of a verb of libbert.so, which is loaded for it. Throws InputMissing if LibTorch
/// cannot be loaded.
CommandDescription describe_in_torch_library(const char* verb);

/// Runs the verb argv[0] of libbert.so, which is loaded for it. Returns its exit code; kInputMissing, after a message, if
/// LibTorch cannot be loaded.
int run_in_torch_library(int argc, char** argv);

}  // namespace bert
