#include "data/tokenizer/tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "data/io/error.h"
#include "data/text/unicode.h"

namespace bert {
namespace {

constexpr std::string_view kContinuationPrefix = "##";

/// Key and id of the tokens that begin with ## (if `continuation`; the key is without ##), or of the others.
std::vector<std::pair<std::string_view, int32_t>> keys(const Vocabulary& vocabulary, bool continuation) {
  std::vector<std::pair<std::string_view, int32_t>> result;
  for (int64_t id = 0; id < vocabulary.base_size(); ++id) {
    std::string_view token = vocabulary.token(id);
    if (token.starts_with(kContinuationPrefix) != continuation) continue;
    if (continuation) token.remove_prefix(kContinuationPrefix.size());
    if (!token.empty()) result.emplace_back(token, static_cast<int32_t>(id));
  }
  return result;
}

}  // namespace

std::vector<TextSpan> character_spans(std::string_view text, const std::vector<TextSpan>& spans) {
  std::vector<int64_t> index(text.size() + 1);
  int64_t characters = 0;
  for (size_t at = 0; at < text.size(); ++characters) {
    const int bytes = decode_utf8(text.substr(at)).bytes;
    for (int i = 0; i < bytes; ++i) index[at++] = characters;
  }
  index[text.size()] = characters;
  std::vector<TextSpan> result;
  result.reserve(spans.size());
  for (const TextSpan& span : spans) {
    result.push_back({index[static_cast<size_t>(span.begin)], index[static_cast<size_t>(span.end)]});
  }
  return result;
}

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids;
  encode(text, ids);
  return ids;
}

std::vector<std::string> Tokenizer::tokens(std::string_view text) const {
  std::vector<std::string> result;
  for (const int32_t id : encode(text)) result.push_back(vocabulary_.token(id));
  return result;
}

WordPieceTokenizer::WordPieceTokenizer(Vocabulary vocabulary, const TokenizerConfig& config)
    : Tokenizer(std::move(vocabulary)),
      config_(config),
      basic_(config),
      added_(this->vocabulary(), config),
      first_(keys(this->vocabulary(), false)),
      continuation_(keys(this->vocabulary(), true)) {}

WordPieceTokenizer::Piece WordPieceTokenizer::longest_piece(std::string_view text, bool inside) const {
  const DoubleArray& pieces = inside ? continuation_ : first_;
  Piece longest;
  int32_t node = DoubleArray::kRoot;
  for (size_t at = 0; at < text.size();) {
    node = pieces.next(node, static_cast<unsigned char>(text[at++]));
    if (node == DoubleArray::kNone) break;
    if (const int32_t id = pieces.value(node); id != DoubleArray::kNone) longest = {id, at};
  }
  return longest;
}

template <bool kSpans>
void WordPieceTokenizer::encode_word(const Word& word, bool inside, int64_t offset, Encoding& encoding) const {
  const size_t before = encoding.ids.size();
  const auto unknown = [&] {
    encoding.ids.resize(before);
    encoding.ids.push_back(vocabulary().unk_id());
    if constexpr (kSpans) {
      encoding.spans.resize(before);
      encoding.spans.push_back({offset + word.span.begin, offset + word.span.end});
    }
  };
  if (word.overlong) return unknown();
  for (size_t begin = 0; begin < word.text.size(); inside = true) {
    const auto [id, bytes] = longest_piece(word.text.substr(begin), inside);
    if (bytes == 0) return unknown();
    const size_t end = begin + bytes;
    encoding.ids.push_back(id);
    if constexpr (kSpans) {
      encoding.spans.push_back({offset + word.spans[begin].begin, offset + word.spans[end - 1].end});
    }
    begin = end;
  }
}

template <bool kSpans>
void WordPieceTokenizer::encode_into(std::string_view text, Encoding& encoding) const {
  int64_t begin = 0;
  const auto encode_up_to = [&](int64_t end) {
    encoding.invalid_sequences +=
        basic_.for_each_word<kSpans>(text.substr(static_cast<size_t>(begin), static_cast<size_t>(end - begin)),
                                     [&](const Word& word) { encode_word<kSpans>(word, false, begin, encoding); });
    begin = end;
  };
  for (const AddedTokenSearch::Match& match : added_.find(text)) {
    encode_up_to(match.span.begin);
    encoding.ids.push_back(match.id);
    if constexpr (kSpans) encoding.spans.push_back(match.span);
    begin = match.span.end;
  }
  encode_up_to(static_cast<int64_t>(text.size()));
}

int64_t WordPieceTokenizer::encode(std::string_view text, std::vector<int32_t>& ids) const {
  Encoding encoding;
  encoding.ids.swap(ids);
  encode_into<false>(text, encoding);
  encoding.ids.swap(ids);
  return encoding.invalid_sequences;
}

std::vector<int32_t> WordPieceTokenizer::encode_token(std::string_view token) const {
  if (!token.starts_with(kContinuationPrefix) || token.size() == kContinuationPrefix.size())
    return Tokenizer::encode(token);
  Encoding encoding;
  basic_.for_each_word<false>(token.substr(kContinuationPrefix.size()),
                              [&](const Word& word) { encode_word<false>(word, encoding.ids.empty(), 0, encoding); });
  return encoding.ids;
}

Encoding WordPieceTokenizer::encode_with_offsets(std::string_view text) const {
  Encoding encoding;
  encode_into<true>(text, encoding);
  return encoding;
}

std::vector<EncodedWord> WordPieceTokenizer::encode_words(std::string_view text) const {
  const Encoding encoding = encode_with_offsets(text);
  std::vector<EncodedWord> words;
  for (size_t i = 0; i < encoding.ids.size(); ++i) {
    if (words.empty() || !is_continuation(encoding.ids[i])) words.emplace_back();
    words.back().ids.push_back(encoding.ids[i]);
    words.back().spans.push_back(encoding.spans[i]);
  }
  return words;
}

std::string WordPieceTokenizer::decode(const std::vector<int32_t>& ids) const {
  std::string text;
  for (const int32_t id : ids) {
    std::string_view token = vocabulary().token(id);
    if (vocabulary().is_special(id)) continue;
    if (is_continuation(id)) {
      token.remove_prefix(kContinuationPrefix.size());
    } else if (!text.empty()) {
      text.push_back(' ');
    }
    text.append(token);
  }
  return text;
}

bool WordPieceTokenizer::is_continuation(int64_t id) const {
  return vocabulary().token(id).starts_with(kContinuationPrefix);
}

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& path, const TokenizerConfig& config) {
  const std::string extension = std::filesystem::path(path).extension().string();
  if (extension == ".model" || extension == ".spm") return SentencePieceTokenizer::load(path);
  return std::make_unique<WordPieceTokenizer>(Vocabulary::load(path), config);
}

}  // namespace bert
