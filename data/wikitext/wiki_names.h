// Names that are the same in all dumps: MediaWiki's languages and their namespaces.
#pragma once

#include <string>
#include <string_view>

namespace bert {

// Lists with '|' after every entry, in lower case.

/// Names and aliases of the namespaces of files, categories and media in all languages of Wikipedia.
extern const std::string_view kFileNames, kCategoryNames, kMediaNames;
/// Prefixes of links to Wikipedias in other languages.
extern const std::string_view kLanguageCodes;
/// Words after '#' that make a page a redirect, in the languages of the large Wikipedias.
extern const std::string_view kRedirectWords;

/// `name` as it is compared: in lower case, with single spaces for underscores and white space, without any at its ends.
std::string folded_name(std::string_view name);

/// Calls `take` with every entry of `list`, which has '|' after each.
template <class Take>
void for_each_entry(std::string_view list, Take&& take) {
  for (size_t end = 0; (end = list.find('|')) != std::string_view::npos; list.remove_prefix(end + 1))
    take(list.substr(0, end));
}

}  // namespace bert
