// Functions of libbert.so for executables that start without LibTorch.
#pragma once

#include "app/system/machine/library_search.h"

namespace bert {

/// Loads libbert.so (once) and looks up a symbol. On failure returns nullptr and sets `problem`.
void* torch_library_symbol(const char* name, LoadProblem& problem);

/// Note [Huge pages]
/// Pages of 2 MB need fewer entries in the processor's table of addresses than those of 4 KB. Most distributions let
/// Linux give them to memory that a program asks them for, and glibc asks only if a variable says so when the program
/// starts. BERT-base on two threads of a Xeon with AMX, medians in turns, with and without huge pages: a step of 8 x
/// 128 in bf16 843 and 951 ms, answers of 8 x 128 in fp32 644 and 783 ms, in bf16 175 and 229 ms.

/// Starts this process anew with glibc.malloc.hugetlb=1 in GLIBC_TUNABLES, if that changes its pages. The arguments,
/// the process id and blocked signals stay. Does nothing if the variable has a choice already.
void use_huge_pages();

/// Throws IoError if the current directory has been removed. MKL, which LibTorch loads, would end the process and blame
/// one of its own files.
void check_current_directory();

}  // namespace bert
