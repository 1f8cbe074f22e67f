// UTF-8 and the properties of Unicode that BERT's basic tokenizer asks for.
//
// Note [Unicode version]
// Properties come from utf8proc: 2.8 (Debian 12) has Unicode 15.0. Python 3.11, on which the oracle runs, has 14.0. The
// two differ on the 4489 code points that 15.0 added, which 14.0 calls unassigned: there, combining marks are dropped,
// format characters are dropped and punctuation is split where 14.0 keeps all three as letters. On every other code
// point they agree (tests/data/unicode_test.cc).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace bert {

/// What decode_utf8 gives for bytes that are not UTF-8.
inline constexpr char32_t kInvalidUtf8 = 0xFFFFFFFF;

/// One code point and the bytes it takes.
struct DecodedUtf8 {
  char32_t value;
  int bytes;
};

/// Decodes the code point at the start of `text`, which is not empty. For invalid bytes: kInvalidUtf8 and the length of
/// the maximal invalid subpart, at least 1. Source: The Unicode Standard 15.0, section 3.9, table 3-7 and "U+FFFD
/// substitution of maximal subparts".
DecodedUtf8 decode_utf8(std::string_view text);

/// Appends `value`, a Unicode scalar value, as UTF-8.
void append_utf8(char32_t value, std::string& out);

/// Number of maximal invalid subparts in `text`.
int64_t count_invalid_utf8(std::string_view text);

/// Removes the maximal invalid subparts of `text` and returns their number.
int64_t drop_invalid_utf8(std::string& text);

/// White space as Python's str.isspace has it.
bool is_python_space(char32_t value);

/// `text` without white space (str.isspace) at both ends. `text` is valid UTF-8.
std::string_view strip_space(std::string_view text);

/// What the basic tokenizer does with a code point.
enum class CharacterKind : uint8_t {
  kLetter,       // part of a word
  kSpace,        // ends a word
  kDropped,      // Cc, Cf, U+FFFD, combining marks when accents are stripped: as if it were not there
  kPunctuation,  // a word by itself
  kCjk,          // an ideograph: a word by itself, and the context of case folding ends here
  kContext,      // what it becomes depends on its neighbours: fold_in_context
};

/// A code point's kind and, for kLetter, kPunctuation and kCjk, the UTF-8 that it becomes.
struct Folded {
  static constexpr size_t kMaxBytes = 12;
  CharacterKind kind = CharacterKind::kDropped;
  uint8_t bytes = 0;
  uint8_t characters = 0;
  std::array<char, kMaxBytes> utf8{};
};

/// Kind and folded form of every code point, made per block of 256 when first asked for. Any number of threads may ask.
class FoldTable {
 public:
  /// lower: lower case, then NFD, then without Mn. Otherwise code points stay as they are.
  explicit FoldTable(bool lower);
  ~FoldTable();
  FoldTable(const FoldTable&) = delete;
  FoldTable& operator=(const FoldTable&) = delete;

  /// The table that every tokenizer of the process shares.
  static const FoldTable& shared(bool lower);

  /// `value` < 0x110000.
  const Folded& operator[](char32_t value) const {
    const Block* block = blocks_[value >> 8].load(std::memory_order_acquire);
    return (block != nullptr ? *block : make_block(value >> 8))[value & 0xFF];
  }

 private:
  using Block = std::array<Folded, 256>;
  const Block& make_block(char32_t index) const;
  [[nodiscard]] Folded fold(char32_t value) const;

  const bool lower_;
  mutable std::array<std::atomic<const Block*>, 0x1100> blocks_{};
};

/// A code point and the bytes of the text that it comes from.
struct SourceCharacter {
  char32_t value;
  int64_t begin, end;
};

/// str.lower() with the final-sigma rule, NFD with canonical ordering, then Mn dropped, on a run of characters that
/// holds neither white space nor dropped characters. Each result keeps the place of the character that it comes from.
/// Linear but for runs of combining marks (n log n). Source: Google's tokenization.py; CPython's unicodeobject.c for
/// the rule of the final sigma; The Unicode Standard, section 3.11.
void fold_in_context(std::vector<SourceCharacter>& characters);

/// Punctuation as BERT has it: every printable ASCII character that is no letter, digit or space, and category P.
bool is_bert_punctuation(char32_t value);

}  // namespace bert
