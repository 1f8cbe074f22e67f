// The text that templates and parser functions leave.
//
// Note [Templates]
// A dump has the templates' own pages, but their text is the layout of a web page, and most of it is no prose. So
// templates are not expanded: template_table.cc lists those that carry words of a sentence, with the text that they
// leave. All others leave nothing: infoboxes, navigation, notices, citations.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace bert {

/// The text for {{parts[0]|parts[1]|...}}. `parts` are as they stand between the pipes. `title` is that of the page.
std::string expand_template(std::span<const std::string_view> parts, std::string_view title);

/// The pattern of the text of the template `name`, in lower case, or nullptr if it leaves nothing. In a pattern:
/// {2} is the second unnamed parameter, {-1} the last, {text} the named one; {text,1} the first of these that is not
/// empty; {* } all unnamed ones with the text after the star between; [..] goes if a parameter in it is empty.
const std::string_view* template_pattern(std::string_view name);

/// True if the template `name`, in lower case, writes a fraction, which stands apart from a whole number before it.
bool is_fraction(std::string_view name);

/// True if the template `name` writes sounds. In parentheses these are the pronunciation of a word, which is left out;
/// in a sentence about a language they are words of the sentence.
bool is_pronunciation(std::string_view name);

/// True if the template `name`, in lower case, refers to a source.
bool is_citation(std::string_view name);

}  // namespace bert
