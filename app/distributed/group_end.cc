#include "app/distributed/group_end.h"

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <thread>

#include "app/system/error_report.h"
#include "app/system/exit_codes.h"
#include "app/system/torch_errors.h"

namespace bert {
namespace {

/// Ends the process after `longest`, if it has not ended by itself.
void end_at_the_latest(std::chrono::milliseconds longest, int code, const std::string& message) {
  std::thread([=] {
    std::this_thread::sleep_for(longest);
    std::fprintf(stderr, "bert: %s\nbert: the end of this process took too long, and was cut short\n", message.c_str());
    std::fflush(stderr);
    std::_Exit(code);
  }).detach();
}

}  // namespace

int with_orderly_end(const ProcessGroupPtr& group, const std::function<int()>& command,
                     std::chrono::milliseconds longest) {
  try {
    const int code = with_plain_errors(command);
    if (group) group->shutdown();
    return code;
  } catch (...) {
    std::string type, message;
    const int code = exit_code_of_current_exception(type, message);
    write_error_file(type, message, code);
    if (group) {
      end_at_the_latest(longest, code, message);
      try {
        group->abort();
      } catch (const std::exception&) {  // the exception that ends the run is the one to report
      }
    }
    throw;
  }
}

}  // namespace bert
