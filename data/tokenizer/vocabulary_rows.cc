#include "data/tokenizer/vocabulary_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <unordered_set>

namespace bert {

std::string VocabularyRows::text() const {
  const std::string so_far = unknown > 0 ? fmt::format(" ({} of them [UNK] so far)", unknown) : "";
  return fmt::format("{} rows kept, {} moved, {} new{}, {} dropped", kept, moved, new_ids.size(), so_far, dropped);
}

VocabularyRows vocabulary_rows(const std::vector<std::string>& tokens, const WordPieceTokenizer& old) {
  const Vocabulary& before = old.vocabulary();
  VocabularyRows rows;
  for (size_t id = 0; id < tokens.size(); ++id) {
    const std::string& token = tokens[id];
    const bool in_place = id < before.tokens().size() && before.tokens()[id] == token;
    const int32_t old_id = in_place ? static_cast<int32_t>(id) : before.find(token);
    if (old_id >= 0) {
      ++(in_place ? rows.kept : rows.moved);
      rows.sources.push_back({old_id});
      continue;
    }
    std::vector<int32_t> pieces = old.encode_token(token);
    if (pieces.empty()) pieces = {before.unk_id()};  // text that the old tokenizer drops
    if (std::ranges::all_of(pieces, [&](int32_t piece) { return piece == before.unk_id(); })) ++rows.unknown;
    rows.new_ids.push_back(static_cast<int32_t>(id));
    rows.sources.push_back(std::move(pieces));
  }
  const std::unordered_set<std::string_view> now(tokens.begin(), tokens.end());
  rows.dropped = std::ranges::count_if(before.tokens(), [&](const std::string& token) { return !now.contains(token); });
  return rows;
}

}  // namespace bert
