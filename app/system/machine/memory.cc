#include "app/system/machine/memory.h"

#include <malloc.h>

#include <algorithm>
#include <climits>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>

namespace bert {
namespace {

namespace fs = std::filesystem;

/// The number in a file; empty for "max" and for an absent file.
std::optional<int64_t> number_in(const fs::path& path) {
  std::ifstream file(path);
  int64_t number = 0;
  return file >> number ? std::optional(number) : std::nullopt;
}

/// The number after `name` in a file of lines "NAME NUMBER".
int64_t field_in(const fs::path& path, std::string_view name) {
  std::ifstream file(path);
  std::string word;
  for (int64_t number = 0; file >> word;) {
    if (word != name) {
      file.ignore(1 << 10, '\n');
    } else if (file >> number) {
      return number;
    }
  }
  return -1;
}

struct MemoryFiles {
  const char *limit, *usage, *inactive;  // names in version 2, or in version 1
};

/// The bytes that the limit of one cgroup leaves.
int64_t left_in(const fs::path& directory, const MemoryFiles& names) {
  const auto limit = number_in(directory / names.limit), usage = number_in(directory / names.usage);
  if (!limit || !usage) return INT64_MAX;
  const int64_t cache = std::max<int64_t>(0, field_in(directory / "memory.stat", names.inactive));
  return std::max<int64_t>(0, *limit - (*usage - cache));
}

}  // namespace

int64_t available_memory(const std::string& root) {
  const fs::path machine(root);
  const int64_t kilobytes = field_in(machine / "proc/meminfo", "MemAvailable:");
  int64_t result = kilobytes < 0 ? INT64_MAX : kilobytes * 1024;
  constexpr MemoryFiles kUnified = {"memory.max", "memory.current", "inactive_file"};
  constexpr MemoryFiles kOld = {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"};
  std::ifstream file(machine / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // "0::/path" or "4:memory:/path"
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (!controllers.empty() && controllers != "memory") continue;
    const fs::path top = machine / "sys/fs/cgroup" / controllers;
    for (fs::path relative = fs::path(line.substr(second + 1)).relative_path();; relative = relative.parent_path()) {
      result = std::min(result, left_in(top / relative, controllers.empty() ? kUnified : kOld));
      if (relative.empty()) break;
    }
  }
  return result;
}

void keep_large_blocks() {
  constexpr int kHeapGrowth = 64 << 20;  // bytes
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
  mallopt(M_TOP_PAD, kHeapGrowth);
}

void map_large_blocks() {
  constexpr int kLarge = 1 << 20;  // bytes; a fixed number keeps glibc from raising it to the size of a freed block
  mallopt(M_MMAP_THRESHOLD, kLarge);
}

}  // namespace bert
