// The second stage of Note [Wikitext]: lines to paragraphs.
#pragma once

#include <string>
#include <string_view>

namespace bert {

/// The paragraphs of the result of scan_markup(), cleaned (prose_cleaner.h), each with "\n" after it.
std::string prose_of_lines(std::string_view lines);

/// `line` without the quotes of bold and italic text, appended to `out`. L'''amour'' keeps the apostrophe. Source: doQuotes
/// of MediaWiki's Parser.php.
void append_without_quotes(std::string_view line, std::string& out);

/// True if `heading`, in any case, is that of a list of sources or links in a large language of Wikipedia.
bool is_reference_section(std::string_view heading);

}  // namespace bert
