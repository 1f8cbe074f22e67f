// Text to token ids and back.
//
// Note [Hugging Face differs]
// Ids equal those of Hugging Face's fast tokenizer on ordinary prose. Where the two differ, this one follows Google's
// script. The differences were found by comparing tokenizers 0.23.3 with Google's algorithm on every code point.
// "There" is Hugging Face, "here" this tokenizer:
// 1. Words of more than 100 characters are [UNK] there, of more than 200 here. max_input_chars_per_word = 100 gives the
//    same.
// 2. [MASK] and the other special tokens in the text are tokens there, text here. match_special_tokens = true gives the
//    same.
// 3. A capital sigma at the end of a word becomes U+03C3 there, the final sigma U+03C2 here (with do_lower_case).
//    final_sigma = false gives the same; a tokenizer.json sets it.
// 4. Private-use characters are dropped there, letters here.
// 5. The ideographs U+2B820..U+2B91F are letters there, words here.
// 6. The Unicode data there is older, except for lower case: about 380 newer combining marks stay, 13 newer format
//    characters stay, 104 newer punctuation characters do not split words, U+1734 and U+111C9 are marks and U+166D is
//    punctuation. The lower case there is newer.
// Offsets have the same meaning: they cover the characters that are kept, so a separate accent character is outside of
// the span of its letter.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/config.h"
#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/basic_tokenizer.h"
#include "data/tokenizer/double_array.h"
#include "data/tokenizer/vocabulary.h"

namespace bert {

/// Ids, each with its place in the text.
struct Encoding {
  std::vector<int32_t> ids;
  std::vector<TextSpan> spans;    // range of bytes in the text, one for each id
  int64_t invalid_sequences = 0;  // invalid UTF-8 that was dropped
};

/// The tokens of one word.
struct EncodedWord {
  std::vector<int32_t> ids;     // one at least
  std::vector<TextSpan> spans;  // range of bytes in the text, one for each id
};

/// Converts `spans`, bytes of `text`, to code points, as Python slices and Hugging Face's offsets count them. An
/// invalid sequence counts as one.
std::vector<TextSpan> character_spans(std::string_view text, const std::vector<TextSpan>& spans);

/// The interface of all tokenizers. Immutable after construction: any number of threads may use one.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Appends the ids of `text`, without [CLS] and [SEP]. Any bytes are allowed. Invalid UTF-8 is dropped; returns the
  /// number of invalid sequences. Time is linear in the length of the text.
  virtual int64_t encode(std::string_view text, std::vector<int32_t>& ids) const = 0;

  /// The ids of `text` with their places.
  [[nodiscard]] virtual Encoding encode_with_offsets(std::string_view text) const = 0;

  /// The words of `text` with their tokens. White space, punctuation and ideographs end a word, as in Google's basic
  /// tokenizer; an added token is a word. Words without a token are left out.
  [[nodiscard]] virtual std::vector<EncodedWord> encode_words(std::string_view text) const = 0;

  /// The text of the tokens, without special ones. Throws DataError for an id outside of the vocabulary.
  [[nodiscard]] virtual std::string decode(const std::vector<int32_t>& ids) const = 0;

  /// True if a token continues the word of the token before it. Whole-word masking masks both together.
  [[nodiscard]] virtual bool is_continuation(int64_t id) const = 0;

  [[nodiscard]] std::vector<int32_t> encode(std::string_view text) const;
  [[nodiscard]] std::vector<std::string> tokens(std::string_view text) const;
  [[nodiscard]] const Vocabulary& vocabulary() const { return vocabulary_; }

 protected:
  explicit Tokenizer(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}

 private:
  Vocabulary vocabulary_;
};

/// Google's tokenizer: BasicTokenizer, then for each word the longest pieces of the vocabulary from left to right. A
/// word without such pieces is one [UNK]. Added tokens are found before. Source: Google's tokenization.py
/// (FullTokenizer).
class WordPieceTokenizer : public Tokenizer {
 public:
  explicit WordPieceTokenizer(Vocabulary vocabulary, const TokenizerConfig& config = {});

  using Tokenizer::encode;
  int64_t encode(std::string_view text, std::vector<int32_t>& ids) const override;
  [[nodiscard]] Encoding encode_with_offsets(std::string_view text) const override;
  [[nodiscard]] std::vector<EncodedWord> encode_words(std::string_view text) const override;
  /// Words joined by spaces, pieces without ##. Punctuation keeps its spaces, because the original spacing is not
  /// known.
  [[nodiscard]] std::string decode(const std::vector<int32_t>& ids) const override;
  [[nodiscard]] bool is_continuation(int64_t id) const override;

  /// The ids of the text of a token of any vocabulary: those of a part of a word if it begins with ##.
  [[nodiscard]] std::vector<int32_t> encode_token(std::string_view token) const;

  struct Piece {
    int32_t id = DoubleArray::kNone;
    size_t bytes = 0;  // 0: there is none
  };
  /// The longest piece with which `text` begins, a folded word or the rest of one (`inside`).
  [[nodiscard]] Piece longest_piece(std::string_view text, bool inside) const;

  [[nodiscard]] const TokenizerConfig& config() const { return config_; }

 private:
  template <bool kSpans>
  void encode_into(std::string_view text, Encoding& encoding) const;
  template <bool kSpans>
  void encode_word(const Word& word, bool inside, int64_t offset, Encoding& encoding) const;

  TokenizerConfig config_;
  BasicTokenizer basic_;
  AddedTokenSearch added_;
  DoubleArray first_, continuation_;  // tokens that begin a word; tokens that continue a word, without ##
};

class SentencePieceModel;  // data/tokenizer/sentencepiece_library.h

/// A SentencePiece model (unigram or BPE). Special tokens that the model lacks get the ids after its own.
class SentencePieceTokenizer : public Tokenizer {
 public:
  /// Throws InputMissing, IoError, DataError.
  static std::unique_ptr<SentencePieceTokenizer> load(const std::string& path);

  /// Reads the bytes of a model file. `name` names the model in errors.
  SentencePieceTokenizer(std::string model, const std::string& name);
  ~SentencePieceTokenizer() override;

  using Tokenizer::encode;
  int64_t encode(std::string_view text, std::vector<int32_t>& ids) const override;
  [[nodiscard]] Encoding encode_with_offsets(std::string_view text) const override;
  [[nodiscard]] std::vector<EncodedWord> encode_words(std::string_view text) const override;
  [[nodiscard]] std::string decode(const std::vector<int32_t>& ids) const override;
  [[nodiscard]] bool is_continuation(int64_t id) const override;

  /// The bytes of the model, from which this tokenizer can be made again. Checkpoints store them.
  [[nodiscard]] const std::string& model() const { return model_; }

 private:
  SentencePieceTokenizer(std::string model, std::unique_ptr<SentencePieceModel> pieces, const std::string& name);

  std::string model_;
  std::unique_ptr<SentencePieceModel> pieces_;
};

/// Makes a SentencePiece tokenizer for *.model and *.spm, to which `config` does not apply, and WordPiece for other
/// names. Throws InputMissing, IoError, DataError.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& path, const TokenizerConfig& config = {});

}  // namespace bert
