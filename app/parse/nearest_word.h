// "Did you mean": the word that somebody probably wanted to write.
#pragma once

#include <string>
#include <vector>

namespace bert {

/// The nearest of `words` within two edits (insertions, deletions, replacements, swaps of neighbours), "" when there is
/// none. Upper and lower case are the same.
std::string nearest_word(const std::string& word, const std::vector<std::string>& words);

}  // namespace bert
