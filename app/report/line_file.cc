#include "app/report/line_file.h"

#include <filesystem>

namespace bert {
namespace {

/// Drops lines from the file `path`: those that LineFile drops. Sets `any` if lines stay. Returns `path`.
const std::string& cut_back(const std::string& path, const LineFile::Keep& keep, bool& any) {
  if (!std::filesystem::exists(path)) return path;
  const std::string old = read_file(path);
  std::string kept;
  for (size_t begin = 0, end; (end = old.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string_view line = std::string_view(old).substr(begin, end - begin);
    if (keep(line)) kept.append(line).append("\n");
  }
  any = !kept.empty();
  if (kept == old) return path;
  write_file(path, kept);
  return path;
}

}  // namespace

LineFile::LineFile(const std::string& path, const Keep& keep) : file_(cut_back(path, keep, kept_lines_)) {}

void LineFile::write(std::string_view line) { file_.write(std::string(line) + "\n"); }

}  // namespace bert
