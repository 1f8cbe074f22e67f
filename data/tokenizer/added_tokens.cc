#include "data/tokenizer/added_tokens.h"

#include <algorithm>
#include <string>
#include <utility>

#include "data/tokenizer/vocabulary.h"

namespace bert {
namespace {

/// True if a match at `span` has no letter, digit or underscore beside it.
bool is_single_word(std::string_view text, const TextSpan& span) {
  const auto begin = static_cast<size_t>(span.begin), end = static_cast<size_t>(span.end);
  size_t before = begin;
  while (before > 0 && begin - before < 4) {  // at most four bytes of UTF-8
    --before;
    if ((static_cast<unsigned char>(text[before]) & 0xC0U) != 0x80U) break;
  }
  const bool word_before = before < begin && is_word_character(decode_utf8(text.substr(before)).value);
  const bool word_behind = end < text.size() && is_word_character(decode_utf8(text.substr(end)).value);
  return !word_before && !word_behind;
}

}  // namespace

void AddedTokenSearch::Tokens::index() {
  std::vector<std::pair<std::string_view, int32_t>> keys;
  for (const auto& [text, id] : texts) {
    if (text.empty()) continue;
    keys.emplace_back(text, id);
    if (first_bytes.find(text[0]) == std::string::npos) first_bytes.push_back(text[0]);
  }
  tree = DoubleArray(keys);
}

AddedTokenSearch::AddedTokenSearch(const Vocabulary& vocabulary, const TokenizerConfig& config)
    : folding_{.lower_case = config.do_lower_case,
               .strip_accents = config.strips_accents(),
               .final_sigma = config.final_sigma},
      splits_ideographs_(config.tokenize_chinese_chars) {
  if (config.match_special_tokens) {
    for (const int32_t id : vocabulary.special_ids()) raw_.texts.emplace_back(vocabulary.token(id), id);
  }
  for (const AddedToken& token : vocabulary.added()) {
    const std::string& text = vocabulary.token(token.id);
    if (token.normalized) {
      normalized_.texts.emplace_back(normalize(text, nullptr), token.id);
    } else {
      raw_.texts.emplace_back(text, token.id);
    }
    if (token.single_word) single_words_.push_back(token.id);
  }
  raw_.index();
  normalized_.index();
}

void AddedTokenSearch::find_in(const Tokens& tokens, std::string_view text, std::vector<Match>& matches) const {
  for (size_t begin = 0; (begin = text.find_first_of(tokens.first_bytes, begin)) != std::string_view::npos;) {
    Match match;
    int32_t node = DoubleArray::kRoot;
    for (size_t at = begin; at < text.size();) {
      node = tokens.tree.next(node, static_cast<unsigned char>(text[at++]));
      if (node == DoubleArray::kNone) break;
      if (const int32_t id = tokens.tree.value(node); id != DoubleArray::kNone)
        match = {.span = {static_cast<int64_t>(begin), static_cast<int64_t>(at)}, .id = id};
    }
    if (match.span.end == 0) {
      ++begin;
      continue;
    }
    begin = static_cast<size_t>(match.span.end);
    const bool wants_word = std::ranges::find(single_words_, match.id) != single_words_.end();
    if (!wants_word || is_single_word(text, match.span)) matches.push_back(match);
  }
}

std::string AddedTokenSearch::normalize(std::string_view text, std::vector<TextSpan>* sources) const {
  const FoldTable& fold = FoldTable::shared(folding_);
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const DecodedUtf8 decoded = decode_utf8(text.substr(at));
    const TextSpan from{static_cast<int64_t>(at), static_cast<int64_t>(at) + decoded.bytes};
    at += static_cast<size_t>(decoded.bytes);
    if (decoded.value == kInvalidUtf8) continue;
    const Folded& folded = fold[decoded.value];
    const std::string_view utf8(folded.utf8.data(), folded.bytes);
    switch (folded.kind) {
      case CharacterKind::kDropped:
        break;
      case CharacterKind::kSpace:
        result += ' ';
        break;
      case CharacterKind::kCjk:
        result.append(splits_ideographs_ ? " " : "").append(utf8).append(splits_ideographs_ ? " " : "");
        break;
      case CharacterKind::kContext: {
        std::vector<SourceCharacter> alone = {{decoded.value, from.begin, from.end}};
        fold_in_context(alone, folding_);
        for (const SourceCharacter& character : alone) append_utf8(character.value, result);
        break;
      }
      default:
        result.append(utf8);
    }
    if (sources != nullptr) sources->resize(result.size(), from);
  }
  return result;
}

void AddedTokenSearch::find_normalized(std::string_view text, int64_t offset, std::vector<Match>& matches) const {
  std::vector<TextSpan> sources;
  const std::string folded = normalize(text, &sources);
  std::vector<Match> found;
  find_in(normalized_, folded, found);
  for (const Match& match : found) {
    const TextSpan first = sources[static_cast<size_t>(match.span.begin)],
                   last = sources[static_cast<size_t>(match.span.end) - 1];
    matches.push_back({.span = {offset + first.begin, offset + last.end}, .id = match.id});
  }
}

std::vector<AddedTokenSearch::Match> AddedTokenSearch::find(std::string_view text) const {
  std::vector<Match> raw;
  find_in(raw_, text, raw);
  if (normalized_.texts.empty()) return raw;
  std::vector<Match> all;
  int64_t begin = 0;
  const auto search_up_to = [&](int64_t end) {
    find_normalized(text.substr(static_cast<size_t>(begin), static_cast<size_t>(end - begin)), begin, all);
  };
  for (const Match& match : raw) {
    search_up_to(match.span.begin);
    all.push_back(match);
    begin = match.span.end;
  }
  search_up_to(static_cast<int64_t>(text.size()));
  return all;
}

}  // namespace bert
