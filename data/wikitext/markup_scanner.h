// The first stage of Note [Wikitext]: everything that opens and closes.
#pragma once

#include <string>
#include <string_view>

#include "data/wikitext/wikitext.h"

namespace bert {

// Bytes that no UTF-8 contains, in the result of scan_markup():
inline constexpr char kProtected = '\xFF';  // the next character is text, not markup
inline constexpr char kSeparator = '\xFE';  // nothing, but what stands on both sides does not join to markup
inline constexpr char kCitation =
    '\xFD';  // a reference to a source: where a {{cite book}} was, and around a link's label

/// Wikitext without comments, tags, templates, links, files and tables, but with headings, lists and quotes. `text` must
/// be valid UTF-8.
std::string scan_markup(std::string_view text, const WikiPage& page, const WikiNamespaces& namespaces);

}  // namespace bert
