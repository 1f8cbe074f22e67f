// Sentences of prose, told from entries of lists and other short text.
#pragma once

#include <string_view>

namespace bert {

/// Share of the words that do not begin with a capital, of the words of letters: 0 to 1. It is about 0.3 for titles and
/// names, and 0.6 (German) to 0.9 for sentences. Letters of scripts without capitals count as small.
double running_words(std::string_view prose);

/// True if prose, the text of a line of a list, reads as a sentence or a clause, not as an entry. It does in two cases:
/// - It ends as a sentence, and has six words, or three with a frequent verb.
/// - It has many words, most of them running words, and either a frequent verb of a large language, or a small
///   letter at its beginning, as a part of a sentence has.
/// With `strict` most words have to be running words in the first case too.
bool is_sentence(std::string_view prose, bool strict);

/// True if prose is one or two words without an end, such as a heading in bold letters or the name under a picture. In
/// scripts without spaces nothing is.
bool is_fragment(std::string_view prose);

}  // namespace bert
