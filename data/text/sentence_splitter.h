// Plain prose to the input of create_pretraining_data: one sentence a line, empty lines between documents.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace bert {

// Note [Sentences]
// A sentence ends after . ! ? or an ellipsis, including closing quotes and brackets, if white space follows and the
// next text does not begin in lower case. After 。！？, a danda (।), ؟ ۔ and similar signs it ends without white space.
// A full stop does not end a sentence after a title or another abbreviation (Mr. vs. e.g.), after an initial (J. Smith,
// U.S. Army), after "No." and similar words before a number, and after the number of a list item.
// The rules are for English and do little harm in other languages that use these signs. They use no model, so the same
// text gives the same sentences everywhere.

/// Splits one paragraph into sentences. Runs of white space become single spaces. Linear in the length.
std::vector<std::string> split_sentences(std::string_view paragraph);

/// Calls `line` with every sentence of `text`, and with an empty line after each document.
/// - Paragraphs end at blank lines and where the indentation grows. Their lines are joined, unless one has more than
///   120 bytes: such text has one paragraph per line.
/// - Documents end at runs of two or more blank lines (chapters), if that gives documents of at most 256 KiB on
///   average; otherwise at every blank line.
/// A byte order mark at the start is dropped. CRLF is a line break. Any bytes are allowed.
void split_prose(std::string_view text, const std::function<void(std::string_view)>& line);

}  // namespace bert
