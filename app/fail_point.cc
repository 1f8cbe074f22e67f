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
  char* end = nullptr;
  const long count = wanted[length] == ':' ? std::strtol(wanted + length + 1, &end, 10) : 1;
  const char* rank = std::getenv("RANK");
  if (end != nullptr && *end == '@' && (rank == nullptr || std::strcmp(end + 1, rank) != 0)) return;
  static long reached = 0;  // of the one name that the variable holds
  if (++reached == count) std::raise(SIGKILL);
}

}  // namespace bert
