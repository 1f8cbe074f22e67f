// Tables in Parquet and Arrow files.
#pragma once

#include <string>

namespace bert {

/// The rows of a Parquet or Arrow file, each as a line of JSON: an object with the columns as members, in their order. A
/// value without a form in JSON, such as a time, is an object without members. Throws DataError for a damaged file and one
/// without rows; InputMissing without Arrow; IoError. Source: Note [Bounded child].
std::string arrow_table_lines(const std::string& path);

}  // namespace bert
