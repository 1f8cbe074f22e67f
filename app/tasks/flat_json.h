// Files of predictions in JSON: one object whose keys are ids.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace bert {

/// The members of an object of strings, in the order of the file. Throws DataError, which names the file and the id, for
/// other values, ids that are there twice, and text that is no JSON object; InputMissing; IoError.
std::vector<std::pair<std::string, std::string>> read_json_texts(const std::string& path);

/// The same for an object of numbers.
std::vector<std::pair<std::string, double>> read_json_numbers(const std::string& path);

}  // namespace bert
