#include "app/system/exit_codes.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <new>
#include <system_error>
#include <utility>

#include "app/system/console.h"
#include "app/system/error_report.h"
#include "app/system/errors.h"
#include "app/system/resource_limits.h"
#include "app/system/stop_signals.h"
#include "data/io/error.h"

namespace bert {
namespace {

constexpr const char* kOutOfMemoryAdvice =
    "A run needs less with a lower micro_batch_size, a smaller model or gradient_checkpointing=true; the making of "
    "examples with less text at once.";

/// The message with the limits that may be its cause.
std::string with_limits(const std::string& message) {
  const std::string limits = resource_limits();
  return limits.empty() ? message : message + " " + limits;
}

std::string& program() {
  static std::string name;
  return name;
}

}  // namespace

void set_program(std::string name) { program() = std::move(name); }

void flush_standard_output() {
  // std::cout writes through stdout, so flushing stdout shows the errors of both.
  errno = 0;
  std::cout.flush();
  const bool flushed = std::fflush(stdout) == 0;
  if (flushed && std::ferror(stdout) == 0 && std::cout) return;
  throw IoError(std::string("standard output: cannot write") +
                (errno != 0 ? std::string(": ") + std::strerror(errno) : "") + "; what was printed is not whole");
}

int exit_code_of_current_exception(std::string& type, std::string& message) {
  try {
    throw;
  } catch (const UsageError& error) {
    type = "UsageError";
    message = error.what();
    return kUsage;
  } catch (const ConfigError& error) {
    type = "ConfigError";
    message = error.what();
    return kBadConfiguration;
  } catch (const DataError& error) {
    type = "DataError";
    message = error.what();
    return kBadData;
  } catch (const InputMissing& error) {
    type = "InputMissing";
    message = error.what();
    return kInputMissing;
  } catch (const IoError& error) {
    type = "IoError";
    message = error.what();
    return kIo;
  } catch (const NetworkError& error) {
    type = "NetworkError";
    message = error.what();
    return kPeerFailure;
  } catch (const PeerError& error) {
    type = "PeerError";
    message = error.what();
    return kPeerFailure;
  } catch (const Preempted& error) {
    type = "Preempted";
    message = error.what();
    return kPreempted;
  } catch (const RefusedError& error) {
    type = "RefusedError";
    message = error.what();
    return kRefused;
  } catch (const OutOfMemory& error) {
    type = "OutOfMemory";
    message = with_limits(std::string(error.what()) + ". " + kOutOfMemoryAdvice);
    return kOutOfMemory;
  } catch (const std::bad_alloc&) {
    type = "OutOfMemory";
    message = with_limits(std::string("out of memory. ") + kOutOfMemoryAdvice);
    return kOutOfMemory;
  } catch (const ResourceError& error) {
    type = "ResourceError";
    message = with_limits(std::string(error.what()) + ".");
    return kOutOfMemory;
  } catch (const std::system_error& error) {
    // std::thread reports so that the system gives no more threads.
    const bool limited = error.code() == std::errc::resource_unavailable_try_again;
    type = limited ? "ResourceError" : "IoError";
    message = limited ? with_limits(std::string("cannot start a thread: ") + error.what() + ".") : error.what();
    return limited ? kOutOfMemory : kIo;
  } catch (const std::exception& error) {
    type = "InternalError";
    message = error.what();
    return kInternal;
  }
}

int guarded(const std::string& name, const std::function<int()>& command) {
  set_program(name);
  try {
    const int code = command();
    if (code == kOk || code == kSlower) flush_standard_output();
    return code;
  } catch (...) {
    std::string type, message;
    const int code = exit_code_of_current_exception(type, message);
    write_error_file(type, message, code);
    std::fprintf(stderr, "%s: %s\n", program().c_str(), printable(message, "\t\n").c_str());
    return code;
  }
}

}  // namespace bert
