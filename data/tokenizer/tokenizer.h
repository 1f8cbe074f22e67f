// Text to token ids and back.
//
// Note [Hugging Face differs]
// Ids equal Hugging Face's fast tokenizer on ordinary prose. Where they differ, we follow Google's script. Found by
// running tokenizers 0.23.3 against Google's algorithm on every code point:
// 1. Words above 100 characters are [UNK] there, above 200 here. max_input_chars_per_word = 100 gives theirs.
// 2. [MASK] and the other special tokens in the text are tokens there, text here. match_special_tokens = true gives
//    theirs.
// 3. A capital sigma at the end of a word becomes U+03C3 there, the final sigma U+03C2 here (uncased).
// 4. Private-use characters are dropped there, letters here.
// 5. The ideographs U+2B820..U+2B91F are letters there, words here.
// 6. Its Unicode data for everything but lower case is older: about 380 newer combining marks stay, 13 newer format
//    characters stay, 104 newer punctuation characters do not split words, U+1734 and U+111C9 are marks and U+166D is
//    punctuation. Its lower case is newer than ours.
// Offsets mean the same: those of the characters that stay, so an accent that is a character of its own is outside of
// its letter's span.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/config.h"
#include "data/tokenizer/basic_tokenizer.h"
#include "data/tokenizer/double_array.h"
#include "data/tokenizer/vocabulary.h"

namespace bert {

/// Ids with the place in the text that each comes from.
struct Encoding {
  std::vector<int32_t> ids;
  std::vector<TextSpan> spans;    // bytes of the text, per id
  int64_t invalid_sequences = 0;  // invalid UTF-8 that was dropped
};

/// The same places counted in code points, as Python slices and Hugging Face's offsets count them; an invalid sequence
/// counts as one. `spans` are bytes of `text`.
std::vector<TextSpan> character_spans(std::string_view text, const std::vector<TextSpan>& spans);

/// What every tokenizer can do. Immutable after construction: any number of threads may use one.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Appends the ids of `text`, without [CLS] and [SEP]. Any bytes are allowed; invalid UTF-8 is dropped and the number
  /// of invalid sequences returned. Time is linear in the length of the text.
  virtual int64_t encode(std::string_view text, std::vector<int32_t>& ids) const = 0;

  /// The same with places.
  [[nodiscard]] virtual Encoding encode_with_offsets(std::string_view text) const = 0;

  /// Text of the tokens, special ones left out. Throws DataError for an id outside of the vocabulary.
  [[nodiscard]] virtual std::string decode(const std::vector<int32_t>& ids) const = 0;

  /// Whether a token continues the word of the token before it: whole-word masking masks them together.
  [[nodiscard]] virtual bool is_continuation(int64_t id) const = 0;

  [[nodiscard]] std::vector<int32_t> encode(std::string_view text) const;
  [[nodiscard]] std::vector<std::string> tokens(std::string_view text) const;
  [[nodiscard]] const Vocabulary& vocabulary() const { return vocabulary_; }

 protected:
  explicit Tokenizer(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}

 private:
  Vocabulary vocabulary_;
};

/// Google's tokenizer: BasicTokenizer, then for each word the longest pieces of the vocabulary from left to right; a
/// word that cannot be built is one [UNK]. Source: Google's tokenization.py (FullTokenizer).
class WordPieceTokenizer : public Tokenizer {
 public:
  explicit WordPieceTokenizer(Vocabulary vocabulary, const TokenizerConfig& config = {});

  using Tokenizer::encode;
  int64_t encode(std::string_view text, std::vector<int32_t>& ids) const override;
  [[nodiscard]] Encoding encode_with_offsets(std::string_view text) const override;
  /// Words joined by spaces, pieces without ##. Punctuation keeps its spaces: what stood there is not known.
  [[nodiscard]] std::string decode(const std::vector<int32_t>& ids) const override;
  [[nodiscard]] bool is_continuation(int64_t id) const override;

  [[nodiscard]] const TokenizerConfig& config() const { return config_; }

 private:
  template <bool kSpans>
  void encode_into(std::string_view text, Encoding& encoding) const;
  template <bool kSpans>
  void encode_word(const Word& word, int64_t offset, Encoding& encoding) const;

  TokenizerConfig config_;
  BasicTokenizer basic_;
  DoubleArray first_, continuation_;  // tokens that begin a word; tokens that continue one, without ##
};

/// A SentencePiece model (unigram or BPE) as the alternative. Special tokens that the model lacks get the ids after its
/// own.
class SentencePieceTokenizer : public Tokenizer {
 public:
  /// Throws InputMissing, IoError, DataError.
  static std::unique_ptr<SentencePieceTokenizer> load(const std::string& path);

  /// From the bytes of a model file; `name` is what errors call it.
  SentencePieceTokenizer(std::string model, const std::string& name);
  ~SentencePieceTokenizer() override;

  using Tokenizer::encode;
  int64_t encode(std::string_view text, std::vector<int32_t>& ids) const override;
  [[nodiscard]] Encoding encode_with_offsets(std::string_view text) const override;
  [[nodiscard]] std::string decode(const std::vector<int32_t>& ids) const override;
  [[nodiscard]] bool is_continuation(int64_t id) const override;

  /// The bytes that make this tokenizer again: what a checkpoint keeps.
  [[nodiscard]] const std::string& model() const { return model_; }

 private:
  struct Processor;
  SentencePieceTokenizer(std::string model, std::unique_ptr<Processor> processor, const std::string& name);

  std::string model_;
  std::unique_ptr<Processor> processor_;
};

/// A SentencePiece model for *.model and *.spm, to which `config` does not apply; WordPiece for every other name.
/// Throws InputMissing, IoError, DataError.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& path, const TokenizerConfig& config = {});

}  // namespace bert
