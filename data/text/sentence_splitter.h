// Plain prose to the input of create_pretraining_data: one sentence a line, empty lines between documents.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace bert {

// Note [Sentences]
// A sentence ends after . ! ? or an ellipsis, including closing quotes, brackets and citations such as [3], if white
// space follows and the next text does not begin in lower case. In a text in lower case, the next sentence may begin so
// too. After 。！？, a danda (।), ؟ and the other signs of Unicode's Sentence_Terminal it ends without white space.
// A full stop does not end a sentence after a title (Mr.) or another abbreviation that needs something behind it
// (vs. e.g. No. 5), after an initial (J. Smith), and after the label of a list item. After U.S., Inc., Jr. and the like
// it does if the next word often begins a sentence, such as "The". "Why?" Mary asked. is one sentence.
// German, Danish, Czech and other languages write ordinal numbers with a full stop: "Im 19. Jahrhundert" is no end of a
// sentence. Such rules, and abbreviations such as Polish "św.", are those of the document's language, which its frequent
// words tell if the caller does not: sentence_languages.h. A ; ends a sentence after a Greek word.
// A text without such signs, in Thai for example, stays one sentence. The rules use no model, so the same text gives
// the same sentences everywhere; their words and signs stand in sentence_rules.h.

// `language` below is a code of ISO 639-1 (listed_languages() of sentence_classes.h has those with rules of their own). If
// it is empty, the frequent words of the text tell the language.

/// Splits one paragraph into sentences. Runs of white space become single spaces. Any bytes are allowed. Linear in the
/// length.
std::vector<std::string> split_sentences(std::string_view paragraph, std::string_view language = {});

/// Calls `sentence` with every sentence of a document: of each of its paragraphs (data/text/paragraphs.h).
void split_document(std::string_view document, const std::function<void(std::string_view)>& sentence,
                    std::string_view language = {});

/// Calls `line` with every sentence of `text`, and with an empty line after each document. Documents end at runs of one
/// or two blank lines: blank_lines_between_documents(). A byte order mark at the start is dropped. CRLF is a line break.
/// Any bytes are allowed.
void split_prose(std::string_view text, const std::function<void(std::string_view)>& line,
                 std::string_view language = {});

}  // namespace bert
