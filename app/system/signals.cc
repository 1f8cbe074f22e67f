#include "app/system/signals.h"

#include <cstring>

namespace bert {

std::string signal_name(int number) {
  const char* name = sigabbrev_np(number);
  return name != nullptr ? "SIG" + std::string(name) : "signal " + std::to_string(number);
}

}  // namespace bert
