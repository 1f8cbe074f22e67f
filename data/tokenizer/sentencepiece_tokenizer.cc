// SentencePieceTokenizer: the sentencepiece library behind our interface, with its limits guarded.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "data/io/error.h"
#include "data/io/files.h"
#include "data/text/unicode.h"
#include "data/tokenizer/sentencepiece_library.h"
#include "data/tokenizer/tokenizer.h"

namespace bert {
namespace {

static_assert(std::endian::native == std::endian::little, "the rules are little-endian");

// Field numbers of sentencepiece_model.proto.
constexpr uint64_t kNormalizerSpec = 3, kDenormalizerSpec = 5;  // in ModelProto
constexpr uint64_t kPrecompiledCharsmap = 2;                    // in NormalizerSpec

/// Reads the fields of a protocol buffer one by one. Groups are refused; models have none.
class FieldReader {
 public:
  /// `name` names the model in errors.
  FieldReader(std::string_view message, const std::string& name) : rest_(message), name_(name) {}

  /// Moves to the next field; false at the end. Throws DataError.
  bool next() {
    enum WireType { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
    if (rest_.empty()) return false;
    const auto key = static_cast<uint32_t>(varint());  // protobuf drops the higher bits too
    uint64_t size = 0;
    switch (key & 7) {
      case kVarint:
        varint();
        break;
      case kFixed64:
        size = 8;
        break;
      case kBytes:
        size = varint();
        break;
      case kFixed32:
        size = 4;
        break;
      default:
        size = UINT64_MAX;
    }
    if (size > rest_.size()) throw DataError(name_ + ": not a SentencePiece model (it is damaged or cut off).");
    number_ = key >> 3;
    content_ = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return true;
  }

  [[nodiscard]] uint64_t number() const { return number_; }
  /// The bytes or the message; empty for a number.
  [[nodiscard]] std::string_view content() const { return content_; }

 private:
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) break;
    }
    return value;
  }

  std::string_view rest_, content_;
  const std::string& name_;
  uint64_t number_ = 0;
};

/// True if a search in these rules stays inside of them. The rules are the size of a trie, the trie in the units of
/// Darts-clone, and texts that end with a NUL; the values of the trie are positions in the texts.
bool stays_inside(std::string_view rules) {
  constexpr uint32_t kHasLeaf = 1 << 8, kExtended = 1 << 9, kLeaf = uint32_t{1} << 31, kBlock = 256;
  uint32_t trie_bytes = 0;
  if (rules.size() < sizeof trie_bytes) return true;  // the library refuses them, or there are no rules
  std::memcpy(&trie_bytes, rules.data(), sizeof trie_bytes);
  rules.remove_prefix(sizeof trie_bytes);
  if (trie_bytes >= rules.size()) return true;  // as above
  std::vector<uint32_t> units(trie_bytes / sizeof(uint32_t));
  std::memcpy(units.data(), rules.data(), units.size() * sizeof(uint32_t));
  const std::string_view texts = rules.substr(trie_bytes);
  if (units.empty() || texts.back() != '\0') return false;
  for (uint32_t at = 0; at < units.size(); ++at) {
    const uint32_t unit = units[at];
    if ((unit & kLeaf) != 0 && at != 0) continue;  // a value: no byte of the text leads to it
    const uint32_t offset = unit >> 10 << ((unit & kExtended) != 0 ? 8 : 0);
    // The child for byte b is at children ^ b. The value of a key that ends here is at children.
    const uint32_t children = at ^ offset;
    if ((children | (kBlock - 1)) >= units.size()) return false;
    if ((unit & kHasLeaf) != 0 && (units[children] & ~kLeaf) >= texts.size()) return false;
  }
  return true;
}

/// Throws DataError, with `name`, if the serialized model is not a protocol buffer, or if one of its rules would make
/// the library read outside of the rules.
void check_normalization_rules(std::string_view model, const std::string& name) {
  for (FieldReader fields(model, name); fields.next();) {
    if (fields.number() != kNormalizerSpec && fields.number() != kDenormalizerSpec) continue;
    for (FieldReader spec(fields.content(), name); spec.next();) {
      if (spec.number() == kPrecompiledCharsmap && !stays_inside(spec.content())) {
        throw DataError(name +
                        ": not a SentencePiece model (its rules of normalisation lead outside of themselves). "
                        "The file is damaged: make or copy it again.");
      }
    }
  }
}

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
