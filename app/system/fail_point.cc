#include "app/system/fail_point.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "app/system/errors.h"

namespace bert {
namespace {

constexpr std::array<std::string_view, 17> kNames = {"checkpoint.write",
                                                     "checkpoint.fsync",
                                                     "checkpoint.manifest",
                                                     "checkpoint.rename",
                                                     "checkpoint.renamed",
                                                     "checkpoint.latest",
                                                     "checkpoint.prune",
                                                     "train.step",
                                                     "starting",
                                                     "joining",
                                                     "reading data",
                                                     "forward",
                                                     "backward",
                                                     "reduction of gradients",
                                                     "update",
                                                     "evaluation",
                                                     "checkpoint"};

/// Whether `text` is all digits and not empty.
bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

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

void check_fail_point() {
  const char* wanted = std::getenv("BERT_FAIL_POINT");
  if (wanted == nullptr) return;
  const std::string_view value = wanted;
  const size_t colon = value.find(':'), at = value.find('@', std::min(colon, value.size()));
  const std::string_view name = value.substr(0, colon);
  const bool counted = colon == std::string_view::npos || is_number(value.substr(colon + 1, at - colon - 1));
  const bool ranked = at == std::string_view::npos || is_number(value.substr(at + 1));
  if (counted && ranked && std::find(kNames.begin(), kNames.end(), name) != kNames.end()) return;
  std::string known;
  for (const std::string_view each : kNames) known += (known.empty() ? "" : ", ") + std::string(each);
  throw UsageError("BERT_FAIL_POINT=" + std::string(value) +
                   ": want NAME, NAME:COUNT or NAME:COUNT@RANK with a NAME of " + known);
}

}  // namespace bert
