#include "data/tokenizer/vocabulary.h"

#include <fmt/format.h>

#include <algorithm>

#include "data/io/error.h"
#include "data/io/files.h"
#include "data/text/unicode.h"

namespace bert {
namespace {

constexpr int64_t kMaxFileBytes = int64_t{1}
                                  << 30;  // far above any vocabulary: refuses a wrong file before it fills the memory

std::string joined(const std::vector<std::string>& tokens) {
  std::string text;
  for (const std::string& token : tokens) text.append(token).push_back('\n');
  return text;
}

}  // namespace

Vocabulary::Vocabulary(std::vector<std::string> tokens, const std::string& name, std::vector<AddedToken> added)
    : Vocabulary(std::move(tokens), SpecialTokens{}, name) {
  added_ = std::move(added);
  std::ranges::sort(added_, [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  for (const AddedToken& token : added_) {
    if (token.id < 0 || token.id >= size())
      throw DataError(
          fmt::format("{}: an added token has the id {}; expected one of 0 to {}", name, token.id, size() - 1));
  }
}

Vocabulary::Vocabulary(std::vector<std::string> tokens, const SpecialTokens& special, const std::string& name)
    : tokens_(std::move(tokens)) {
  ids_.reserve(tokens_.size());
  for (size_t id = 0; id < tokens_.size(); ++id) {
    if (count_invalid_utf8(tokens_[id]) > 0) {
      throw DataError(fmt::format("{}: line {}: the token is not UTF-8. Give a vocabulary of one UTF-8 token per line.",
                                  name, id + 1));
    }
    ids_[tokens_[id]] = static_cast<int32_t>(id);
  }
  std::string missing;
  const std::array<std::string_view, 5> names{special.pad, special.unk, special.cls, special.sep, special.mask};
  for (size_t i = 0; i < names.size(); ++i) {
    special_ids_[i] = find(names[i]);
    if (special_ids_[i] < 0) missing.append(" ").append(names[i]);
  }
  if (!missing.empty()) {
    throw DataError(fmt::format(
        "{}: {} tokens, without{}. A BERT vocabulary is one token per line and holds all of [PAD] [UNK] [CLS] "
        "[SEP] [MASK]; `bert vocab` learns one.",
        name, tokens_.size(), missing));
  }
}

Vocabulary Vocabulary::load(const std::string& path) {
  const std::string text = read_file(path, kMaxFileBytes);
  std::vector<std::string> tokens;
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";  // of editors on Windows
  for (size_t begin = text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    tokens.emplace_back(strip_space(std::string_view(text).substr(begin, end - begin)));
    begin = end + 1;
  }
  return Vocabulary(std::move(tokens), path);
}

const std::string& Vocabulary::token(int64_t id) const {
  if (id < 0 || id >= size()) {
    throw DataError(fmt::format(
        "token id {} is outside of the vocabulary's 0..{}. Is this the vocabulary that the ids were made with?", id,
        size() - 1));
  }
  return tokens_[static_cast<size_t>(id)];
}

int32_t Vocabulary::find(std::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? -1 : found->second;
}

int64_t Vocabulary::base_size() const {
  int64_t end = size();
  for (auto token = added_.rbegin(); token != added_.rend() && token->id == end - 1; ++token) --end;
  return end;
}

bool Vocabulary::is_special(int64_t id) const {
  return std::ranges::find(special_ids_, id) != special_ids_.end() ||
         std::ranges::any_of(added_, [id](const AddedToken& a) { return a.special && a.id == id; });
}

std::string Vocabulary::hash() const {
  const std::string text = joined(tokens_);
  return checksum(text.data(), text.size());
}

}  // namespace bert
