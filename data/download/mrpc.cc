#include "data/download/mrpc.h"

#include <fmt/format.h>

#include <filesystem>
#include <set>
#include <sstream>
#include <utility>

#include "data/io/error.h"
#include "data/io/files.h"
#include "data/io/text_parts.h"

namespace bert {
namespace {

constexpr size_t kColumns = 5;  // label, two ids, two sentences

/// The lines of a text, without their ends. Both "\n" and "\r\n" end a line.
std::vector<std::string> lines_of(const std::string& path) {
  std::istringstream text(read_file(path));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) {
    if (line.ends_with('\r')) line.pop_back();
    lines.push_back(line);
  }
  if (lines.empty()) throw DataError(path + ": the file is empty");
  return lines;
}

/// The columns of a row, which `line` numbers from 1.
std::vector<std::string> columns_of(const std::string& row, size_t count, const std::string& path, size_t line) {
  std::vector<std::string> columns = split(row, '\t');
  if (columns.size() != count)
    throw DataError(fmt::format("{}:{}: {} columns, expected {}", path, line, columns.size(), count));
  return columns;
}

}  // namespace

std::vector<std::string> split_mrpc(const std::string& directory) {
  const std::filesystem::path base = directory;
  const std::string train_text = (base / "msr_paraphrase_train.txt").string(),
                    test_text = (base / "msr_paraphrase_test.txt").string(), ids = (base / "mrpc_dev_ids.tsv").string();
  std::set<std::pair<std::string, std::string>> held_out;
  const std::vector<std::string> pairs = lines_of(ids);
  for (size_t i = 0; i < pairs.size(); ++i) {
    const std::vector<std::string> pair = columns_of(pairs[i], 2, ids, i + 1);
    held_out.emplace(pair[0], pair[1]);
  }
  AtomicFile train((base / "train.tsv").string()), dev((base / "dev.tsv").string()), test((base / "test.tsv").string());
  const std::vector<std::string> rows = lines_of(train_text);
  train.write(rows[0] + "\n");
  dev.write(rows[0] + "\n");
  size_t found = 0;
  for (size_t i = 1; i < rows.size(); ++i) {
    const std::vector<std::string> row = columns_of(rows[i], kColumns, train_text, i + 1);
    const bool is_held_out = held_out.contains({row[1], row[2]});
    found += is_held_out ? 1U : 0U;
    (is_held_out ? dev : train).write(rows[i] + "\n");
  }
  if (found != held_out.size())
    throw DataError(fmt::format("{}: {} pairs of ids, of which {} are in {}", ids, held_out.size(), found, train_text));
  const std::vector<std::string> test_rows = lines_of(test_text);
  test.write("index\t#1 ID\t#2 ID\t#1 String\t#2 String\n");
  for (size_t i = 1; i < test_rows.size(); ++i) {
    const std::vector<std::string> row = columns_of(test_rows[i], kColumns, test_text, i + 1);
    test.write(fmt::format("{}\t{}\t{}\t{}\t{}\n", i - 1, row[1], row[2], row[3], row[4]));
  }
  for (AtomicFile* file : {&train, &dev, &test}) file->commit();
  return {(base / "train.tsv").string(), (base / "dev.tsv").string(), (base / "test.tsv").string()};
}

}  // namespace bert
