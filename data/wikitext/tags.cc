#include "data/wikitext/tags.h"

#include <algorithm>
#include <unordered_map>

#include "data/wikitext/text_pieces.h"

namespace bert {
namespace {

using Kinds = std::unordered_map<std::string_view, TagKind>;

/// Sources: Sanitizer.php of MediaWiki for HTML; "Special:Version" of Wikipedia for extensions.
const Kinds& kinds() {
  static const Kinds table = [] {
    Kinds made;
    const auto add = [&](TagKind kind, std::initializer_list<std::string_view> names) {
      for (const std::string_view name : names) made[name] = kind;
    };
    add(TagKind::kInline,
        {"abbr", "b",         "bdi",         "bdo",         "big",     "cite",      "code", "data",   "del",
         "dfn",  "em",        "font",        "i",           "ins",     "kbd",       "mark", "rb",     "rp",
         "rt",   "rtc",       "ruby",        "s",           "samp",    "small",     "span", "strike", "strong",
         "sub",  "sup",       "time",        "tt",          "u",       "var",       "wbr",  "link",   "meta",
         "a",    "noinclude", "onlyinclude", "langconvert", "section", "translate", "tvar"});
    add(TagKind::kBlock,
        {"blockquote", "center",  "div",   "p",     "hr",    "poem",     "ul",      "ol",      "dl",    "tr",  "td",
         "th",         "caption", "thead", "tbody", "tfoot", "noscript", "address", "article", "aside", "main"});
    add(TagKind::kBreak, {"br"});
    add(TagKind::kQuote, {"q"});
    add(TagKind::kItem, {"li", "dt", "dd"});
    add(TagKind::kHeading, {"h1", "h2", "h3", "h4", "h5", "h6"});
    add(TagKind::kTable, {"table"});
    add(TagKind::kSkipped, {"ref",
                            "references",
                            "gallery",
                            "timeline",
                            "score",
                            "hiero",
                            "imagemap",
                            "inputbox",
                            "pre",
                            "templatedata",
                            "templatestyles",
                            "graph",
                            "chart",
                            "mapframe",
                            "maplink",
                            "categorytree",
                            "charinsert",
                            "indicator",
                            "includeonly",
                            "dynamicpagelist",
                            "languages",
                            "style",
                            "script",
                            "phonos",
                            "listing",
                            "quiz",
                            "rss",
                            "randomselection",
                            "select",
                            "option",
                            "textarea",
                            "form",
                            "input",
                            "img",
                            "image",
                            "mapdata",
                            "choose",
                            "abc",
                            "labeledsectiontransclusion",
                            "videoflash"});
    add(TagKind::kLiteral, {"nowiki"});
    add(TagKind::kFormula, {"math", "chem", "ce"});
    add(TagKind::kCode, {"syntaxhighlight", "source"});
    return made;
  }();
  return table;
}

}  // namespace

TagKind tag_kind(std::string_view name) {
  const auto found = kinds().find(name);
  return found == kinds().end() ? TagKind::kUnknown : found->second;
}

bool is_plain_formula(std::string_view formula) {
  constexpr size_t kLongest = 80;
  static constexpr std::string_view kSigns = " +-=<>().,'/*:!";
  return formula.size() <= kLongest && std::ranges::all_of(formula, [](char c) {
           return is_ascii_letter(c) || is_ascii_digit(c) || kSigns.find(c) != std::string_view::npos;
         });
}

}  // namespace bert
