// Tokens that were added to a vocabulary: names of drugs, marks of entities. Each is one token wherever it stands.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/added_token.h"
#include "data/config.h"
#include "data/text/unicode.h"
#include "data/tokenizer/basic_tokenizer.h"
#include "data/tokenizer/double_array.h"

namespace bert {

class Vocabulary;

/// The search for added tokens in texts. Immutable: any number of threads may use one.
/// Source: AddedVocabulary of Hugging Face's tokenizers.
class AddedTokenSearch {
 public:
  /// Searches for vocabulary.added(), and for the special tokens of BERT if config.match_special_tokens.
  AddedTokenSearch(const Vocabulary& vocabulary, const TokenizerConfig& config);

  struct Match {
    TextSpan span;  // bytes of the text
    int32_t id = 0;
  };
  /// The matches in `text`, from left to right, without overlaps. Of two tokens that begin at one place, the longer
  /// one matches. Tokens that are not normalized come first, as in Hugging Face.
  [[nodiscard]] std::vector<Match> find(std::string_view text) const;

 private:
  /// Tokens that are searched in one form of the text.
  struct Tokens {
    std::vector<std::pair<std::string, int32_t>> texts;
    std::string first_bytes = {};
    DoubleArray tree{std::vector<std::pair<std::string_view, int32_t>>()};
    void index();
  };

  void find_in(const Tokens& tokens, std::string_view text, std::vector<Match>& matches) const;
  void find_normalized(std::string_view text, int64_t offset, std::vector<Match>& matches) const;
  /// The text without dropped characters, folded, with ideographs apart. With `sources`, the bytes of the text that
  /// each byte of the result comes from.
  std::string normalize(std::string_view text, std::vector<TextSpan>* sources) const;

  const Folding folding_;
  const bool splits_ideographs_;
  std::vector<int32_t> single_words_;  // ids
  Tokens raw_, normalized_;
};

}  // namespace bert
