// Rows with several labels or numbers.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "data/config.h"
#include "data/tasks/table_reader.h"

namespace bert {

/// The labels in a cell of the table's row: those of its list, or the parts of its text around `separator`, without
/// white space at both ends; none in an empty cell. Throws DataError for an empty label.
std::set<std::string> labels_in_cell(const TableReader& table, size_t column, const std::string& separator);

/// The numbers of the labels in a cell, ascending, as `numbers` has them. Throws DataError for an empty label, and for
/// a label without a number.
std::vector<int32_t> label_set(const TableReader& table, size_t column, const std::string& separator,
                               const std::unordered_map<std::string, int32_t>& numbers);

/// The numbers of the labels with 1 or true in their columns, ascending. The column of labels[i] has the number
/// first + i in the table. Throws DataError for a value other than 0, 1, false or true, and for an unknown label.
std::vector<int32_t> label_set_of_columns(const TableReader& table, size_t first,
                                          const std::vector<std::string>& labels,
                                          const std::unordered_map<std::string, int32_t>& numbers);

/// The labels of config.label_column in an own table, in any order. Throws DataError, InputMissing, IoError.
std::vector<std::string> label_sets_in_table(const std::string& path, const TaskDataConfig& config);

/// The number in a cell. Throws DataError for other text, and for a number that is not finite.
double number_in_cell(const TableReader& table, size_t column);

/// The numbers in a cell: those of its list, or one. Throws as number_in_cell().
std::vector<double> numbers_in_cell(const TableReader& table, size_t column);

/// The names of the numbers in the first row of an own table, LABEL_0 and so on as transformers has them; none for a
/// single number. Throws DataError, InputMissing, IoError.
std::vector<std::string> number_names_in_table(const std::string& path, const TaskDataConfig& config);

/// Throws DataError if a label cannot stand in a file of predictions: it has a tab, a line break or `separator`.
void check_set_labels(const std::vector<std::string>& labels, const std::string& separator);

}  // namespace bert
