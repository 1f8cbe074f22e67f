// A text as the ids of its tokens, or the reason why it has no answer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "app/inference/answer_options.h"
#include "data/io/error.h"
#include "data/tokenizer/tokenizer.h"

namespace bert {

/// The part of a text that stands for a word to fill in.
inline constexpr std::string_view kMaskWord = "[MASK]";

/// The ids of [CLS] text [SEP].
struct EncodedText {
  std::string text;
  std::vector<int32_t> ids;
  /// The places in `ids` of the masks of the text. A tokenizer may give the same token for other texts too, for example
  /// for a full-width [MASK].
  std::vector<size_t> masks;
  AnswerOptions options = {};
  bool cut = false;           // `ids` are not all tokens of the text
  int64_t prompt_tokens = 0;  // that a pooling leaves out: [CLS] and those of the prompt
};

/// Encodes a text of any length. A SentencePiece model does not recognise [MASK] in a text, so the text is split there.
EncodedText encode_text(const Tokenizer& tokenizer, std::string text);

/// Takes the tokens beyond the first or, with `at_begin`, the last `most` out of a longer text, between [CLS] and [SEP].
/// Returns false, with the text as it was, if a mask is among them.
bool cut_text(EncodedText& encoded, int64_t most, bool at_begin);

/// The ids of a text of the vocabulary's tokens. [CLS] and [SEP] are added unless they are there. Throws TextError with
/// index 0 for no ids, and for one that the vocabulary has not.
EncodedText encode_ids(const Vocabulary& vocabulary, std::vector<int32_t> ids);

/// A text that has no answer: it is too long, or has no [MASK]. `index` is its place among the texts of the call.
/// `reason` is the message without the beginning of the text.
struct TextError : DataError {
  TextError(size_t place, const std::string& why) : DataError(why), index(place), reason(why) {}
  /// The message shows the beginning of `text` as a JSON string, which has no control characters.
  TextError(size_t place, const std::string& why, const std::string& text);
  size_t index;
  std::string reason;
};

}  // namespace bert
