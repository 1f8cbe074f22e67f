#include "data/wikitext/templates.h"

#include <algorithm>
#include <array>
#include <optional>

#include "data/io/text_parts.h"
#include "data/wikitext/markup_scanner.h"
#include "data/wikitext/text_pieces.h"
#include "data/wikitext/wiki_names.h"

namespace bert {
namespace {

/// Text before '=' that is a sentence belongs to an unnamed parameter with a '='.
bool is_key(std::string_view key) {
  constexpr size_t kLongest = 40;
  return !key.empty() && key.size() <= kLongest && key.find_first_of(".,\n<'\"()") == kNone;
}

class PatternWriter {
 public:
  explicit PatternWriter(const TemplateCall& call) : call_(call) {}

  /// Appends the text; false if a parameter in it is empty. Stops after the closing bracket of an optional part.
  bool write(std::string_view& pattern, std::string& out) const {
    bool complete = true;
    while (!pattern.empty()) {
      const char c = pattern.front();
      pattern.remove_prefix(1);
      if (c == ']') break;
      if (c == '[') {
        const size_t begin = out.size();
        if (!write(pattern, out)) out.resize(begin);
      } else if (c == '{') {
        complete = value(take_part(pattern, '}'), out) && complete;
      } else {
        out += c;
      }
    }
    return complete;
  }

 private:
  /// Appends what stands in braces; false if it is empty.
  bool value(std::string_view keys, std::string& out) const {
    const size_t before = out.size();
    if (keys.starts_with('*')) return list(keys.substr(1), out);
    while (!keys.empty()) {
      if (keys.starts_with('=')) {
        out += keys.substr(1);
        return true;
      }
      out += one(take_part(keys, ','));
      if (out.size() > before) return true;
    }
    return false;
  }

  bool list(std::string_view between, std::string& out) const {
    bool first = true;
    for (const std::string_view item : call_.parameters.unnamed()) {
      if (item.empty()) continue;
      if (!first) out += between;
      first = false;
      out += item;
    }
    return !first;
  }

  [[nodiscard]] std::string one(std::string_view key) const {
    if (key.find(':') != kNone) {
      const std::string_view got = call_.parameters.get(take_part(key, ':'));
      while (!key.empty()) {
        std::string_view text = take_part(key, '|');
        if (take_part(text, '=') == got) return std::string(text);
      }
      return {};
    }
    std::string_view argument = key;
    if (const TemplateFunction function = template_function(take_part(argument, ' '))) return function(call_, argument);
    return std::string(key == "0" ? call_.name : call_.parameters.get(key));
  }

