// Schemes of the labels of words: the letters before the kinds of entities.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/config.h"

namespace bert {

/// The letters of a scheme, without O: "BI" of IOB2. Those of kAny are IOB2's.
std::string_view letters_of(LabelScheme scheme);

/// The letter of word `word` of the entity with `words` words. `after_alike`: the word before the entity is of another
/// entity of its kind.
char letter_in_scheme(LabelScheme scheme, int64_t word, int64_t words, bool after_alike);

/// IOBES or BILOU if all of `labels` are of it, and some have its letters for last or single words; else kAny.
LabelScheme scheme_of_labels(const std::vector<std::string>& labels);

/// Throws DataError if the label is neither O nor a letter of the scheme, alone or before a dash and a kind.
void check_label(LabelScheme scheme, std::string_view label);

}  // namespace bert
