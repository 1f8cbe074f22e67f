// The text that links show.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "data/wikitext/wikitext.h"

namespace bert {

/// The text of [[target]] or [[target|label]]: nothing for a file, a category and the same article in another language.
std::string_view internal_link_text(std::string_view target, std::optional<std::string_view> label,
                                    const WikiNamespaces& namespaces);

/// True if [[target...]] shows a file.
bool is_file_link(std::string_view target, const WikiNamespaces& namespaces);

/// Number of bytes of the scheme ("https://", "//", "mailto:") that `text` begins with, 0 if there is none.
size_t url_scheme(std::string_view text);

/// The text of [url label], given "url label".
std::string_view external_link_text(std::string_view content);

/// The text of -{content}-, which has a text for each variant of a language, mostly of Chinese. Simplified Chinese, or
/// else the first variant, is taken. Source: MediaWiki's "Writing systems/Syntax".
std::string_view variant_text(std::string_view content);

}  // namespace bert
