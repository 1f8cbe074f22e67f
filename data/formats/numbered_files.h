// Sets of files that are numbered in their names, such as 00000-of-00016.shard.
#pragma once

#include <string>
#include <vector>

namespace bert {

/// Checks the names of the files of one directory, NUMBER-of-TOTAL with anything before and behind: of every set that
/// has a file, each file from 0 to TOTAL - 1 is there. Other names do not matter. Throws InputMissing with the name of
/// the first absent file, and DataError if sets of two sizes are there, which are of two creations.
void check_numbered_files(const std::string& directory, const std::vector<std::string>& paths);

}  // namespace bert
