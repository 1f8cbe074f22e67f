// Prose to documents and paragraphs.
#pragma once

#include <cstddef>
#include <functional>
#include <string_view>

namespace bert {

/// Number of blank lines, 1 or 2, that end a document of prose: 2 (a chapter ends) if `text` has such places, and if they
/// make documents of at most 256 KiB on average; otherwise 1. `text` may be the beginning of a file. A line of nothing
/// but ASCII white space is blank. Linear in the length.
size_t blank_lines_between_documents(std::string_view text);

/// Calls `take` with every paragraph of a document. Paragraphs end at blank lines and where the indentation grows. Their
/// lines are joined by spaces, or by nothing between ideographs, unless one is wider than 120 columns without its longest
/// word, which no program could wrap: such text has one paragraph per line. A column is that of a terminal: an ideograph
/// takes two, a combining mark none. Any bytes are allowed.
void for_each_paragraph(std::string_view document, const std::function<void(std::string_view paragraph)>& take);

}  // namespace bert
