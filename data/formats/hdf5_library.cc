#include "data/formats/hdf5_library.h"

namespace bert::hdf5 {
namespace {

std::mutex& library_mutex() {
  static std::mutex mutex;
  return mutex;
}

/// Takes the message of an entry of the error stack.
herr_t take_message(unsigned /*depth*/, const H5E_error2_t* entry, void* message) {
  if (entry->desc != nullptr && *entry->desc != '\0') *static_cast<std::string*>(message) = entry->desc;
  return 1;  // the innermost entry is enough
}

}  // namespace

void fail(const std::string& what) {
  std::string message = "no reason given";
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_message, &message);
  throw Error(what + ": " + message);
}

Entered::Entered() : lock_(library_mutex()) {
  // At the end of the process the library would flush files that it could not write, and crash. Every handle is closed
  // before. The call must be the first of all.
  static const herr_t kNothingAtExit = H5dont_atexit();
  static_cast<void>(kNothingAtExit);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

Handle file_access() {
  Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "properties");
  check(H5Pset_file_locking(access.get(), false, true), "no locks");
  return access;
}

}  // namespace bert::hdf5
