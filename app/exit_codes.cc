#include "app/exit_codes.h"

#include <cstdio>
#include <new>

#include "app/config.h"
#include "app/error_report.h"
#include "data/error.h"

namespace bert {

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
  } catch (const PeerError& error) {
    type = "PeerError";
    message = error.what();
    return kPeerFailure;
  } catch (const RefusedError& error) {
    type = "RefusedError";
    message = error.what();
    return kRefused;
  } catch (const std::bad_alloc&) {
    type = "OutOfMemory";
    message = "out of memory; use a smaller micro_batch_size or fewer workers";
    return kOutOfMemory;
  } catch (const std::exception& error) {
    type = "InternalError";
    message = error.what();
    return kInternal;
  }
}

int guarded(const std::string& name, const std::function<int()>& command) {
  try {
    return command();
  } catch (...) {
    std::string type, message;
    const int code = exit_code_of_current_exception(type, message);
    write_error_file(type, message, code);
    std::fprintf(stderr, "%s: %s\n", name.c_str(), message.c_str());
    return code;
  }
}

}  // namespace bert
