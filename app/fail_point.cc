#include "app/fail_point.h"

#include <csignal>
#include <cstdlib>
#include <cstring>

namespace bert {

void fail_point(const char* name) {
  const char* wanted = std::getenv("BERT_FAIL_POINT");
  if (wanted == nullptr) return;
  const size_t length = std::strlen(name);
  if (std::strncmp(wanted, name, length) != 0 || (wanted[length] != '\0' && wanted[length] != ':')) return;
  static long reached = 0;  // of the one name that the variable holds
  const long count = wanted[length] == ':' ? std::strtol(wanted + length + 1, nullptr, 10) : 1;
  if (++reached == count) std::raise(SIGKILL);
}

}  // namespace bert
