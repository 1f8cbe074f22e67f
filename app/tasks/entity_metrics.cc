#include "app/tasks/entity_metrics.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "data/tasks/label_schemes.h"
#include "data/text/unicode.h"

namespace bert {
namespace {

/// A tag in two parts: "B-PER" is 'B' and "PER".
struct Tag {
  char32_t kind = 'O';
  std::string type;
};

Tag parse_tag(std::string_view text) {
  if (text.empty()) return {};
  const DecodedUtf8 first = decode_utf8(text);
  text.remove_prefix(static_cast<size_t>(first.bytes));
  const size_t dash = text.find('-');
  if (dash != std::string_view::npos) text.remove_prefix(dash + 1);
  return {first.value, text.empty() ? "_" : std::string(text)};
}

bool is_any_of(char32_t kind, std::u32string_view kinds) { return kinds.find(kind) != std::u32string_view::npos; }

bool ends_before(const Tag& before, const Tag& tag) {
  if (is_any_of(before.kind, U"ES")) return true;
  if (is_any_of(before.kind, U"BI") && is_any_of(tag.kind, U"BSO")) return true;
  return !is_any_of(before.kind, U"O.") && before.type != tag.type;
}

bool starts_at(const Tag& before, const Tag& tag) {
  if (is_any_of(tag.kind, U"BS")) return true;
  if (is_any_of(before.kind, U"ESO") && is_any_of(tag.kind, U"EI")) return true;
  return !is_any_of(tag.kind, U"O.") && before.type != tag.type;
}

/// A tag of BILOU with the letters of IOBES.
Tag in_iobes(Tag tag, LabelScheme scheme) {
  if (scheme == LabelScheme::kBilou) tag.kind = tag.kind == 'L' ? 'E' : tag.kind == 'U' ? 'S' : tag.kind;
  return tag;
}

// The patterns of seqeval/scheme.py: start_patterns, inside_patterns and end_patterns.

bool strictly_starts(const Tag& before, const Tag& tag, LabelScheme scheme) {
  if (scheme != LabelScheme::kIob1) return is_any_of(tag.kind, U"BS");
  const bool same = before.type == tag.type;
  if (tag.kind == 'B') return is_any_of(before.kind, U"BI") && same;
  return tag.kind == 'I' && (is_any_of(before.kind, U"OB") || !same);
}

bool strictly_continues(const Tag& before, const Tag& tag, LabelScheme scheme) {
  const bool ends = scheme == LabelScheme::kIobes || scheme == LabelScheme::kBilou;
  return is_any_of(before.kind, U"BI") && is_any_of(tag.kind, ends ? U"IE" : U"I") && before.type == tag.type;
}

bool strictly_ends(const Tag& before, const Tag& tag, LabelScheme scheme) {
  if (scheme == LabelScheme::kIobes || scheme == LabelScheme::kBilou) return is_any_of(before.kind, U"ES");
  if (tag.kind == 'I') return before.type != tag.type;
  const bool other = scheme == LabelScheme::kIob1 && before.kind == 'B' && tag.kind == 'B' && before.type != tag.type;
  return is_any_of(tag.kind, U"BO") && !other;
}

double ratio(double part, double whole) { return whole == 0 ? 0 : part / whole; }

}  // namespace

std::vector<EntitySpan> entities_of(const std::vector<std::string>& tags) {
  std::vector<EntitySpan> entities;
  Tag before;
  int64_t first = 0;
  for (size_t i = 0; i <= tags.size(); ++i) {
    const Tag tag = i < tags.size() ? parse_tag(tags[i]) : Tag{'O', "_"};
    const auto at = static_cast<int64_t>(i);
    if (ends_before(before, tag)) entities.push_back({before.type, first, at - 1});
    if (starts_at(before, tag)) first = at;
    before = tag;
  }
  std::sort(entities.begin(), entities.end());
  entities.erase(std::unique(entities.begin(), entities.end()), entities.end());
  return entities;
}

std::vector<EntitySpan> strict_entities_of(const std::vector<std::string>& tags, LabelScheme scheme) {
  std::vector<Tag> parsed;
  for (const std::string& tag : tags) {
    check_label(scheme, tag);
    parsed.push_back(in_iobes(parse_tag(tag), scheme));
  }
  parsed.emplace_back();
  std::vector<EntitySpan> entities;
  Tag before;
  for (size_t i = 0; i < parsed.size();) {
    const size_t first = i++;
    if (strictly_starts(before, parsed[first], scheme)) {
      while (strictly_continues(parsed[i - 1], parsed[i], scheme)) ++i;
      if (strictly_ends(parsed[i - 1], parsed[i], scheme))
        entities.push_back({parsed[first].type, static_cast<int64_t>(first), static_cast<int64_t>(i) - 1});
    }
    before = parsed[i - 1];
  }
  std::sort(entities.begin(), entities.end());
  return entities;
}

EntityScores entity_scores(const std::vector<std::vector<std::string>>& labels,
                           const std::vector<std::vector<std::string>>& predictions, LabelScheme scheme) {
  const auto find = [&](const std::vector<std::string>& tags) {
    return scheme == LabelScheme::kAny ? entities_of(tags) : strict_entities_of(tags, scheme);
  };
  double of_labels = 0, of_predictions = 0, both = 0, words = 0, same_words = 0;
  for (size_t i = 0; i < labels.size(); ++i) {
    const std::vector<EntitySpan> wanted = find(labels[i]), got = find(predictions[i]);
    std::vector<EntitySpan> common;
    std::set_intersection(wanted.begin(), wanted.end(), got.begin(), got.end(), std::back_inserter(common));
    of_labels += static_cast<double>(wanted.size());
    of_predictions += static_cast<double>(got.size());
    both += static_cast<double>(common.size());
    words += static_cast<double>(labels[i].size());
    for (size_t word = 0; word < labels[i].size(); ++word) same_words += labels[i][word] == predictions[i][word];
  }
  EntityScores scores{.precision = ratio(both, of_predictions), .recall = ratio(both, of_labels)};
  scores.f1 = ratio(2 * scores.precision * scores.recall, scores.precision + scores.recall);
  scores.accuracy = ratio(same_words, words);
  return scores;
}

}  // namespace bert
