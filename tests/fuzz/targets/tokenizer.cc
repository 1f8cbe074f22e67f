// WordPiece with a small vocabulary: encoding, places, decoding. The first byte of the input chooses the settings.
#include "data/tokenizer/tokenizer.h"

#include <memory>

#include "data/text/unicode.h"
#include "tests/fuzz/targets/fuzz_targets.h"
#include "tests/support/small_vocabulary.h"

namespace bert::testing {
namespace {

constexpr size_t kSettings = 32;

/// Tokenizers with every combination of the settings that change what is done with a character.
const WordPieceTokenizer& tokenizer(size_t settings) {
  static const auto all = [] {
    std::vector<std::unique_ptr<WordPieceTokenizer>> made;
    for (size_t i = 0; i < kSettings; ++i) {
      TokenizerConfig config;
      config.do_lower_case = (i & 1) != 0;
      config.match_special_tokens = (i & 2) != 0;
      config.max_input_chars_per_word = (i & 4) != 0 ? 10 : 200;
      config.strip_accents = config.do_lower_case != ((i & 8) != 0);
      config.tokenize_chinese_chars = (i & 16) == 0;
      made.push_back(std::make_unique<WordPieceTokenizer>(small_vocabulary(), config));
    }
    return made;
  }();
  return *all[settings];
}

std::vector<std::string> seeds() {
  std::vector<std::string> texts;
  for (size_t i = 0; i < kSettings; ++i) {
    texts.push_back(std::string(1, static_cast<char>(i)) +
                    "The unaffable cat, 42 CAF\xc3\x89s cafe\xcc\x81 [MASK]. \xe4\xb8\xad\xce\xa3\xce\xa3 "
                    "\xed\xa0\x80\xf0\x9f\x98\x80");
  }
  return texts;
}

void read(std::string_view input) {
  if (input.empty()) return;
  const WordPieceTokenizer& with = tokenizer(static_cast<size_t>(input[0]) % kSettings);
  const std::string_view text = input.substr(1);
  std::vector<int32_t> ids;
  const int64_t invalid = with.encode(text, ids);
  const Encoding encoding = with.encode_with_offsets(text);
  require(encoding.ids == ids, "ids with places differ from ids without");
  require(encoding.invalid_sequences == invalid, "counts of invalid sequences differ");
  require(encoding.spans.size() == ids.size(), "an id has no place");
  for (const TextSpan& span : encoding.spans)
    require(span.begin <= span.end && static_cast<size_t>(span.end) <= text.size(), "a place is outside of the text");
  require(character_spans(text, encoding.spans).size() == ids.size(), "a place has no characters");
  require(count_invalid_utf8(with.decode(ids)) == 0, "decoded text is not UTF-8");
  for (const int32_t id : ids) static_cast<void>(with.is_continuation(id));
}

}  // namespace

FuzzTarget tokenizer_target() { return {"tokenizer", seeds(), read}; }

}  // namespace bert::testing
