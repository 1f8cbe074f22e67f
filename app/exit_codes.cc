#include "app/exit_codes.h"

#include <cstdio>
#include <new>

#include "app/config.h"
#include "data/error.h"

namespace bert {

int exit_code_of_current_exception(std::string& message) {
  try {
    throw;
  } catch (const UsageError& error) {
    message = error.what();
    return kUsage;
  } catch (const ConfigError& error) {
    message = error.what();
    return kBadConfiguration;
  } catch (const DataError& error) {
    message = error.what();
    return kBadData;
  } catch (const InputMissing& error) {
    message = error.what();
    return kInputMissing;
  } catch (const IoError& error) {
    message = error.what();
    return kIo;
  } catch (const PeerError& error) {
    message = error.what();
    return kPeerFailure;
  } catch (const RefusedError& error) {
    message = error.what();
    return kRefused;
  } catch (const std::bad_alloc&) {
    message = "out of memory; use a smaller micro_batch_size or fewer workers";
    return kOutOfMemory;
  } catch (const std::exception& error) {
    message = error.what();
    return kInternal;
  }
}

int guarded(const std::string& name, const std::function<int()>& command) {
  try {
    return command();
  } catch (...) {
    std::string message;
    const int code = exit_code_of_current_exception(message);
    std::fprintf(stderr, "%s: %s\n", name.c_str(), message.c_str());
    return code;
  }
}

}  // namespace bert
