// The text that templates and parser functions leave.
//
// Note [Templates]
// A dump has the templates' own pages, but their text is the layout of a web page, and most of it is no prose. So
// templates are not expanded. Tables have the text that they leave, as patterns (Note [Template patterns]):
// 1. language_templates.cc: what a name means in one language. {{s|XIX}} is a century in French, words without a line
//    break in Russian, a stub in Italian.
// 2. template_table.cc: what a name means everywhere; Wikipedias share the names of English.
// A row is a line, and the first row that fits counts. Where a dump does not tell its language, the rows of all count.
// 3. A name that no row has leaves nothing, but within a sentence the words or the number of its first parameter: there
//    it is more often a date, a unit or a word of another language than a mark. Marks stand behind their word without a
//    space, end a line, or have an address, a file or a whole sentence.
// Citations, notes, marks of maintenance, pronunciation, flags and navigation leave nothing.
//
// Note [Template patterns]
// A pattern is the text that a template leaves. Of its signs:
// {2}             the second unnamed parameter; {-1} the last; {text} the named one; {0} the name of the template
// {text,1,=none}  the first of these that is not empty; after '=' stands plain text
// {* and }        all unnamed parameters, with the text behind the star between them
// {3:s=siglo |S=Siglo }   by the value of the third parameter: what stands behind it
// {power 3}       a function of template_functions.cc, of the third parameter
// [..]            goes if a parameter in it is empty
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bert {

/// The place of a template.
struct TemplatePlace {
  std::string_view title;     // of the page
  std::string_view language;  // of the wiki, as in WikiPage
  std::string_view before;    // the text before it, without markup
  std::string_view after;     // the markup behind it
};

/// The text for {{parts[0]|parts[1]|...}}. `parts` are as they stand between the pipes.
std::string expand_template(std::span<const std::string_view> parts, const TemplatePlace& place);

/// A row of a table of templates.
struct TemplateRow {
  std::string_view languages;  // codes, separated by ';'
  std::string_view names;      // in lower case, separated by ';'; '*' at an end: any text; '#' at the begin: digits
  std::string_view pattern;
};

/// The rows of single languages, in order.
std::span<const TemplateRow> language_templates();

/// The pattern of the template `name`, which is folded, or nullptr if no row has it.
const std::string_view* template_pattern(std::string_view language, std::string_view name);

/// Numbers and dates as a language writes them.
struct LanguageStyle {
  std::string_view languages;  // codes, separated by ';'
  std::string_view thousands;  // between groups of three digits
  size_t fewest_digits;        // of a number with groups
  std::string_view date;       // a pattern of day d, month m and year y
  std::string_view months;     // as a date has them, separated by ';'; empty: numbers
};

/// The style of a language, or that of English.
const LanguageStyle& language_style(std::string_view language);

/// The parameters of a template.
class TemplateParameters {
 public:
  /// `parts` are as they stand between the pipes, without the template's name.
  explicit TemplateParameters(std::span<const std::string_view> parts);

  [[nodiscard]] const std::vector<std::string_view>& unnamed() const { return unnamed_; }

  /// "2", "-1" for the last, or a name. Empty if there is none.
  [[nodiscard]] std::string_view get(std::string_view key) const;

 private:
  std::vector<std::string_view> unnamed_;
  std::vector<std::pair<std::string_view, std::string_view>> named_;
};

/// A template in an article.
struct TemplateCall {
  std::string_view name;      // as it is written
  std::string_view language;  // of the wiki
  std::string_view before;    // the text before it; may begin anywhere
  TemplateParameters parameters;
};

/// The text of a pattern for a template. Empty if a parameter of the pattern is empty and only signs are left: a
/// quotation without words, a currency without a number.
std::string fill_pattern(std::string_view pattern, const TemplateCall& call);

/// A function of patterns. `key` is the parameter that it is called with, or empty.
using TemplateFunction = std::string (*)(const TemplateCall& call, std::string_view key);

/// The function `name`, or nullptr.
TemplateFunction template_function(std::string_view name);

}  // namespace bert
