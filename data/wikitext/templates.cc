#include "data/wikitext/templates.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <vector>

#include "data/wikitext/markup_scanner.h"
#include "data/wikitext/text_pieces.h"

namespace bert {
namespace {

/// The parameters of a template.
class Parameters {
 public:
  explicit Parameters(std::span<const std::string_view> parts) {
    for (const std::string_view part : parts) {
      const size_t equals = part.find('=');
      const std::string_view key = equals == std::string_view::npos ? std::string_view() : trim(part.substr(0, equals));
      if (equals == std::string_view::npos || !is_key(key)) {
        unnamed_.push_back(trim(part));
      } else if (size_t index = 0; read_index(key, index) && index >= 1 && index <= kMostNumbered) {
        if (unnamed_.size() < index) unnamed_.resize(index);
        unnamed_[index - 1] = trim(part.substr(equals + 1));
      } else {
        named_.push_back({key, trim(part.substr(equals + 1))});
      }
    }
  }

  [[nodiscard]] const std::vector<std::string_view>& unnamed() const { return unnamed_; }

  /// "2", "-1" for the last, or a name. Empty if there is none.
  [[nodiscard]] std::string_view get(std::string_view key) const {
    if (key == "-1") return unnamed_.empty() ? std::string_view() : unnamed_.back();
    size_t index = 0;
    if (read_index(key, index))
      return index >= 1 && index <= unnamed_.size() ? unnamed_[index - 1] : std::string_view();
    for (const auto& [name, value] : named_)
      if (name == key) return value;
    return {};
  }

 private:
  static constexpr size_t kMostNumbered = 20;

  /// Text before '=' that is a sentence belongs to an unnamed parameter with a '='.
  static bool is_key(std::string_view key) {
    constexpr size_t kLongest = 40;
    return !key.empty() && key.size() <= kLongest && key.find_first_of(".,\n<'\"()") == std::string_view::npos;
  }

  static bool read_index(std::string_view text, size_t& index) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), index);
    return error == std::errc() && end == text.data() + text.size();
  }

  std::vector<std::string_view> unnamed_;
  std::vector<std::pair<std::string_view, std::string_view>> named_;
};

/// Writes the text of a pattern (template_pattern() in templates.h).
class PatternWriter {
 public:
  PatternWriter(std::string_view name, const Parameters& parameters) : name_(name), parameters_(parameters) {}

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
        const size_t end = pattern.find('}');
        const size_t before = out.size();
        value(pattern.substr(0, end), out);
        complete = complete && out.size() > before;
        pattern.remove_prefix(end + 1);
      } else {
        out += c;
      }
    }
    return complete;
  }

 private:
  void value(std::string_view key, std::string& out) const {
    if (key.starts_with('*')) {
      bool first = true;
      for (const std::string_view item : parameters_.unnamed()) {
        if (item.empty()) continue;
        if (!first) out += key.substr(1);
        first = false;
        out += item;
      }
      return;
    }
    while (!key.empty()) {
      const size_t comma = std::min(key.find(','), key.size());
      const std::string_view found = key.substr(0, comma) == "0" ? name_ : parameters_.get(key.substr(0, comma));
      out += found;
      if (!found.empty()) return;
      key.remove_prefix(std::min(comma + 1, key.size()));
    }
  }

  std::string_view name_;
  const Parameters& parameters_;
};

std::string fill(std::string_view pattern, std::string_view name, const Parameters& parameters) {
  std::string out;
  // A quotation without words, and a sign that waits for its number, are no text.
  const bool complete = PatternWriter(name, parameters).write(pattern, out);
  const bool only_signs = std::none_of(out.begin(), out.end(), [](char c) {
    return is_ascii_letter(c) || is_ascii_digit(c) || static_cast<uint8_t>(c) >= 0x80 || c == '\'' || c == '"';
  });
  return !complete && only_signs ? std::string() : out;
}

/// {{frac|3}}: "1/3"; {{frac|2|3}}: "2/3"; {{frac|1|2|3}}: "1 2/3". Source: Template:Fraction.
std::string fraction(const Parameters& parameters) {
  const auto& items = parameters.unnamed();
  if (items.empty() || items.size() > 3) return {};
  const std::string below(items.back());
  if (items.size() == 1) return "1/" + below;
  const std::string last = std::string(items[items.size() - 2]) + "/" + below;
  return items.size() == 2 ? last : std::string(items[0]) + " " + last;
}

