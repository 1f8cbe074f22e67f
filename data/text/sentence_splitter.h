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

/// Calls `sentence` with every sentence of a document: of each of its paragraphs (data/text/paragraphs.h).
void split_document(std::string_view document, const std::function<void(std::string_view)>& sentence);

/// Calls `line` with every sentence of `text`, and with an empty line after each document. Documents end at runs of one
/// or two blank lines: blank_lines_between_documents(). A byte order mark at the start is dropped. CRLF is a line break.
/// Any bytes are allowed.
void split_prose(std::string_view text, const std::function<void(std::string_view)>& line);

}  // namespace bert
