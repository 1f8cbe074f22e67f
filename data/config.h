// Options of the data side. Keys as in Hugging Face's tokenizer_config.json and Google's flags.
#pragma once

#include <cstdint>

namespace bert {

/// How text becomes WordPiece tokens.
struct TokenizerConfig {
  bool do_lower_case = true;
  int64_t max_input_chars_per_word = 200;
  bool match_special_tokens = false;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit("do_lower_case", self.do_lower_case, "lower case and strip accents (an uncased vocabulary)");
    visit("max_input_chars_per_word", self.max_input_chars_per_word,
          "longer words become [UNK]: 200 as Google, 100 as Hugging Face and NVIDIA", 1, 10000);
    visit("match_special_tokens", self.match_special_tokens,
          "[MASK] and its like in the text are that token (Hugging Face), not punctuation and letters (Google)");
  }
};

}  // namespace bert
