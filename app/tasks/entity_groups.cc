#include "app/tasks/entity_groups.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace bert {
namespace {

/// Appends a part of an entity: a sign that ends a clause has no space before it, as the decoder of WordPiece writes.
void append_part(std::string& words, const std::string& part) {
  const bool sign = part.find_first_of(".?!,") == 0;
  if (!words.empty() && !sign) words += ' ';
  words += part;
}

Entity entity_of(const TaggedToken& token, const std::vector<std::string>& labels) {
  const size_t best = best_of(token.scores);
  return {.label = labels.at(best),
          .score = token.scores[best],
          .word = token.piece,
          .begin = token.begin,
          .end = token.end,
          .index = token.index};
}

/// The label of a word with these tokens.
Entity word_of(std::span<const TaggedToken> tokens, const std::vector<std::string>& labels, Aggregation aggregation) {
  TaggedToken word = tokens.front();
  if (aggregation == Aggregation::kMax) {
    word.scores = std::max_element(tokens.begin(), tokens.end(), [](const TaggedToken& a, const TaggedToken& b) {
                    return a.scores[best_of(a.scores)] < b.scores[best_of(b.scores)];
                  })->scores;
  } else if (aggregation == Aggregation::kAverage) {
    for (const TaggedToken& token : tokens.subspan(1)) {
      for (size_t i = 0; i < word.scores.size(); ++i) word.scores[i] += token.scores[i];
    }
    for (double& score : word.scores) score /= static_cast<double>(tokens.size());
  }
  word.piece.clear();
  for (const TaggedToken& token : tokens) word.piece += token.text;
  word.end = tokens.back().end;
  return entity_of(word, labels);
}

/// The end of the word whose first token is at `begin`.
size_t end_of_word(std::span<const TaggedToken> tokens, size_t begin) {
  size_t end = begin + 1;
  while (end < tokens.size() && !tokens[end].begins_word) ++end;
  return end;
}

/// The letters that labels begin with before a dash.
struct Letters {
  std::string_view begin = "B", inside = "I", last = {};

  [[nodiscard]] static bool has(std::string_view letters, std::string_view label) {
    return label.size() > 1 && label[1] == '-' && letters.find(label[0]) != std::string_view::npos;
  }
  /// "PER" of "B-PER" and "I-PER"; other labels have no such part.
  [[nodiscard]] std::string_view tag_of(std::string_view label) const {
    return has(begin, label) || has(inside, label) ? label.substr(2) : label;
  }
};

Letters letters_of(const std::vector<std::string>& labels) {
  constexpr std::array<Letters, 2> kWithEnds = {Letters{.begin = "BS", .inside = "IE", .last = "ES"},
                                                Letters{.begin = "BU", .inside = "IL", .last = "LU"}};
  const auto any = [&](std::string_view letters) {
    return std::ranges::any_of(labels, [&](const std::string& label) { return Letters::has(letters, label); });
  };
  for (const Letters& each : kWithEnds) {
    const bool fits = std::ranges::all_of(labels, [&](const std::string& label) {
      return label == "O" || Letters::has(each.begin, label) || Letters::has(each.inside, label);
    });
    if (fits && any(each.last)) return each;
  }
  return {};
}

/// A token, or a word of several, with its label.
struct Part {
  Entity entity;
  std::string text;         // without the mark of a piece
  bool begins_word = true;  // a space stands before it
};

/// Joins neighbours with one tag, up to a label that begins or ends an entity.
std::vector<Entity> grouped(std::span<const Part> parts, const Letters& letters) {
  std::vector<Entity> groups;
  for (size_t begin = 0; begin < parts.size();) {
    Entity group = parts[begin].entity;
    const std::string_view tag = letters.tag_of(parts[begin].entity.label);
    size_t end = begin + 1;
    for (; end < parts.size(); ++end) {
      const Entity& next = parts[end].entity;
      if (Letters::has(letters.last, parts[end - 1].entity.label) || Letters::has(letters.begin, next.label) ||
          letters.tag_of(next.label) != tag)
        break;
      group.score += next.score;
      group.end = next.end;
      parts[end].begins_word ? append_part(group.word, parts[end].text)
                             : static_cast<void>(group.word += parts[end].text);
    }
    group.score /= static_cast<double>(end - begin);
    group.label = group.label.substr(group.label.find('-') + 1);  // of a label without "-" all of it
    groups.push_back(std::move(group));
    begin = end;
  }
  return groups;
}

}  // namespace

size_t best_of(const std::vector<double>& scores) {
  return static_cast<size_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
}

std::vector<Entity> group_entities(std::span<const TaggedToken> tokens, const std::vector<std::string>& labels,
                                   Aggregation aggregation, const std::vector<std::string>& ignored) {
  const bool words = aggregation != Aggregation::kNone && aggregation != Aggregation::kSimple;
  std::vector<Part> parts;
  for (size_t begin = 0, end = 0; begin < tokens.size(); begin = end) {
    end = words ? end_of_word(tokens, begin) : begin + 1;
    Part part;
    part.entity =
        words ? word_of(tokens.subspan(begin, end - begin), labels, aggregation) : entity_of(tokens[begin], labels);
    part.text = words ? part.entity.word : tokens[begin].text;
    part.begins_word = words || tokens[begin].begins_word;
    parts.push_back(std::move(part));
  }
  std::vector<Entity> entities;
  if (aggregation == Aggregation::kNone) {
    for (Part& part : parts) entities.push_back(std::move(part.entity));
  } else {
    entities = grouped(parts, letters_of(labels));
  }
  std::erase_if(entities, [&](const Entity& entity) {
    return std::find(ignored.begin(), ignored.end(), entity.label) != ignored.end();
  });
  return entities;
}

}  // namespace bert
