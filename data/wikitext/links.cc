#include "data/wikitext/links.h"

#include <algorithm>
#include <array>
#include <unordered_set>

#include "data/wikitext/text_pieces.h"
#include "data/wikitext/wiki_names.h"

namespace bert {
namespace {

using Names = std::unordered_set<std::string_view>;

const Names& language_codes() {
  static const Names codes = [] {
    Names made;
    for_each_entry(kLanguageCodes, [&](std::string_view code) { made.insert(code); });
    return made;
  }();
  return codes;
}

/// Prefixes of links to Wikipedia's sister projects. Source: "Help:Interwikimedia links".
const Names& sister_projects() {
  static const Names prefixes = {"w",         "wikipedia",     "wikt", "wiktionary", "n",       "wikinews",
                                 "b",         "wikibooks",     "q",    "wikiquote",  "s",       "wikisource",
                                 "v",         "wikiversity",   "voy",  "wikivoyage", "m",       "meta",
                                 "c",         "commons",       "d",    "wikidata",   "species", "wikispecies",
                                 "mw",        "mediawikiwiki", "wmf",  "foundation", "phab",    "bugzilla",
                                 "incubator", "oeis",          "doi",  "gutenberg",  "imdb"};
  return prefixes;
}

struct Target {
  bool colon = false;  // [[:x]]: a plain link, whatever x is
  int name_space = WikiNamespaces::kArticle;
  bool language = false;  // the prefix names a language
  std::string_view whole, after_prefix;
};

Target parse_target(std::string_view text, const WikiNamespaces& namespaces) {
  Target target;
  text = trim(text);
  target.colon = text.starts_with(':');
  if (target.colon) text = trim(text.substr(1));
  target.whole = target.after_prefix = text;
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos || colon == 0) return target;
  const std::string_view prefix = trim(text.substr(0, colon));
  target.name_space = namespaces.find(prefix);
  const std::string lower = ascii_lower(prefix);
  // The title of an article begins with a capital, so [[AM:PM]] is one, and [[am:PM]] is not.
  target.language = language_codes().contains(prefix);
  if (target.name_space != WikiNamespaces::kArticle || target.language || sister_projects().contains(lower))
    target.after_prefix = trim(text.substr(colon + 1));
  return target;
}

/// Numbers for the variants of a language, the wanted ones first. Source: LanguageZh.php, LanguageSr.php and others.
constexpr std::array<std::string_view, 30> kVariants = {
    "zh-hans", "zh-cn",   "zh-sg",   "zh-my",   "zh",      "zh-hant",  "zh-tw",    "zh-hk",   "zh-mo",   "sr-ec",
    "sr-el",   "sr-cyrl", "sr-latn", "sr",      "kk-cyrl", "kk-latn",  "kk-arab",  "kk",      "uz-latn", "uz-cyrl",
    "uz",      "ku-latn", "ku-arab", "tg-cyrl", "tg-latn", "gan-hans", "gan-hant", "iu-cans", "iu-latn", "crh-latn"};

struct Variant {
  size_t rank = kVariants.size();
  size_t begin = 0;  // of "code:"
  size_t text = 0;   // after "code:"
};

/// The "code:" at `position`, after white space.
std::optional<Variant> variant_at(std::string_view content, size_t position) {
  constexpr size_t kLongest = 12;
  size_t begin = position;
  while (begin < content.size() && is_blank(content[begin])) ++begin;
  const std::string_view rest = content.substr(begin, kLongest);
  const size_t colon = rest.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const std::string code = ascii_lower(trim(rest.substr(0, colon)));
  const auto found = std::ranges::find(kVariants, code);
  if (found == kVariants.end()) return std::nullopt;
  return Variant{static_cast<size_t>(found - kVariants.begin()), position, begin + colon + 1};
}

}  // namespace

std::string_view internal_link_text(std::string_view target_text, std::optional<std::string_view> label,
                                    const WikiNamespaces& namespaces) {
  const Target target = parse_target(target_text, namespaces);
  if (!target.colon) {
    if (target.name_space == WikiNamespaces::kFile || target.name_space == WikiNamespaces::kCategory) return {};
    if (target.name_space == WikiNamespaces::kMedia && !label) return {};
    if (target.language) return {};
  }
  if (label && !trim(*label).empty()) return *label;
  if (!label) return target.after_prefix;
  // The pipe trick: [[Help:Foo (bar)|]] shows "Foo".
  const size_t bracket = target.after_prefix.find(" (");
  return target.after_prefix.substr(0, bracket);
}

bool is_file_link(std::string_view target, const WikiNamespaces& namespaces) {
  const Target parsed = parse_target(target, namespaces);
  return !parsed.colon && parsed.name_space == WikiNamespaces::kFile;
}

size_t url_scheme(std::string_view text) {
  static constexpr std::array<std::string_view, 17> kSchemes = {
      "http://", "https://", "//",     "ftp://", "ftps://", "mailto:", "news:", "irc://",   "ircs://",
      "git://",  "svn://",   "ssh://", "tel:",   "sip:",    "magnet:", "geo:",  "gopher://"};
  for (const std::string_view scheme : kSchemes)
    if (starts_with_any_case(text, scheme)) return scheme.size();
  return 0;
}

std::string_view external_link_text(std::string_view content) {
  const size_t end = content.find_first_of(" \t\n");
  return end == std::string_view::npos ? std::string_view() : trim(content.substr(end));
}

std::string_view variant_text(std::string_view content) {
  if (const size_t pipe = content.find('|'); pipe != std::string_view::npos) {
    // Flags: T title, H hidden, D description, N name, - remove. The others show the text.
    const std::string_view flags = content.substr(0, pipe);
    if (flags.find_first_of("THDN-") != std::string_view::npos && flags.find("zh") == std::string_view::npos) return {};
    content.remove_prefix(pipe + 1);
  }
  if (content.find("=>") != std::string_view::npos) return {};
  std::optional<Variant> current = variant_at(content, 0);
  if (!current) return content;
  Variant best = *current;
  size_t best_end = content.size();
  for (size_t at = 0; (at = content.find(';', at)) != std::string_view::npos;) {
    const std::optional<Variant> following = variant_at(content, ++at);
    if (!following) continue;
    if (current->text == best.text) best_end = at - 1;
    if (following->rank < best.rank) best = *following, best_end = content.size();
    current = following;
  }
  std::string_view text = content.substr(best.text, best_end - best.text);
  if (text.ends_with(';')) text.remove_suffix(1);
  return trim(text);
}

}  // namespace bert
