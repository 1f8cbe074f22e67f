// Text to words: Google's BasicTokenizer in one pass over the bytes.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "data/config.h"
#include "data/text/unicode.h"

namespace bert {

/// A half-open range of bytes in the text.
struct TextSpan {
  int64_t begin = 0, end = 0;
  bool operator==(const TextSpan&) const = default;
};

/// One word of the basic tokenizer. Valid until the next word.
struct Word {
  std::string_view text;            // folded UTF-8; empty when overlong
  bool overlong = false;            // more than max_input_chars_per_word code points
  TextSpan span;                    // the bytes of the word in the text
  const TextSpan* spans = nullptr;  // for each byte of `text`, the source of its character; null unless asked for
};

/// Cleans and folds text, and splits it at white space, punctuation and ideographs. Immutable: any number of threads
/// may use one tokenizer. Source: Google's tokenization.py (BasicTokenizer).
class BasicTokenizer {
 public:
  explicit BasicTokenizer(const TokenizerConfig& config);

  /// Calls sink(const Word&) for each word in order. With kSpans, Word::spans is set. Returns the number of invalid
  /// UTF-8 sequences, which are dropped. Time is linear in the length of the text. Memory is that of one word, or of
  /// one run without white space where kContext characters occur.
  template <bool kSpans, class Sink>
  int64_t for_each_word(std::string_view text, Sink&& sink) const;

 private:
  template <bool kSpans>
  class WordBuffer;

  /// Reads the characters from `at` to the next white space, ideograph or end, without dropped ones. Moves `at` there
  /// and counts invalid sequences.
  std::vector<SourceCharacter> read_run(std::string_view text, size_t& at, int64_t& invalid) const;

  // The action for a byte. Values from 33 are the folded form of an ASCII letter.
  enum Action : unsigned char { kDecode, kSpace, kDrop, kSplit, kFirstLetter = 33 };
  std::array<unsigned char, 256> action_{};
  const Folding folding_;
  const FoldTable& fold_;
  const bool splits_ideographs_;
  size_t max_characters_;
};

/// The word that is being read. Characters beyond the limit are counted but not kept.
template <bool kSpans>
class BasicTokenizer::WordBuffer {
 public:
  explicit WordBuffer(size_t max_characters) : max_characters_(max_characters) {
    text_.resize(max_characters + Folded::kMaxBytes);
  }

  void append(const char* utf8, size_t bytes, size_t characters, TextSpan from) {
    if (characters_ == 0) span_ = from;
    characters_ += characters;
    span_.end = from.end;
    if (characters_ > max_characters_) return;
    if (size_ + bytes > text_.size()) text_.resize(text_.size() * 2);
    for (size_t i = 0; i < bytes; ++i) text_[size_ + i] = utf8[i];
    size_ += bytes;
    if constexpr (kSpans) spans_.insert(spans_.end(), bytes, from);
  }

  /// Passes the word, if there is one, to the sink and starts the next word.
  template <class Sink>
  void flush(Sink&& sink) {
    if (characters_ == 0) return;
    const bool overlong = characters_ > max_characters_;
    sink(Word{
        .text = {text_.data(), overlong ? 0 : size_}, .overlong = overlong, .span = span_, .spans = spans_.data()});
    clear();
  }

  void clear() {
    size_ = characters_ = 0;
    spans_.clear();
  }
  [[nodiscard]] bool empty() const { return characters_ == 0; }
  [[nodiscard]] int64_t begin() const { return span_.begin; }

 private:
  const size_t max_characters_;
  size_t size_ = 0, characters_ = 0;
  TextSpan span_;
  std::vector<char> text_;
  std::vector<TextSpan> spans_;
};

template <bool kSpans, class Sink>
int64_t BasicTokenizer::for_each_word(std::string_view text, Sink&& sink) const {
  WordBuffer<kSpans> word(max_characters_);
  int64_t invalid = 0;
  size_t run_begin = 0;  // position after the last white space or ideograph: the context of a character begins here
  int64_t invalid_before_run = 0;
  const auto begin_run = [&](size_t at) {
    run_begin = at;
    invalid_before_run = invalid;
  };
  for (size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    const unsigned char action = action_[byte];
    const auto from = static_cast<int64_t>(at);
    if (action >= kFirstLetter) {
      const char folded = static_cast<char>(action);
      word.append(&folded, 1, 1, {from, from + 1});
      ++at;
      continue;
    }
    if (action != kDecode) {
      ++at;
      if (action == kDrop) continue;
      word.flush(sink);
      if (action == kSplit) {
        word.append(&text[at - 1], 1, 1, {from, from + 1});
        word.flush(sink);
      } else {
        begin_run(at);
      }
      continue;
    }
    const DecodedUtf8 decoded = decode_utf8(text.substr(at));
    if (decoded.value == kInvalidUtf8) {
      ++invalid;
      at += static_cast<size_t>(decoded.bytes);
      continue;
    }
    const Folded& folded = fold_[decoded.value];
    if (folded.kind == CharacterKind::kContext) {
      // Words before this one are complete. This word and the rest of the run are folded with the whole run as context.
      const int64_t resume = word.empty() ? from : word.begin();
      word.clear();
      at = run_begin;
      invalid = invalid_before_run;
      std::vector<SourceCharacter> run = read_run(text, at, invalid);
      fold_in_context(run, folding_);
      std::string utf8;
      for (const SourceCharacter& character : run) {
        if (character.begin < resume) continue;
        utf8.clear();
        append_utf8(character.value, utf8);
        const bool split = is_bert_punctuation(character.value);
        if (split) word.flush(sink);
        word.append(utf8.data(), utf8.size(), 1, {character.begin, character.end});
        if (split) word.flush(sink);
      }
      word.flush(sink);
      begin_run(at);
      continue;
    }
    at += static_cast<size_t>(decoded.bytes);
    if (folded.kind == CharacterKind::kDropped) continue;
    const bool alone =
        folded.kind != CharacterKind::kLetter && (folded.kind != CharacterKind::kCjk || splits_ideographs_);
    if (alone) word.flush(sink);
    if (folded.kind != CharacterKind::kSpace) {
      word.append(folded.utf8.data(), folded.bytes, folded.characters, {from, static_cast<int64_t>(at)});
    }
    if (alone) word.flush(sink);
    if (alone && folded.kind != CharacterKind::kPunctuation) begin_run(at);
  }
  word.flush(sink);
  return invalid;
}

}  // namespace bert
