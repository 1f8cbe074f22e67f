// UTF-8, and the properties of Unicode that BERT's basic tokenizer needs.
//
// Note [Unicode version]
// Properties come from utf8proc. Version 2.8 (Debian 12) has Unicode 15.0; Python 3.11, which made the goldens, has
// 14.0. The two differ on the 4489 code points that 15.0 added and 14.0 calls unassigned. With 15.0 combining marks and
// format characters among these are dropped and punctuation is split; with 14.0 all of them are letters. The two agree
// on every other code point (tests/data/unicode_test.cc).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace bert {

/// The value that decode_utf8 returns for bytes that are not UTF-8.
inline constexpr char32_t kInvalidUtf8 = 0xFFFFFFFF;

/// One code point and its number of bytes.
struct DecodedUtf8 {
  char32_t value;
  int bytes;
};

/// Decodes the code point at the start of `text`, which must not be empty. For invalid bytes it returns kInvalidUtf8
/// and the length of the maximal invalid subpart, at least 1. Source: The Unicode Standard 15.0, section 3.9, table 3-7
/// and "U+FFFD substitution of maximal subparts".
DecodedUtf8 decode_utf8(std::string_view text);

/// Appends `value`, a Unicode scalar value, as UTF-8.
void append_utf8(char32_t value, std::string& out);

/// Number of maximal invalid subparts in `text`.
int64_t count_invalid_utf8(std::string_view text);

/// Removes the maximal invalid subparts of `text` and returns their number.
int64_t drop_invalid_utf8(std::string& text);

/// White space as in Python's str.isspace.
bool is_python_space(char32_t value);

/// `text` without white space (str.isspace) at both ends. `text` must be valid UTF-8.
std::string_view strip_space(std::string_view text);

/// The words of `text`, which white space (str.isspace) separates, joined by single spaces: " ".join(text.split()) of
/// Python. `text` must be valid UTF-8.
std::string collapse_space(std::string_view text);

/// `text` in lower case as Python's str.lower makes it. `text` must be valid UTF-8.
std::string lower_case(std::string_view text);

/// A character of a word in Python's regular expressions (\w): str.isalnum, or _.
bool is_word_character(char32_t value);

/// The basic tokenizer's treatment of a code point.
enum class CharacterKind : uint8_t {
  kLetter,       // part of a word
  kSpace,        // ends a word
  kDropped,      // skipped: Cc, Cf, U+FFFD, and combining marks when accents are stripped
  kPunctuation,  // a word by itself
  kCjk,          // an ideograph: a word by itself, and the end of a context of case folding
  kContext,      // the result depends on the neighbours: fold_in_context
};

/// The kind of a code point and, for kLetter, kPunctuation and kCjk, its folded form in UTF-8.
struct Folded {
  static constexpr size_t kMaxBytes = 12;
  CharacterKind kind = CharacterKind::kDropped;
  uint8_t bytes = 0;
  uint8_t characters = 0;
  std::array<char, kMaxBytes> utf8{};
};

/// The changes that are made to every code point that is kept.
struct Folding {
  bool lower_case = true;
  bool strip_accents = true;  // NFD, then without Mn
  bool final_sigma = true;    // lower case: a capital sigma at the end of a word becomes U+03C2; false: U+03C3
};

/// Kind and folded form of every code point. Blocks of 256 are made on first use. Safe for any number of threads.
class FoldTable {
 public:
  explicit FoldTable(const Folding& folding);
  ~FoldTable();
  FoldTable(const FoldTable&) = delete;
  FoldTable& operator=(const FoldTable&) = delete;

  /// The table that all tokenizers of the process share.
  static const FoldTable& shared(const Folding& folding);

  /// `value` < 0x110000.
  const Folded& operator[](char32_t value) const {
    const Block* block = blocks_[value >> 8].load(std::memory_order_acquire);
    return (block != nullptr ? *block : make_block(value >> 8))[value & 0xFF];
  }

 private:
  using Block = std::array<Folded, 256>;
  const Block& make_block(char32_t index) const;
  [[nodiscard]] Folded fold(char32_t value) const;

  const Folding folding_;
  mutable std::array<std::atomic<const Block*>, 0x1100> blocks_{};
};

/// A code point and the range of its bytes in the text.
struct SourceCharacter {
  char32_t value;
  int64_t begin, end;
};

/// Applies str.lower() with the rule for the final sigma, then NFD with canonical ordering, then drops Mn, as far as
/// `folding` asks for. `characters` is a run without white space and without dropped characters. Each result keeps the
/// byte range of the character that it comes from. Time is linear, but n log n in runs of combining marks. Source:
/// Google's tokenization.py; CPython's unicodeobject.c for the final sigma; The Unicode Standard, section 3.11.
void fold_in_context(std::vector<SourceCharacter>& characters, const Folding& folding);

/// Punctuation as BERT defines it: category P, and every printable ASCII character that is no letter, digit or space.
bool is_bert_punctuation(char32_t value);

}  // namespace bert
