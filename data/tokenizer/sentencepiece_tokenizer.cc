// SentencePieceTokenizer: the sentencepiece library behind our interface, with its limits guarded.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "data/io/error.h"
#include "data/io/files.h"
#include "data/text/unicode.h"
#include "data/tokenizer/sentencepiece_library.h"
#include "data/tokenizer/sentencepiece_rules.h"
#include "data/tokenizer/tokenizer.h"

namespace bert {
namespace {

constexpr std::string_view kWordBegin = "\xE2\x96\x81";  // U+2581, which sentencepiece writes for a space
constexpr int64_t kMaxModelBytes = int64_t{1} << 30;     // far above the size of any model
constexpr size_t kMaxCallBytes = 64 << 10;               // sentencepiece 0.1.97 crashes on pieces above 300 KB
constexpr int kMaxPieces = std::numeric_limits<int32_t>::max() / 2;

/// Length of a part of at most kMaxCallBytes: up to the last space in it, otherwise up to a whole character.
size_t part_length(std::string_view text) {
  if (text.size() <= kMaxCallBytes) return text.size();
  const size_t space = text.rfind(' ', kMaxCallBytes);
  if (space != std::string_view::npos && space > 0) return space;
  size_t length = kMaxCallBytes;
  while ((text[length] & 0xC0) == 0x80) --length;
  return length;
}

/// `text` without invalid UTF-8 and U+0000, with the position in `text` of each byte that was kept, and of the end.
struct CleanText {
  std::string text;
  std::vector<int64_t> places;
  int64_t invalid_sequences = 0;

  explicit CleanText(std::string_view from) {
    text.reserve(from.size());
    places.reserve(from.size() + 1);
    for (size_t at = 0; at < from.size();) {
      const DecodedUtf8 decoded = decode_utf8(from.substr(at));
      if (decoded.value == kInvalidUtf8) {
        ++invalid_sequences;
      } else if (decoded.value != 0) {
        for (int i = 0; i < decoded.bytes; ++i) {
          text.push_back(from[at + static_cast<size_t>(i)]);
          places.push_back(static_cast<int64_t>(at) + i);
        }
      }
      at += static_cast<size_t>(decoded.bytes);
    }
    places.push_back(static_cast<int64_t>(from.size()));
  }

  /// The range of `text` that bytes [begin, end) come from.
  [[nodiscard]] TextSpan place(size_t begin, size_t end) const {
    return {places[begin], end > begin ? places[end - 1] + 1 : places[begin]};
  }
};

std::unique_ptr<SentencePieceModel> load_model(const std::string& serialized, const std::string& name) {
  check_normalization_rules(serialized, name);  // before the library follows the rules when it tests the model
  std::string error = "it has no pieces";
  auto model = sentencepiece_library().load(serialized, [&](std::string_view reason) { error = reason; });
  if (model == nullptr || model->size() <= 0 || model->size() > kMaxPieces) {
    throw DataError(
        fmt::format("{}: not a SentencePiece model ({}). Give the .model file that spm_train wrote.", name, error));
  }
  return model;
}

/// The model's pieces, then each of [PAD] [CLS] [SEP] [MASK] that the model has neither under this name nor under its
/// own. Every model has unk.
Vocabulary vocabulary_of(const SentencePieceModel& model, const std::string& name) {
  std::vector<std::string> tokens;
  tokens.reserve(static_cast<size_t>(model.size()));
  for (int id = 0; id < model.size(); ++id) tokens.emplace_back(model.piece(id));
  Vocabulary::SpecialTokens special;
  special.unk = model.piece(model.unk_id());
  if (model.pad_id() >= 0) special.pad = model.piece(model.pad_id());
  for (const std::string& token : {special.pad, special.cls, special.sep, special.mask}) {
    if (std::ranges::find(tokens, token) == tokens.end()) tokens.push_back(token);
  }
  return Vocabulary(std::move(tokens), special, name);
}

}  // namespace

std::unique_ptr<SentencePieceTokenizer> SentencePieceTokenizer::load(const std::string& path) {
  return std::make_unique<SentencePieceTokenizer>(read_file(path, kMaxModelBytes), path);
}

SentencePieceTokenizer::SentencePieceTokenizer(std::string model, const std::string& name)
    : SentencePieceTokenizer(std::move(model), nullptr, name) {}

SentencePieceTokenizer::SentencePieceTokenizer(std::string model, std::unique_ptr<SentencePieceModel> pieces,
                                               const std::string& name)
    : Tokenizer(vocabulary_of(*(pieces = load_model(model, name)), name)),
      model_(std::move(model)),
      pieces_(std::move(pieces)) {}

SentencePieceTokenizer::~SentencePieceTokenizer() = default;

int64_t SentencePieceTokenizer::encode(std::string_view text, std::vector<int32_t>& ids) const {
  const Encoding encoding = encode_with_offsets(text);
  ids.insert(ids.end(), encoding.ids.begin(), encoding.ids.end());
  return encoding.invalid_sequences;
}

Encoding SentencePieceTokenizer::encode_with_offsets(std::string_view text) const {
  const CleanText clean(text);
  Encoding encoding;
  encoding.invalid_sequences = clean.invalid_sequences;
  for (size_t offset = 0; offset < clean.text.size();) {
    const std::string_view rest = std::string_view(clean.text).substr(offset);
    const std::string_view part = rest.substr(0, part_length(rest));
    pieces_->encode(part, [&](const SentencePiece& piece) {
      encoding.ids.push_back(piece.id);
      encoding.spans.push_back(clean.place(offset + piece.begin, offset + piece.end));
    });
    offset += part.size();
  }
  return encoding;
}

std::vector<EncodedWord> SentencePieceTokenizer::encode_words(std::string_view text) const {
  static const BasicTokenizer kSplitter({.do_lower_case = false, .strip_accents = false});
  std::vector<EncodedWord> words;
  kSplitter.for_each_word<false>(text, [&](const Word& word) {
    const auto begin = static_cast<size_t>(word.span.begin), end = static_cast<size_t>(word.span.end);
    Encoding encoding = encode_with_offsets(text.substr(begin, end - begin));
    if (encoding.ids.empty()) return;
    for (TextSpan& span : encoding.spans) span = {word.span.begin + span.begin, word.span.begin + span.end};
    words.push_back({.ids = std::move(encoding.ids), .spans = std::move(encoding.spans)});
  });
  return words;
}

std::string SentencePieceTokenizer::decode(const std::vector<int32_t>& ids) const {
  std::vector<int> own;
  for (const int32_t id : ids) {
    static_cast<void>(vocabulary().token(id));  // throws if there is no such id
    if (!vocabulary().is_special(id) && id < pieces_->size()) own.push_back(id);
  }
  std::string text;
  pieces_->decode(own, [&](std::string_view decoded) { text = decoded; });
  return text;
}

bool SentencePieceTokenizer::is_continuation(int64_t id) const {
  return !vocabulary().token(id).starts_with(kWordBegin) && !vocabulary().is_special(id);
}

}  // namespace bert
