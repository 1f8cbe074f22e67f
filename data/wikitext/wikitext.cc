#include "data/wikitext/wikitext.h"

#include "data/text/unicode.h"
#include "data/wikitext/markup_scanner.h"
#include "data/wikitext/prose_lines.h"

namespace bert {

std::string wikitext_to_prose(std::string_view text, std::string_view title, const WikiNamespaces& namespaces) {
  if (count_invalid_utf8(text) == 0) return prose_of_lines(scan_markup(text, title, namespaces));
  std::string valid(text);
  drop_invalid_utf8(valid);
  return prose_of_lines(scan_markup(valid, title, namespaces));
}

}  // namespace bert
