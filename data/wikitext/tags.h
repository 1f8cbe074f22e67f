// The tags of wikitext: HTML's, and those of MediaWiki's extensions.
#pragma once

#include <cstdint>
#include <string_view>

namespace bert {

enum class TagKind : uint8_t {
  kUnknown,  // no tag: text
  kInline,   // the tag goes, its content stays
  kBlock,    // likewise, and a paragraph ends
  kBreak,    // a line break
  kQuote,    // <q>
  kItem,     // of a list
  kHeading,
  kTable,
  kSkipped,  // an element that goes with its content
  kLiteral,  // <nowiki>: the content is text
  kFormula,  // the content stays if it reads as text
  kCode,     // goes, but stays as text within a line
};

/// The kind of the tag `name`, which is in lower case.
TagKind tag_kind(std::string_view name);

/// True if a formula in TeX is as readable without its tags: letters, digits and plain signs.
bool is_plain_formula(std::string_view formula);

/// The longest name of a tag.
inline constexpr size_t kLongestTag = 20;

}  // namespace bert
