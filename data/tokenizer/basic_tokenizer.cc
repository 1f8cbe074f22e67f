#include "data/tokenizer/basic_tokenizer.h"

namespace bert {

BasicTokenizer::BasicTokenizer(const TokenizerConfig& config)
    : fold_(FoldTable::shared(config.do_lower_case)),
      max_characters_(static_cast<size_t>(config.max_input_chars_per_word)) {
  for (unsigned char byte = 0; byte < 0x80; ++byte) {
    const Folded& folded = fold_[byte];
    switch (folded.kind) {
      case CharacterKind::kLetter:
        action_[byte] = static_cast<unsigned char>(folded.utf8[0]);
        break;
      case CharacterKind::kSpace:
        action_[byte] = kSpace;
        break;
      case CharacterKind::kPunctuation:
        action_[byte] = kSplit;
        break;
      default:
        action_[byte] = kDrop;
    }
  }
}

std::vector<SourceCharacter> BasicTokenizer::read_run(std::string_view text, size_t& at, int64_t& invalid) const {
  const FoldTable& kinds =
      FoldTable::shared(false);  // keeps combining marks, because they take part in canonical ordering
  std::vector<SourceCharacter> run;
  while (at < text.size()) {
    const DecodedUtf8 decoded = decode_utf8(text.substr(at));
    const auto begin = static_cast<int64_t>(at), end = begin + decoded.bytes;
    if (decoded.value == kInvalidUtf8) {
      ++invalid;
    } else {
      const CharacterKind kind = kinds[decoded.value].kind;
      if (kind == CharacterKind::kSpace || kind == CharacterKind::kCjk) break;
      if (kind != CharacterKind::kDropped) run.push_back({decoded.value, begin, end});
    }
    at = static_cast<size_t>(end);
  }
  return run;
}

}  // namespace bert
