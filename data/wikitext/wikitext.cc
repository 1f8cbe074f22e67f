#include "data/wikitext/wikitext.h"

#include <utf8proc.h>

#include <array>
#include <cstdint>

#include "data/text/unicode.h"
#include "data/wikitext/markup_scanner.h"
#include "data/wikitext/prose_lines.h"
#include "data/wikitext/wiki_names.h"

namespace bert {
namespace {

/// MediaWiki's namespaces in English, which every wiki knows. Source: Namespaces of MediaWiki's MessagesEn.php.
struct Row {
  std::string_view name;
  int number;
};
constexpr Row kEnglish[] = {
    {"media", -2},         {"special", -1},       {"talk", 1},          {"user", 2},           {"user talk", 3},
    {"project", 4},        {"wikipedia", 4},      {"project talk", 5},  {"wikipedia talk", 5}, {"file", 6},
    {"image", 6},          {"file talk", 7},      {"image talk", 7},    {"mediawiki", 8},      {"mediawiki talk", 9},
    {"template", 10},      {"template talk", 11}, {"help", 12},         {"help talk", 13},     {"category", 14},
    {"category talk", 15}, {"portal", 100},       {"portal talk", 101}, {"draft", 118},        {"module", 828}};

}  // namespace

std::string folded_name(std::string_view name) {
  std::string out;
  bool gap = false;
  while (!name.empty()) {
    utf8proc_int32_t value = 0;
    const utf8proc_ssize_t bytes = utf8proc_iterate(reinterpret_cast<const uint8_t*>(name.data()),
                                                    static_cast<utf8proc_ssize_t>(name.size()), &value);
    if (bytes <= 0) break;
    name.remove_prefix(static_cast<size_t>(bytes));
    const bool is_gap = value == '_' || value == ' ' || value == '\t' || value == '\n';
    if (!is_gap) {
      if (gap && !out.empty()) out += ' ';
      std::array<uint8_t, 4> utf8{};
      const utf8proc_ssize_t size = utf8proc_encode_char(utf8proc_tolower(value), utf8.data());
      out.append(reinterpret_cast<const char*>(utf8.data()), static_cast<size_t>(size));
    }
    gap = is_gap;
  }
  return out;
}

WikiNamespaces::WikiNamespaces() {
  for_each_entry(kMediaNames, [&](std::string_view name) { add(name, kMedia); });
  for_each_entry(kCategoryNames, [&](std::string_view name) { add(name, kCategory); });
  for_each_entry(kFileNames, [&](std::string_view name) { add(name, kFile); });
  for (const Row& row : kEnglish) add(row.name, row.number);
}

void WikiNamespaces::add(std::string_view name, int number) { numbers_[folded_name(name)] = number; }

int WikiNamespaces::find(std::string_view name) const {
  constexpr size_t kLongest = 100;  // bytes; the longest name of a namespace has about 60
  if (name.size() > kLongest) return kArticle;
  const auto found = numbers_.find(folded_name(name));
  return found == numbers_.end() ? kArticle : found->second;
}

std::string wikitext_to_prose(std::string_view text, std::string_view title, const WikiNamespaces& namespaces,
                              std::string_view language) {
  const WikiPage page = {title, language};
  if (count_invalid_utf8(text) == 0) return prose_of_lines(scan_markup(text, page, namespaces));
  std::string valid(text);
  drop_invalid_utf8(valid);
  return prose_of_lines(scan_markup(valid, page, namespaces));
}

}  // namespace bert
