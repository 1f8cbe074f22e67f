#include "data/corpus/words.h"

#include <string>

#include "data/text/unicode.h"

namespace bert {

void for_each_word(std::string_view text, const std::function<void(std::string_view)>& take) {
  const FoldTable& fold = FoldTable::shared({.lower_case = true, .strip_accents = true});
  std::string word;
  const auto end_word = [&] {
    if (!word.empty()) take(word);
    word.clear();
  };
  while (!text.empty()) {
    const DecodedUtf8 decoded = decode_utf8(text);
    text.remove_prefix(static_cast<size_t>(decoded.bytes));
    const Folded& folded = fold[decoded.value];
    switch (folded.kind) {
      case CharacterKind::kLetter:
        word.append(folded.utf8.data(), folded.bytes);
        break;
      case CharacterKind::kContext:
        append_utf8(decoded.value, word);
        break;
      case CharacterKind::kCjk:
        end_word();
        word.append(folded.utf8.data(), folded.bytes);
        end_word();
        break;
      case CharacterKind::kSpace:
      case CharacterKind::kPunctuation:
        end_word();
        break;
      case CharacterKind::kDropped:
        break;
    }
  }
  end_word();
}

int64_t count_words(std::string_view text) {
  int64_t count = 0;
  for_each_word(text, [&](std::string_view) { ++count; });
  return count;
}

}  // namespace bert