  const TemplateCall& call_;
};

/// The value of {{#if:...}} and its like, of {{lc:...}} and its like, and of {{PAGENAME}}. Nothing if `parts` is a
/// template. Source: "Help:Extension:ParserFunctions", "Help:Magic words".
std::optional<std::string> parser_function(std::string_view name, std::span<const std::string_view> parts,
                                           std::string_view title) {
  const auto part = [&](size_t index) { return index < parts.size() ? trim(parts[index]) : std::string_view(); };
  if (name == "pagename" || name == "fullpagename" || name == "basepagename" || name == "subpagename")
    return std::string(title);
  const size_t colon = name.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const std::string_view function = trim(name.substr(0, colon));
  const std::string_view argument = trim(parts[0].substr(parts[0].find(':') + 1));
  if (function == "#if") return std::string(argument.empty() ? part(2) : part(1));
  if (function == "#ifeq") return std::string(argument == part(1) ? part(2) : part(3));
  if (function == "#iferror") return std::string(parts.size() > 2 ? part(2) : argument);
  if (function == "#ifexist" || function == "#ifexpr") return std::string(part(2));
  static constexpr std::array<std::string_view, 11> kKept = {"lc",          "uc",           "ucfirst",       "lcfirst",
                                                             "formatnum",   "zahlenformat", "formatonúmero", "صيغة رقم",
                                                             "#formatdate", "#dateformat",  "nowrap"};
  if (std::ranges::find(kKept, function) != kKept.end()) return std::string(argument);
  if (function.starts_with('#')) return std::string();
  return std::nullopt;
}

/// {{subst:name}}, {{template:name}}: the name.
std::string_view without_prefix(std::string_view name) {
  for (const std::string_view prefix : {"subst:", "safesubst:", "template:", "msg:", "msgnw:", "raw:"})
    if (starts_with_any_case(name, prefix)) return trim(name.substr(prefix.size()));
  return name;
}

/// True if UTF-8 with the first byte `lead` is of a script with spaces between words, above ASCII.
bool is_spaced_script(char lead) { return (lead >= '\xC3' && lead <= '\xE1') || (lead >= '\xEA' && lead <= '\xED'); }

/// True if a template stands directly behind a word or the end of a clause, as marks and notes do. A letter alone is an
/// article or a preposition that its word is joined to.
bool is_attached(std::string_view line) {
  constexpr std::string_view kClosing = ".,:;!?)\"";
  if (kClosing.find(line.back()) != std::string_view::npos || line.ends_with("''") || line.ends_with("»") ||
      line.ends_with("。") || line.ends_with("،"))
    return true;
  size_t lead = line.size() - 1;
  while (lead > 0 && (static_cast<uint8_t>(line[lead]) & 0xC0) == 0x80) --lead;
  const bool is_letter = is_ascii_letter(line[lead]) || is_spaced_script(line[lead]);
  return is_letter && lead > 0 && line[lead - 1] != ' ';
}

/// True if a template between these texts is a part of a sentence. Looks at a bounded number of bytes.
bool is_in_sentence(std::string_view before, std::string_view after) {
  constexpr size_t kFar = 300;  // bytes
  std::string_view line = before.substr(before.size() - std::min(before.size(), kFar));
  line.remove_prefix(line.rfind('\n') + 1);  // npos + 1 is 0
  const bool has_word = std::ranges::any_of(line, [](char c) {
    return is_ascii_letter(c) || is_ascii_digit(c) ||
           (static_cast<uint8_t>(c) >= 0x80 && c != kSeparator && c != kCitation && c != kProtected);
  });
  if (!has_word || is_attached(line)) return false;
  after = after.substr(0, kFar);
  after.remove_prefix(std::min(after.find_first_not_of(" \t"), after.size()));
  return !after.empty() && after.front() != '\n';
}

}  // namespace

TemplateParameters::TemplateParameters(std::span<const std::string_view> parts) {
  constexpr size_t kMostNumbered = 20;
  for (const std::string_view part : parts) {
    const size_t equals = part.find('=');
    const std::string_view key = equals == kNone ? std::string_view() : trim(part.substr(0, equals));
    if (equals == kNone || !is_key(key)) {
      unnamed_.push_back(trim(part));
    } else if (const auto index = number_of<size_t>(key); index && *index >= 1 && *index <= kMostNumbered) {
      if (unnamed_.size() < *index) unnamed_.resize(*index);
      unnamed_[*index - 1] = trim(part.substr(equals + 1));
    } else {
      named_.push_back({key, trim(part.substr(equals + 1))});
    }
  }
}

std::string_view TemplateParameters::get(std::string_view key) const {
  if (key == "-1") return unnamed_.empty() ? std::string_view() : unnamed_.back();
  if (const auto index = number_of<size_t>(key))
    return *index >= 1 && *index <= unnamed_.size() ? unnamed_[*index - 1] : std::string_view();
  for (const auto& [name, value] : named_)
    if (name == key) return value;
  return {};
}

std::string fill_pattern(std::string_view pattern, const TemplateCall& call) {
  std::string out;
  const bool complete = PatternWriter(call).write(pattern, out);
  const bool only_signs = std::ranges::none_of(out, [](char c) {
    return is_ascii_letter(c) || is_ascii_digit(c) || static_cast<uint8_t>(c) >= 0x80 || c == '\'' || c == '"';
  });
  return !complete && only_signs ? std::string() : out;
}

std::string expand_template(std::span<const std::string_view> parts, const TemplatePlace& place) {
  if (parts.empty()) return {};
  constexpr size_t kLongestName = 200;  // bytes; MediaWiki's limit of titles is 255
  const std::string_view written = without_prefix(trim(parts[0]));
  const std::string name = folded_name(written.substr(0, kLongestName));
  if (auto value = parser_function(name, parts, place.title)) return *value;
  const std::string_view* pattern = template_pattern(place.language, name);
  const bool has_words = pattern != nullptr || (parts.size() > 1 && name.find(':') == std::string::npos &&
                                                is_in_sentence(place.before, place.after));
  if (!has_words) return {};
  return fill_pattern(pattern != nullptr ? *pattern : "{words}",
                      {written, place.language, place.before, TemplateParameters(parts.subspan(1))});
}

}  // namespace bert
