// Exit codes of bert and bertrun, and the one place where exceptions become them.
#pragma once

#include <functional>
#include <string>

namespace bert {

enum ExitCode : int {
  kOk = 0,
  kSlower = 1,  // bert benchmark --fail-below, and nothing else
  kUsage = 2,
  kBadData = 65,
  kInputMissing = 66,  // also: bert doctor found something bad
  kPeerFailure = 69,
  kInternal = 70,
  kOutOfMemory = 71,
  kIo = 74,
  kPreempted = 75,
  kRefused = 77,
  kBadConfiguration = 78,
};

/// In a catch block: the exit code for what was thrown, the name of its type, and its message.
int exit_code_of_current_exception(std::string& type, std::string& message);

/// Throws IoError when anything that was printed to standard output is lost.
void flush_standard_output();

/// Runs `command` and what it printed to its end, prints "<name>: <message>" for what is thrown, writes torch's error
/// file where there is one (app/system/error_report.h), and returns the exit code. A command that ended with 0 or 1 but whose
/// standard output could not be written ends with kIo.
int guarded(const std::string& name, const std::function<int()>& command);

}  // namespace bert
