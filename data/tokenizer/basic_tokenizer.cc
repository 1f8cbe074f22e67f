#include "data/tokenizer/basic_tokenizer.h"

namespace bert {

BasicTokenizer::BasicTokenizer(const TokenizerConfig& config)
    : folding_{.lower_case = config.do_lower_case,
               .strip_accents = config.strips_accents(),
               .final_sigma = config.final_sigma},
      fold_(FoldTable::shared(folding_)),
      splits_ideographs_(config.tokenize_chinese_chars),
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
  // Combining marks stay, because they take part in canonical ordering.
  const FoldTable& kinds = FoldTable::shared({.lower_case = false, .strip_accents = false});
  std::vector<SourceCharacter> run;
  while (at < text.size()) {
    const DecodedUtf8 decoded = decode_utf8(text.substr(at));
    const auto begin = static_cast<int64_t>(at), end = begin + decoded.bytes;
    if (decoded.value == kInvalidUtf8) {
      ++invalid;
    } else {
      const CharacterKind kind = kinds[decoded.value].kind;
      if (kind == CharacterKind::kSpace || (kind == CharacterKind::kCjk && splits_ideographs_)) break;
      if (kind != CharacterKind::kDropped) run.push_back({decoded.value, begin, end});
    }
    at = static_cast<size_t>(end);
  }
  return run;
}

}  // namespace bert
