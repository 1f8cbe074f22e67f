// MediaWiki's markup to plain prose.
//
// Note [Wikitext]
// An article passes three stages, each in linear time for any bytes:
// 1. markup_scanner.h reads the text once from left to right. Comments, extension tags (<ref>, <math>, ...) and HTML tags
//    end here. A stack holds what is open: {{templates}}, [[links]], [http://x links], {| tables |}, -{variants}-. The
//    end of one replaces its text in the output by its value: nothing for a table, a file or a category, the label for a
//    link, and for a template what Note [Templates] says. At most 64 things are open; further openings are text.
// 2. prose_lines.h takes the result line by line: headings go; of lists, indented and preformatted lines only whole
//    sentences stay; table rows that lost their table go; consecutive lines become one paragraph.
// 3. prose_cleaner.h decodes character references, removes bare URLs, empty parentheses and all markup that is still
//    there, and makes runs of white space one space.
// Broken markup: what is open at a heading of level 2, or at the end, is given up. Its text stays, without the line of an
// unclosed template's name. A link ends with its paragraph.
// Text that MediaWiki shows as it stands (<nowiki>) passes the first two stages with kProtected before every character
// that would be markup.
// Source: MediaWiki's Preprocessor_Hash.php, Parser.php (doQuotes, internal links) and "Help:Formatting".
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>

namespace bert {

/// Namespaces of the wiki that a text comes from.
class WikiNamespaces {
 public:
  static constexpr int kMedia = -2, kArticle = 0, kFile = 6, kCategory = 14;

  /// Knows the names of MediaWiki's English namespaces, and those of files and categories in every Wikipedia's language,
  /// with their aliases, which a dump does not list.
  WikiNamespaces();

  /// Adds a name as a dump's <siteinfo> gives it. Spelling as in find().
  void add(std::string_view name, int number);

  /// The number of the namespace `name`, or kArticle if there is none. Underscores are spaces; upper and lower case are
  /// the same.
  [[nodiscard]] int find(std::string_view name) const;

 private:
  std::unordered_map<std::string, int> numbers_;
};

/// The page that a text is of.
struct WikiPage {
  std::string_view title;     // the value of {{PAGENAME}}
  std::string_view language;  // code of the wiki's language, "fr", which decides what templates mean; empty: unknown
};

/// The prose of an article: one paragraph a line, "\n" after each, no empty lines. `text` may be any bytes; invalid UTF-8
/// is dropped, and the result is valid UTF-8. `title` and `language` as in WikiPage. Safe for any number of threads.
std::string wikitext_to_prose(std::string_view text, std::string_view title, const WikiNamespaces& namespaces,
                              std::string_view language = {});

}  // namespace bert
