// SentencePieceTokenizer: the sentencepiece library behind our interface, with its limits guarded.
#include <fmt/format.h>
#include <sentencepiece_processor.h>

#include <algorithm>
#include <limits>

#include "data/io/error.h"
#include "data/io/files.h"
#include "data/text/unicode.h"
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

}  // namespace

struct SentencePieceTokenizer::Processor {
  sentencepiece::SentencePieceProcessor model;

  Processor(const std::string& serialized, const std::string& name) {
    check_normalization_rules(serialized, name);  // before the library follows the rules when it tests the model
    const auto status = model.LoadFromSerializedProto(serialized);
    if (!status.ok() || model.GetPieceSize() <= 0 || model.GetPieceSize() > kMaxPieces) {
      throw DataError(fmt::format("{}: not a SentencePiece model ({}). Give the .model file that spm_train wrote.",
                                  name, status.ok() ? "it has no pieces" : status.ToString()));
    }
  }

  /// The model's pieces, then each of [PAD] [CLS] [SEP] [MASK] that the model has neither under this name nor under its
  /// own. Every model has unk.
  [[nodiscard]] Vocabulary vocabulary(const std::string& name) const {
    std::vector<std::string> tokens;
    tokens.reserve(static_cast<size_t>(model.GetPieceSize()));
    for (int id = 0; id < model.GetPieceSize(); ++id) tokens.push_back(model.IdToPiece(id));
    Vocabulary::SpecialTokens special;
    special.unk = model.IdToPiece(model.unk_id());
    if (model.pad_id() >= 0) special.pad = model.IdToPiece(model.pad_id());
    for (const std::string& token : {special.pad, special.cls, special.sep, special.mask}) {
      if (std::find(tokens.begin(), tokens.end(), token) == tokens.end()) tokens.push_back(token);
    }
    return Vocabulary(std::move(tokens), special, name);
  }
};

std::unique_ptr<SentencePieceTokenizer> SentencePieceTokenizer::load(const std::string& path) {
  return std::make_unique<SentencePieceTokenizer>(read_file(path, kMaxModelBytes), path);
}

SentencePieceTokenizer::SentencePieceTokenizer(std::string model, const std::string& name)
    : SentencePieceTokenizer(std::move(model), nullptr, name) {}

SentencePieceTokenizer::SentencePieceTokenizer(std::string model, std::unique_ptr<Processor> processor,
                                               const std::string& name)
    : Tokenizer((processor = std::make_unique<Processor>(model, name))->vocabulary(name)),
      model_(std::move(model)),
      processor_(std::move(processor)) {}

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
    const auto pieces = processor_->model.EncodeAsImmutableProto({part.data(), part.size()});
    for (const auto& piece : pieces.pieces()) {
      encoding.ids.push_back(static_cast<int32_t>(piece.id()));
      encoding.spans.push_back(clean.place(offset + piece.begin(), offset + piece.end()));
    }
    offset += part.size();
  }
  return encoding;
}

std::string SentencePieceTokenizer::decode(const std::vector<int32_t>& ids) const {
  std::vector<int> own;
  for (const int32_t id : ids) {
    static_cast<void>(vocabulary().token(id));  // throws if there is no such id
    if (!vocabulary().is_special(id) && id < processor_->model.GetPieceSize()) own.push_back(id);
  }
  return processor_->model.DecodeIds(own);
}

bool SentencePieceTokenizer::is_continuation(int64_t id) const {
  return !vocabulary().token(id).starts_with(kWordBegin) && !vocabulary().is_special(id);
}

}  // namespace bert
