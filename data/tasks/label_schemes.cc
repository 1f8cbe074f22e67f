#include "data/tasks/label_schemes.h"

#include <fmt/format.h>

#include <algorithm>

#include "data/io/error.h"

namespace bert {
namespace {

bool is_in(LabelScheme scheme, std::string_view label) {
  if (label == "O") return true;
  const bool known = !label.empty() && letters_of(scheme).find(label.front()) != std::string_view::npos;
  return known && (label.size() == 1 || label[1] == '-');
}

}  // namespace

std::string_view letters_of(LabelScheme scheme) {
  switch (scheme) {
    case LabelScheme::kIobes:
      return "BIES";
    case LabelScheme::kBilou:
      return "BILU";
    case LabelScheme::kAny:
    case LabelScheme::kIob1:
    case LabelScheme::kIob2:
      break;
  }
  return "BI";
}

char letter_in_scheme(LabelScheme scheme, int64_t word, int64_t words, bool after_alike) {
  const bool last = word + 1 == words;
  if (scheme == LabelScheme::kIob1) return word == 0 && after_alike ? 'B' : 'I';
  if (scheme == LabelScheme::kIobes && last) return words == 1 ? 'S' : 'E';
  if (scheme == LabelScheme::kBilou && last) return words == 1 ? 'U' : 'L';
  return word == 0 ? 'B' : 'I';
}

LabelScheme scheme_of_labels(const std::vector<std::string>& labels) {
  const auto all_in = [&](LabelScheme scheme) {
    return std::ranges::all_of(labels, [&](const std::string& label) { return is_in(scheme, label); });
  };
  for (const LabelScheme scheme : {LabelScheme::kIobes, LabelScheme::kBilou}) {
    if (all_in(scheme) && !all_in(LabelScheme::kIob2)) return scheme;
  }
  return LabelScheme::kAny;
}

void check_label(LabelScheme scheme, std::string_view label) {
  if (scheme == LabelScheme::kAny || is_in(scheme, label)) return;
  throw DataError(fmt::format("the label \"{}\" is none of the scheme data.label_scheme {}", label,
                              names_of(scheme)[static_cast<size_t>(scheme)]));
}

}  // namespace bert
