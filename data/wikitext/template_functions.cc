// The functions of patterns (Note [Template patterns]).
#include <algorithm>
#include <array>
#include <optional>

#include "data/io/text_parts.h"
#include "data/wikitext/prose_cleaner.h"
#include "data/wikitext/templates.h"
#include "data/wikitext/text_pieces.h"
#include "data/wikitext/wiki_names.h"

namespace bert {
namespace {

bool ends_with_any(std::string_view text, std::initializer_list<std::string_view> ends) {
  return std::ranges::any_of(ends, [&](auto one) { return text.ends_with(one); });
}

/// Bytes of the sign before a number.
size_t sign_bytes(std::string_view text) {
  for (const std::string_view sign : {"-", "−", "–", "+", "±", "~", "≈", "<", ">"})
    if (text.starts_with(sign)) return sign.size();
  return 0;
}

/// True if `text` has digits, and no letters. Arabic and Persian digits count too.
bool is_number(std::string_view text) {
  text.remove_prefix(sign_bytes(text));
  const bool arabic = text.size() > 1 && ((text[0] == '\xD9' && text[1] >= '\xA0' && text[1] <= '\xA9') ||
                                          (text[0] == '\xDB' && text[1] >= '\xB0' && text[1] <= '\xB9'));
  return arabic || (std::ranges::any_of(text, is_ascii_digit) && !has_letter(text));
}

/// The value of a whole number of at most four digits, or 0.
int small_number(std::string_view text) {
  constexpr size_t kMostDigits = 4;
  return text.size() <= kMostDigits ? std::max(number_of<int>(text).value_or(0), 0) : 0;
}

/// "-26" as it is printed, with a minus sign.
std::string printed_number(std::string_view number) {
  const bool negative = number.size() > 1 && number.front() == '-' && is_ascii_digit(number[1]);
  return negative ? "−" + std::string(number.substr(1)) : std::string(number);
}

std::string number(const TemplateCall& call, std::string_view key) { return printed_number(call.parameters.get(key)); }

/// "2": "²"; "-1": "⁻¹".
std::string power(const TemplateCall& call, std::string_view key) {
  static constexpr std::array<std::string_view, 10> kDigits = {"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"};
  std::string out;
  for (const char c : printed_number(call.parameters.get(key))) {
    if (is_ascii_digit(c)) out += kDigits[static_cast<size_t>(c - '0')];
    if (c == '\xE2') out += "⁻";
  }
  return out;
}

/// {{e|5}}: "×10^5"; other text stays.
std::string exponent(const TemplateCall& call, std::string_view key) {
  const std::string text = number(call, key);
  return is_number(text) ? "×10^" + text : text;
}

// ---- dates ----

std::string month_name(std::string_view month, std::string_view language) {
  const int index = small_number(month);
  std::string_view names = language_style(language).months;
  constexpr int kMostMonths = 12;
  if (index < 1 || index > kMostMonths) return std::string(month);
  if (names.empty()) return std::to_string(index);
  for (int i = 1; i < index; ++i) names.remove_prefix(names.find(';') + 1);
  return std::string(names.substr(0, names.find(';')));
}

std::string month(const TemplateCall& call, std::string_view key) {
  return month_name(call.parameters.get(key), call.language);
}

struct Date {
  std::string_view day, month, year;
};

/// The date as the language writes it.
std::string written(const Date& date, std::string_view language) {
  const std::string month = month_name(date.month, language);
  if (month.empty()) return std::string(date.year);
  const bool first = language == "fr" && small_number(date.day) == 1;
  const int day_number = small_number(date.day);
  const std::string day = "d=" + (first            ? std::string("1er")
                                  : day_number > 0 ? std::to_string(day_number)
                                                   : std::string(date.day));
  const std::string m = "m=" + month, year = "y=" + std::string(date.year);
  const std::array<std::string_view, 3> parts = {day, m, year};
  return fill_pattern(language_style(language).date, {{}, language, {}, TemplateParameters(parts)});
}

/// The date in parameters from `first` on: day, month, year; year, month, day; month, year. Empty if there is none.
std::optional<Date> date_from(const TemplateParameters& parameters, size_t first) {
  const auto get = [&](size_t i) { return parameters.get(std::to_string(first + i)); };
  constexpr int kMostDays = 31;
  constexpr size_t kLongestDay = 4;  // bytes: "1er", "1º"
  if (small_number(get(0)) > kMostDays) return Date{get(2), get(1), get(0)};
  if (get(1).empty()) return std::nullopt;
  const bool has_day = get(0).empty() || (is_ascii_digit(get(0).front()) && get(0).size() <= kLongestDay);
  if (!has_day) return small_number(get(1)) > kMostDays ? std::optional(Date{{}, get(0), get(1)}) : std::nullopt;
  // Behind a day and a month may stand a sport or an age.
  const bool has_year = !get(2).empty() && is_ascii_digit(get(2).front());
  return Date{get(0), get(1), has_year ? get(2) : std::string_view()};
}

/// "2005-03-17" or "17.3.2005" in three parts, or nothing.
std::optional<Date> date_in(std::string_view text) {
  const size_t a = text.find_first_of("-./"), b = a == kNone ? kNone : text.find_first_of("-./", a + 1);
  if (b == kNone) return std::nullopt;
  const std::string_view one = text.substr(0, a), two = text.substr(a + 1, b - a - 1), three = text.substr(b + 1);
  if (small_number(one) == 0 || small_number(two) == 0 || small_number(three) == 0) return std::nullopt;
  constexpr size_t kYearDigits = 4;
  return one.size() == kYearDigits ? Date{three, two, one} : Date{one, two, three};
}

/// {{date|17|3|2005}}, {{date|2005|3|17}}, {{date|2005-03-17}}, {{date|17 March 2005}}. `key` is the first parameter,
/// 1 if empty.
std::string date(const TemplateCall& call, std::string_view key) {
  const size_t first = key.empty() ? 1 : static_cast<size_t>(small_number(key));
  const std::string_view whole = call.parameters.get(std::to_string(first));
  if (const auto found = date_from(call.parameters, first)) return written(*found, call.language);
  if (const auto found = date_in(whole)) return written(*found, call.language);
  return std::string(whole);
}

/// True if `text` is a date, as marks of maintenance have it: a year with one word, the month. "May 2010", "15. kesäkuuta
/// 2010", "mayo de 2010", "2010年1月".
bool is_date(std::string_view text) {
  constexpr size_t kLongest = 60, kLongestEnding = 6, kYearDigits = 4;  // bytes
  if (text.size() > kLongest) return false;
  bool has_year = false;
  int words = 0;
  while (!text.empty()) {
    std::string token = folded_name(take_part(text, ' '));
    const auto digits = static_cast<size_t>(std::ranges::count_if(token, is_ascii_digit));
    has_year = has_year || digits >= kYearDigits || (digits == 0 && is_number(token));
    for (const std::string_view word : {"年", "月", "日", "년", "월", "일", "tháng", "ngày", "năm"})
      token = replaced(token, word, "");
    if (digits > 0) {
      words += token.size() > digits + kLongestEnding ? 2 : 0;  // words without spaces between them
    } else {
      words += has_letter(token) && !token.starts_with('(') && token != "de" && !is_number(token);
    }
  }
  return has_year && words <= 1;
}

/// A day of the Julian or the Gregorian calendar. Source of the formulas: Fliegel and Van Flandern, CACM 11 (1968), 657.
struct Day {
  int year, month, day;
};

int julian_day(const Day& date) {
  const int a = (14 - date.month) / 12, y = date.year + 4800 - a, m = date.month + 12 * a - 3;
  return date.day + (153 * m + 2) / 5 + 365 * y + y / 4 - 32083;
}

Day gregorian(int julian_day) {
  const int a = julian_day + 32044, b = (4 * a + 3) / 146097, c = a - 146097 * b / 4, d = (4 * c + 3) / 1461;
  const int e = c - 1461 * d / 4, m = (5 * e + 2) / 153;
  return {100 * b + d - 4800 + m / 10, m + 3 - 12 * (m / 10), e - (153 * m + 2) / 5 + 1};
}

/// Russian {{СС3|6.3.1868}}: "6 [18] марта 1868", a date of the Julian calendar and of ours. Source: Шаблон:СС3.
std::string julian(const TemplateCall& call, std::string_view) {
  auto found = date_in(call.parameters.get("1"));
  if (!found) found = date_from(call.parameters, 1);
  if (!found || small_number(found->day) == 0 || small_number(found->month) == 0 || small_number(found->year) == 0)
    return std::string(call.parameters.get("1"));
  const Day old = {small_number(found->year), small_number(found->month), small_number(found->day)};
  const Day now = gregorian(julian_day(old));
  const std::string old_month = month_name(std::to_string(old.month), call.language);
  std::string out = std::to_string(old.day);
  if (old.month != now.month) (out += ' ') += old_month;
  if (old.year != now.year) (out += ' ') += std::to_string(old.year);
  ((out += " [") += std::to_string(now.day)) += old.month == now.month ? "] " : " ";
  out += month_name(std::to_string(now.month), call.language);
  if (old.month != now.month && old.year == now.year) out += ']';
  (out += ' ') += std::to_string(now.year);
  return old.year != now.year ? out + "]" : out;
}

/// {{as of|2010|5|1}}: "As of 1 May 2010"; in other languages than English the date alone.
std::string as_of(const TemplateCall& call, std::string_view) {
  const TemplateParameters& parameters = call.parameters;
  if (!parameters.get("alt").empty()) return std::string(parameters.get("alt"));
  if (!call.language.empty() && call.language != "en") return date(call, {});
  std::string out = parameters.get("lc").empty() ? "As of " : "as of ";
  if (!parameters.get("since").empty()) out = parameters.get("lc").empty() ? "Since " : "since ";
  if (!parameters.get("3").empty()) (out += parameters.get("3")) += ' ';
  const std::string month = month_name(parameters.get("2"), "en");
  if (!month.empty()) (out += month) += ' ';
  return out += parameters.get("1");
}

// ---- words ----

/// True for "de" and "zh-hans".
bool is_language_code(std::string_view text) {
  const std::string_view code = text.substr(0, text.find('-'));
  return (code.size() == 2 || code.size() == 3) &&
         std::ranges::all_of(code, [](char c) { return c >= 'a' && c <= 'z'; });
}

/// True for names of files, addresses, colours (#fff), properties of Wikidata (P31), and what has no letter.
bool is_no_prose(std::string_view text) {
  const bool property = text.size() > 1 && (text[0] == 'P' || text[0] == 'Q') && is_number(text.substr(1));
  return property || !has_letter(text) || text.find("://") != kNone || text.starts_with("www.") ||
         text.starts_with('#') ||
         ends_with_any(ascii_lower(text), {".ogg", ".oga", ".wav", ".mp3", ".webm", ".jpg", ".jpeg", ".png", ".svg",
                                           ".gif", ".tif", ".pdf"});
}

/// True for the sentence of a footnote.
bool is_whole_sentence(std::string_view text) {
  constexpr auto kFewestSpaces = 3;
  return (ends_with_any(text, {".", "。", "!", "?"}) && std::ranges::count(text, ' ') >= kFewestSpaces) ||
         text.ends_with("。");
}

/// The words that a template encloses to mark them: {{citation needed|the words|date=May 2010}}. A date is none.
std::string prose(const TemplateCall& call, std::string_view key) {
  const std::string_view text = call.parameters.get(key);
  return is_no_prose(text) || is_date(text) ? std::string() : std::string(text);
}

/// True if the first three parameters are a date: 17, 3, 2005; 2005, 3, 17; 17, mars, 2005.
bool is_date_of_three(const TemplateCall& call) {
  constexpr int kMostDays = 31, kMostMonths = 12;
  const int first = small_number(call.parameters.get("1")), last = small_number(call.parameters.get("3"));
  if (first == 0 || last == 0 || (first > kMostDays) == (last > kMostDays)) return false;
  const std::string_view month = call.parameters.get("2");
  if (small_number(month) > 0) return small_number(month) <= kMostMonths;
  const std::string names = ";" + std::string(language_style(call.language).months) + ";";
  return !month.empty() && folded_name(names).find(";" + folded_name(month) + ";") != kNone;
}

/// The words or the number that an unknown template has as its first parameter.
std::string words(const TemplateCall& call, std::string_view) {
  const auto& items = call.parameters.unnamed();
  const bool is_block = std::ranges::any_of(items, [](auto item) { return item.find('\n') != kNone; });
  if (items.empty() || items[0].empty() || is_block) return {};
  const auto get = [&](size_t i) { return i < items.size() ? items[i] : std::string_view(); };
  if (is_number(items[0])) {
    if (is_date_of_three(call) || date_in(items[0])) return date(call, {});
    constexpr size_t kLongestUnit = 24;  // bytes
    std::string out = printed_number(items[0]);
    const std::string_view unit = get(1);
    if (unit.empty() || unit.size() > kLongestUnit || is_number(unit)) return out;
    (out += ' ') += unit;
    return get(2) == "2" || get(2) == "3" ? out + power(call, "3") : out;
  }
  if (is_language_code(items[0])) return is_no_prose(get(1)) ? std::string() : std::string(get(1));
  return is_no_prose(items[0]) || is_whole_sentence(items[0]) ? std::string() : std::string(items[0]);
}

/// True if no part of `text` between commas has more than three letters.
bool is_of_sounds(std::string_view text) {
  constexpr int kMostLetters = 3;
  int letters = 0;
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    // Signs of stress and length, U+02C0 to U+036F, are no letters.
    letters += byte < 0x80 ? is_ascii_letter(c) : byte >= 0xC0 && (byte < 0xCB || byte > 0xCD);
    if (c == ',') letters = 0;
    if (letters > kMostLetters) return false;
  }
  return true;
}

/// Sounds. A sound of a language is a word of its sentence; the pronunciation of a word is left out: it stands in
/// parentheses, or has more letters.
std::string sound(const TemplateCall& call, std::string_view) {
  const std::string_view first = call.parameters.get("1"), second = call.parameters.get("2");
  const std::string_view text = is_language_code(first) && !second.empty() ? second : first;
  return is_in_parentheses(call.before) || !is_of_sounds(text) ? std::string() : std::string(text);
}

// ---- measures ----

/// {{frac|3}}: "1/3"; {{frac|2|3}}: "2/3"; {{frac|1|2|3}}: "1 2/3". Behind a whole number it stands apart. Source:
/// Template:Fraction.
std::string fraction(const TemplateCall& call, std::string_view) {
  const auto& items = call.parameters.unnamed();
  if (items.empty() || items.size() > 3) return {};
  std::string out = !call.before.empty() && is_ascii_digit(call.before.back()) ? " " : "";
  if (items.size() == 3) (out += items[0]) += ' ';
  out += items.size() == 1 ? "1" : items[items.size() - 2];
  return (out += '/') += items.back();
}

using Spelling = std::pair<std::string_view, std::string_view>;

/// The spelling of a unit of {{convert}}: "km2", "million barrels per day". Source: Template:Convert/list_of_units.
std::string unit_spelling(std::string_view unit) {
  static constexpr std::array<Spelling, 5> kFactors = {
      {{"e3", "thousand "}, {"e6", "million "}, {"e9", "billion "}, {"k", "thousand "}, {"M", "million "}}};
  static constexpr std::array<Spelling, 15> kSpellings = {{{"sqmi", "sq mi"},
                                                           {"sqkm", "km2"},
                                                           {"sqft", "sq ft"},
                                                           {"sqyd", "sq yd"},
                                                           {"cuft", "cu ft"},
                                                           {"cuyd", "cu yd"},
                                                           {"C", "°C"},
                                                           {"F", "°F"},
                                                           {"impgal", "imp gal"},
                                                           {"USgal", "US gal"},
                                                           {"ftin", "ft"},
                                                           {"oilbbl", "barrels"},
                                                           {"oilbbl/d", "barrels per day"},
                                                           {"oilbbl/a", "barrels per year"},
                                                           {"carat", "carats"}}};
  std::string factor;
  for (const auto& [written, word] : kFactors) {
    // A letter is a factor before barrels of oil alone: km is a unit by itself.
    if (!unit.starts_with(written) || (written.size() == 1 && !unit.substr(1).starts_with("oilbbl"))) continue;
    factor = word;
    unit.remove_prefix(written.size());
    break;
  }
  const auto* found = std::ranges::find_if(kSpellings, [&](const auto& entry) { return entry.first == unit; });
  return factor + std::string(found == kSpellings.end() ? unit : found->second);
}

/// 10000: "10,000", as the language writes it. Numbers that are written otherwise stay.
std::string with_thousands(std::string_view number, std::string_view language) {
  std::string printed = printed_number(number);
  const size_t begin = sign_bytes(printed);
  const size_t end = std::min(printed.find_first_not_of("0123456789", begin), printed.size());
  const bool decimal = end == printed.size() || (printed[end] == '.' && end + 1 < printed.size());
  const LanguageStyle style = language_style(language);
  if (!decimal || end - begin < style.fewest_digits) return printed;
  std::string out = printed.substr(0, begin);
  for (size_t i = begin; i < end; ++i) {
    if (i > begin && (end - i) % 3 == 0) out += style.thousands;
    out += printed[i];
  }
  return out + printed.substr(end);
}

/// {{convert|5|km|mi}}: "5 km"; {{convert|5|to|7|km}}: "5 to 7 km"; {{convert|6|ft|4|in}}: "6 ft 4 in".
std::string converted(const TemplateCall& call, std::string_view) {
  static constexpr std::array<std::string_view, 14> kJoins = {"-",  "–", "and", "and(-)", "or",  "to", "to(-)",
                                                              "by", "x", "×",   "+",      "+/-", "±",  "*"};
  const auto& items = call.parameters.unnamed();
  const auto is_join = [](std::string_view text) { return std::ranges::find(kJoins, text) != kJoins.end(); };
  const auto is_value = [](std::string_view text) {
    return !text.empty() && (is_ascii_digit(text.front()) || text.starts_with("-") || text.starts_with("−"));
  };
  if (items.empty()) return {};
  std::string out = with_thousands(items[0], call.language);
  size_t at = 1;
  for (; at + 1 < items.size() && is_join(items[at]) && is_value(items[at + 1]); at += 2) {
    if (items[at] == "-" || items[at] == "–") {
      out += "–";
    } else {
      ((out += ' ') += items[at].substr(0, items[at].find('('))) += ' ';
    }
    out += with_thousands(items[at + 1], call.language);
  }
  if (at < items.size()) (out += ' ') += unit_spelling(items[at]);
  if (at + 2 < items.size() && is_value(items[at + 1]) && !is_value(items[at + 2]) && items[at] != items[at + 2] &&
      (items[at] == "ft" || items[at] == "lb" || items[at] == "st" || items[at] == "yd" || items[at] == "mi")) {
    ((out += ' ') += items[at + 1]) += ' ';
    out += unit_spelling(items[at + 2]);
  }
  return out;
}

/// {{harvtxt|Smith|Jones|2001|p=5}}: "Smith & Jones (2001, p. 5)"; {{harvnb|Smith|2001}}: "Smith 2001". Other templates of
/// the family stand in parentheses, where they are no words of a sentence. Source: Template:Harvard citation.
std::string harvard(const TemplateCall& call, std::string_view) {
  const std::string name = ascii_lower(call.name);
  const bool text = name == "harvtxt" || name == "harvcoltxt" || name == "harvp" || name == "harvard citation text";
  if (!text && name != "harvnb" && name != "harvcolnb" && name != "harvard citation no brackets") return {};
  const auto& items = call.parameters.unnamed();
  if (items.size() < 2) return {};
  const size_t authors = items.size() - 1;
  std::string out(items[0]);
  if (authors > 3) {
    out += " et al.";
  } else {
    for (size_t i = 1; i < authors; ++i) ((out += i + 1 == authors ? " & " : ", ") += items[i]);
  }
  std::string year(items.back());
  const std::string_view page = call.parameters.get("p"), pages = call.parameters.get("pp");
  const std::string_view place = call.parameters.get("loc");
  if (!page.empty()) (year += ", p. ") += page;
  if (!pages.empty()) (year += ", pp. ") += pages;
  if (!place.empty()) (year += ", ") += place;
  return text ? out + " (" + year + ")" : out + " " + year;
}

}  // namespace

TemplateFunction template_function(std::string_view name) {
  using Named = std::pair<std::string_view, TemplateFunction>;
  static constexpr std::array<Named, 13> kFunctions = {{
      {"power", power},
      {"number", number},
      {"exponent", exponent},
      {"month", month},
      {"date", date},
      {"julian", julian},
      {"asof", as_of},
      {"prose", prose},
      {"words", words},
      {"sound", sound},
      {"fraction", fraction},
      {"convert", converted},
      {"harvard", harvard},
  }};
  for (const auto& [known, function] : kFunctions)
    if (known == name) return function;
  return nullptr;
}

}  // namespace bert