/// {{s-|XIX|e}}: "XIXe siècle"; "e" is usual. French. Source: Modèle:S.
std::string century(const Parameters& parameters, std::string_view era) {
  const std::string_view number = parameters.get("1"), ending = parameters.get("2");
  if (number.empty()) return {};
  return std::string(number) + std::string(ending.empty() ? "e" : ending) + " siècle" + std::string(era);
}

/// {{music|flat}}: "♭". Another word stays.
std::string music(std::string_view sign) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kSigns = {
      {{"flat", "♭"}, {"b", "♭"}, {"sharp", "♯"}, {"#", "♯"}, {"natural", "♮"}, {"n", "♮"}}};
  for (const auto& [word, written] : kSigns)
    if (word == sign) return std::string(written);
  return std::string(sign);
}

using Spelling = std::pair<std::string_view, std::string_view>;

/// The spelling of a unit of {{convert}}: "km2", "million barrels per day". Source: Template:Convert/list_of_units.
std::string unit_spelling(std::string_view unit) {
  static constexpr std::array<Spelling, 5> kFactors = {
      {{"e3", "thousand "}, {"e6", "million "}, {"e9", "billion "}, {"k", "thousand "}, {"M", "million "}}};
  static constexpr std::array<Spelling, 18> kSpellings = {{{"sqmi", "sq mi"},
                                                           {"sqkm", "km2"},
                                                           {"sqft", "sq ft"},
                                                           {"sqyd", "sq yd"},
                                                           {"cuft", "cu ft"},
                                                           {"cuyd", "cu yd"},
                                                           {"C", "°C"},
                                                           {"F", "°F"},
                                                           {"K", "K"},
                                                           {"lbf", "lbf"},
                                                           {"impgal", "imp gal"},
                                                           {"USgal", "US gal"},
                                                           {"ftin", "ft"},
                                                           {"oilbbl", "barrels"},
                                                           {"oilbbl/d", "barrels per day"},
                                                           {"oilbbl/a", "barrels per year"},
                                                           {"carat", "carats"},
                                                           {"nmi", "nmi"}}};
  std::string factor;
  for (const auto& [written, word] : kFactors) {
    // A letter is a factor before barrels of oil alone: km is a unit by itself.
    if (!unit.starts_with(written) || (written.size() == 1 && !unit.substr(1).starts_with("oilbbl"))) continue;
    factor = word;
    unit.remove_prefix(written.size());
    break;
  }
  const auto* found =
      std::find_if(kSpellings.begin(), kSpellings.end(), [&](const auto& entry) { return entry.first == unit; });
  return factor + std::string(found == kSpellings.end() ? unit : found->second);
}

/// {{convert|5|km|mi}}: "5 km"; {{convert|5|to|7|km}}: "5 to 7 km"; {{convert|6|ft|4|in}}: "6 ft 4 in".
std::string converted(const Parameters& parameters) {
  static constexpr std::array<std::string_view, 14> kJoins = {"-",  "–", "and", "and(-)", "or",  "to", "to(-)",
                                                              "by", "x", "×",   "+",      "+/-", "±",  "*"};
  const auto& items = parameters.unnamed();
  const auto is_join = [](std::string_view text) {
    return std::find(kJoins.begin(), kJoins.end(), text) != kJoins.end();
  };
  const auto is_number = [](std::string_view text) {
    return !text.empty() && (is_ascii_digit(text.front()) || text.starts_with("-") || text.starts_with("−"));
  };
  if (items.empty()) return {};
  std::string out(items[0]);
  size_t at = 1;
  for (; at + 1 < items.size() && is_join(items[at]) && is_number(items[at + 1]); at += 2) {
    if (items[at] == "-" || items[at] == "–") {
      out += "–";
    } else {
      ((out += ' ') += items[at].substr(0, items[at].find('('))) += ' ';
    }
    out += items[at + 1];
  }
  if (at < items.size()) (out += ' ') += unit_spelling(items[at]);
  if (at + 2 < items.size() && is_number(items[at + 1]) && !is_number(items[at + 2]) && items[at] != items[at + 2] &&
      (items[at] == "ft" || items[at] == "lb" || items[at] == "st" || items[at] == "yd" || items[at] == "mi")) {
    ((out += ' ') += items[at + 1]) += ' ';
    out += unit_spelling(items[at + 2]);
  }
  return out;
}

