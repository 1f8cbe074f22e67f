#include "app/system/fail_point.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "app/system/errors.h"

namespace bert {
namespace {

/// True if `text` is all digits and not empty.
bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

void fail_point_named(const char* name) {
  const char* wanted = std::getenv("BERT_FAIL_POINT");
  if (wanted == nullptr) return;
  const size_t length = std::strlen(name);
  if (std::strncmp(wanted, name, length) != 0 || (wanted[length] != '\0' && wanted[length] != ':')) return;
  char* end = nullptr;
  const long count = wanted[length] == ':' ? std::strtol(wanted + length + 1, &end, 10) : 1;
  const char* rank = std::getenv("RANK");
  if (end != nullptr && *end == '@' && (rank == nullptr || std::strcmp(end + 1, rank) != 0)) return;
  static long reached = 0;  // visits of the one point that BERT_FAIL_POINT names
  if (++reached == count) std::raise(SIGKILL);
}

}  // namespace

void fail_point(FailPoint point) { fail_point_named(kFailPointNames[static_cast<size_t>(point)]); }

void fail_point(Phase phase) { fail_point_named(name_of(phase)); }

void check_fail_point() {
  const char* wanted = std::getenv("BERT_FAIL_POINT");
  if (wanted == nullptr) return;
  const std::string_view value = wanted;
  const size_t colon = value.find(':'), at = value.find('@', std::min(colon, value.size()));
  const std::string_view name = value.substr(0, colon);
  const bool counted = colon == std::string_view::npos || is_number(value.substr(colon + 1, at - colon - 1));
  const bool ranked = at == std::string_view::npos || is_number(value.substr(at + 1));
  std::vector<std::string_view> names(kFailPointNames.begin(), kFailPointNames.end());
  names.insert(names.end(), kPhaseNames.begin(), kPhaseNames.end());
  if (counted && ranked && std::ranges::find(names, name) != names.end()) return;
  std::string known;
  for (const std::string_view each : names) known += (known.empty() ? "" : ", ") + std::string(each);
  throw UsageError("BERT_FAIL_POINT=" + std::string(value) +
                   ": want NAME, NAME:COUNT or NAME:COUNT@RANK with a NAME of " + known);
}

}  // namespace bert
