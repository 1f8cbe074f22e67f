// The command lines of both programs, for the verbs that write completion and man pages.
#pragma once

#include "app/cli/description.h"

namespace bert {

inline constexpr const char* kProgramText = "Pre-trains BERT from raw text, fine-tunes it, and answers with it.";
inline constexpr const char* kProgramExample = "bert pretrain configs/quickstart.json max_steps=100";
inline constexpr const char* kExitCodes =
    "Exit codes: 0 ok; 1 slower than --fail-below; 2 usage; 65 bad data; 66 input or LibTorch missing, or BAD in bert "
    "doctor; 69 peer failure; 70 internal; 71 out of memory; 74 I/O or disk full; 75 preempted with a checkpoint "
    "saved, "
    "run again; 77 refused; 78 bad configuration; 128+n killed by signal n.";

struct Programs {
  CommandDescription bert, bertrun;  // the actions of `bert` are its verbs
};

/// Describes both programs. Throws InputMissing if LibTorch cannot be loaded: libbert.so has some of the verbs.
Programs describe_programs();

}  // namespace bert
