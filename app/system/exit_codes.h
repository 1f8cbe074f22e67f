// Exit codes of bert and bertrun, and the only place where exceptions become exit codes.
#pragma once

#include <functional>
#include <string>

namespace bert {

enum ExitCode : int {
  kOk = 0,
  kSlower = 1,  // only for bert benchmark --fail-below
  kUsage = 2,
  kBadData = 65,
  kInputMissing = 66,  // an input, or LibTorch, is absent or cannot be loaded; bert doctor found something bad
  kPeerFailure = 69,
  kInternal = 70,
  kOutOfMemory = 71,  // or at a limit of address space, threads or processes
  kIo = 74,
  kPreempted = 75,
  kRefused = 77,
  kBadConfiguration = 78,
};

/// To be called in a catch block. Returns the exit code for the current exception, and sets its type name and its
/// message.
int exit_code_of_current_exception(std::string& type, std::string& message);

/// Throws IoError if output to standard output was lost.
void flush_standard_output();

/// Gives the command that guarded() runs its full name, such as "bert data create", for the message of an exception.
void set_program(std::string name);

/// Runs `command` and flushes its output. For an exception, prints "<name>: <message>", or with the name that
/// set_program() gave meanwhile, and writes torch's error file,
/// if there is one (app/system/error_report.h). Returns the exit code. If the command returned 0 or 1 but its standard
/// output could not be written, returns kIo.
int guarded(const std::string& name, const std::function<int()>& command);

}  // namespace bert
