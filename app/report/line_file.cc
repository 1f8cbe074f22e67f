#include "app/report/line_file.h"

#include <filesystem>
#include <system_error>

#include "data/io/io_errors.h"

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
  AtomicFile file(path);
  file.write(kept);
  file.commit();
  return path;
}

}  // namespace

LineFile::LineFile(const std::string& path, const Keep& keep) : file_(cut_back(path, keep, kept_lines_)) {}

void LineFile::write(std::string_view line) { file_.write(std::string(line) + "\n"); }

void make_directories(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw_io_error(path, "create the directory", error.value());
}

}  // namespace bert