/// {{as of|2010|5|1}}: "As of 1 May 2010".
std::string as_of(const Parameters& parameters) {
  static constexpr std::array<std::string_view, 12> kMonths = {"January",   "February", "March",    "April",
                                                               "May",       "June",     "July",     "August",
                                                               "September", "October",  "November", "December"};
  if (!parameters.get("alt").empty()) return std::string(parameters.get("alt"));
  std::string out = parameters.get("lc").empty() ? "As of " : "as of ";
  if (!parameters.get("since").empty()) out = parameters.get("lc").empty() ? "Since " : "since ";
  if (!parameters.get("3").empty()) (out += parameters.get("3")) += ' ';
  const std::string_view month = parameters.get("2");
  size_t number = 0;
  std::from_chars(month.data(), month.data() + month.size(), number);
  if (!month.empty()) (out += number >= 1 && number <= kMonths.size() ? kMonths[number - 1] : month) += ' ';
  return out += parameters.get("1");
}

/// {{harvtxt|Smith|Jones|2001|p=5}}: "Smith & Jones (2001, p. 5)"; {{harvnb|Smith|2001}}: "Smith 2001". Other templates of
/// the family stand in parentheses, where they are no words of a sentence. Source: Template:Harvard citation.
std::string harvard_citation(std::string_view name, const Parameters& parameters) {
  const bool text = name == "harvtxt" || name == "harvcoltxt" || name == "harvp" || name == "harvard citation text";
  if (!text && name != "harvnb" && name != "harvcolnb" && name != "harvard citation no brackets") return {};
  const auto& items = parameters.unnamed();
  if (items.size() < 2) return {};
  const size_t authors = items.size() - 1;
  std::string out(items[0]);
  if (authors > 3) {
    out += " et al.";
  } else {
    for (size_t i = 1; i < authors; ++i) ((out += i + 1 == authors ? " & " : ", ") += items[i]);
  }
  std::string year(items.back());
  if (!parameters.get("p").empty()) (year += ", p. ") += parameters.get("p");
  if (!parameters.get("pp").empty()) (year += ", pp. ") += parameters.get("pp");
  if (!parameters.get("loc").empty()) (year += ", ") += parameters.get("loc");
  return text ? out + " (" + year + ")" : out + " " + year;
}

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
  if (function == "lc" || function == "uc" || function == "ucfirst" || function == "lcfirst" ||
      function == "formatnum" || function == "#formatdate" || function == "#dateformat" || function == "nowrap")
    return std::string(argument);
  if (function.starts_with('#')) return std::string();
  return std::nullopt;
}

/// {{subst:name}}, {{template:name}}: the name.
std::string_view without_prefix(std::string_view name) {
  for (const std::string_view prefix : {"subst:", "safesubst:", "template:", "msg:", "msgnw:", "raw:"})
    if (starts_with_any_case(name, prefix)) return trim(name.substr(prefix.size()));
  return name;
}

}  // namespace

std::string expand_template(std::span<const std::string_view> parts, std::string_view title) {
  if (parts.empty()) return {};
  constexpr size_t kLongestName = 200;  // bytes; MediaWiki's limit of titles is 255
  const std::string_view written = without_prefix(trim(parts[0]));
  std::string name = ascii_lower(written.substr(0, kLongestName));
  std::replace(name.begin(), name.end(), '_', ' ');
  std::replace(name.begin(), name.end(), '\n', ' ');
  if (auto value = parser_function(name, parts, title)) return *value;
  const auto parameters = [&] { return Parameters(parts.subspan(1)); };
  if (name == "convert" || name == "cvt") return converted(parameters());
  if (name == "as of" || name == "asof") return as_of(parameters());
  if (is_fraction(name)) return fraction(parameters());
  if (name == "s" || name == "s-") return century(parameters(), "");
  if (name == "-s" || name == "-s-") return century(parameters(), " av. J.-C.");
  if (name == "e" || name == "esp") {
    // English: a power of ten. French: the end of an ordinal. {{ESP}} is a flag.
    const std::string exponent(parameters().get("1"));
    return written == "ESP" ? std::string() : exponent.empty() ? std::string("e") : "×10^" + exponent;
  }
  if (name == "music") return music(parameters().get("1"));
  if (name.starts_with("harv")) {
    if (std::string text = harvard_citation(name, parameters()); !text.empty()) return text;
  }
  if (name.starts_with("lang-")) return std::string(parameters().get("1"));
  const std::string_view* pattern = template_pattern(name);
  const std::string text = pattern == nullptr ? std::string() : fill(*pattern, written, parameters());
  return text.empty() && is_citation(name) ? std::string(1, kCitation) : text;
}

}  // namespace bert
