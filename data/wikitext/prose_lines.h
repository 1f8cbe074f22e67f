// The second stage of Note [Wikitext]: lines to paragraphs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace bert {

/// The paragraphs of the result of scan_markup(), cleaned (prose_cleaner.h), each with "\n" after it.
std::string prose_of_lines(std::string_view lines);

/// `line` without the quotes of bold and italic text, appended to `out`. L'''amour'' keeps the apostrophe. Source: doQuotes
/// of MediaWiki's Parser.php.
void append_without_quotes(std::string_view line, std::string& out);

/// Sections of lists.
enum class SectionKind : uint8_t {
  kText,
  kWorks,    // of works and notes: titles and remarks
  kSources,  // of sources and links
};

/// The kind of the section under `heading`, in any case, in a large language of Wikipedia.
SectionKind section_kind(std::string_view heading);

}  // namespace bert
