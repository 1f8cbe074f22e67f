// The suggestion of "did you mean ...?" for a mistyped word.
#pragma once

#include <string>
#include <vector>

namespace bert {

/// The word of `words` with the fewest edits from `word`; "" if there is none. An edit is an insertion, a deletion, a
/// replacement, or a swap of neighbours. The case of letters does not count. At most two edits; of words with up to five
/// letters at most one, and the first letter is the same: "relu" is no mistyped "gelu".
std::string nearest_word(const std::string& word, const std::vector<std::string>& words);

}  // namespace bert
