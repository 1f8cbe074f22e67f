// The third stage of Note [Wikitext]: a paragraph without the last of its markup.
#pragma once

#include <string>
#include <string_view>

namespace bert {

/// The prose of a paragraph: character references decoded, without bare URLs, behaviour switches (__TOC__), invisible
/// characters and empty parentheses; white space is single spaces. Of markup that is unbalanced or was written as
/// character references, the signs {{ }} [[ ]] {| |} ''' and tags are dropped, so that no line has any. `text` has the
/// bytes of markup_scanner.h. Empty if no letter is left.
std::string clean_prose(std::string_view text);

/// True for letters and ideographs; of other scripts than Latin, for everything but general punctuation and signs.
bool has_letter(std::string_view text);

}  // namespace bert
