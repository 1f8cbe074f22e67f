// Tables with named columns: TSV, CSV, JSON lines, Parquet and Arrow, row by row.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/io/files.h"

namespace bert {

enum class TableFormat : uint8_t {
  kTsv,        // tabs between columns; a quote is a character
  kCsv,        // RFC 4180: a field in quotes may have commas, line feeds and doubled quotes
  kJsonLines,  // an object in each line
  kArrow       // Parquet or Arrow: each row is an object, as in JSON lines; the number of a line is that of the row
};

/// The first 20 of NAMES, for a message.
std::string list_of(const std::vector<std::string>& names);

/// The format by the extension: .csv, .tsv, .jsonl, .json, .parquet or .arrow. Throws DataError for others.
TableFormat table_format(const std::string& path);

struct TableColumn {
  std::string name;      // empty: no column
  bool required = true;  // false: the table may lack the column
  bool list = false;     // in an object the value may be a list of strings and numbers
  bool json = false;     // of JSON lines: the cell is the value as JSON, of any type; empty: the object lacks the field
};

struct TableOptions {
  TableFormat format = TableFormat::kTsv;
  std::vector<std::string> header;  // of a table without one; empty: the first row
  bool skip_short_rows = false;     // rows that lack a wanted column are counted, not errors
  bool same_width = true;           // a row with more or fewer columns than the header is an error
};

struct TaskDataConfig;

/// The options of the user's own table: its format by the extension, and config.columns as its header unless the first
/// row has config.text_column. Throws as TableReader.
TableOptions own_table_options(const std::string& path, const TaskDataConfig& config);

/// The names of the columns of a table, in their order; of objects those of the first one. Throws as TableReader.
std::vector<std::string> table_columns(const std::string& path);

/// Reads chosen columns of a table. A byte order mark and the CR of CRLF are dropped; blank lines may stand at the end
/// alone. Errors name the file, the line and the column.
class TableReader {
 public:
  /// Reads the header. Throws DataError if the file is empty or no text, or a required column is missing or there twice;
  /// InputMissing, also for kArrow without Arrow; IoError.
  TableReader(const std::string& path, std::vector<TableColumn> columns, TableOptions options);

  /// True if the table has the column with this number in the constructor's list.
  [[nodiscard]] bool has(size_t column) const { return places_[column] >= 0; }

  /// Reads the next row. Returns false at the end. Throws DataError for a blank row, a row of another width, and values
  /// that are not UTF-8.
  bool next();

  /// The value of a column in this row; empty if the table lacks the column.
  [[nodiscard]] const std::string& cell(size_t column) const { return cells_[column]; }
  /// The elements of a column in this row whose value is a list; nullptr if it is none, and stands in cell().
  [[nodiscard]] const std::vector<std::string>* list(size_t column) const {
    return lists_[column] ? &*lists_[column] : nullptr;
  }
  [[nodiscard]] int64_t skipped_rows() const { return skipped_rows_; }
  /// The names of all columns in their order; of objects those of the first one.
  [[nodiscard]] const std::vector<std::string>& header() const { return options_.header; }

  /// Throws DataError: "FILE:LINE: column NAME: MESSAGE".
  [[noreturn]] void fail(size_t column, const std::string& message) const;

 private:
  [[noreturn]] void fail_row(const std::string& message) const;
  bool read_row();
  void split_tabs(std::string_view line);
  void split_commas();
  std::string_view take_line();
  bool rest_is_blank() const;
  std::string& new_field();
  void find_columns(const std::vector<std::string>& header);
  void read_object(std::string_view line, bool first);
  void check_cells() const;

  std::string path_;
  std::vector<TableColumn> columns_;
  TableOptions options_;
  MappedFile file_;
  std::string objects_;                                         // of kArrow
  std::string_view text_;                                       // of the file, or objects_
  size_t at_ = 0;                                               // the next row
  int64_t line_ = 0, next_line_ = 1;                            // of this row and of the next one
  std::vector<std::string> fields_;                             // of this row: the first count_
  size_t count_ = 0, width_ = 0;                                // columns of this row and of the header
  std::vector<int64_t> places_;                                 // for each wanted column its number in a row, or -1
  std::vector<std::string> cells_;                              // for each wanted column
  std::vector<std::optional<std::vector<std::string>>> lists_;  // likewise
  int64_t skipped_rows_ = 0;
};

}  // namespace bert
