#include "app/system/machine/host.h"

#include <unistd.h>

#include <array>
#include <chrono>

namespace bert {

double seconds_since_epoch() {
  using std::chrono::milliseconds;
  return static_cast<double>(
             std::chrono::duration_cast<milliseconds>(std::chrono::system_clock::now().time_since_epoch()).count()) /
         1000;
}

std::string machine_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

}  // namespace bert
