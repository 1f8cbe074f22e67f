// Options of the data side. Keys as in Hugging Face's tokenizer_config.json and Google's flags.
#pragma once

#include <cstdint>

namespace bert {

/// The conversion of text to WordPiece tokens.
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

/// The making of pre-training examples from text. Names and defaults of Google's create_pretraining_data.py.
struct PretrainingDataConfig {
  int64_t max_seq_length = 128;
  int64_t max_predictions_per_seq = 20;
  double masked_lm_prob = 0.15;
  int64_t random_seed = 12345;
  int64_t dupe_factor = 10;
  double short_seq_prob = 0.1;
  bool do_whole_word_mask = false;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit("max_seq_length", self.max_seq_length, "tokens of an example with [CLS] and both [SEP]", 5, 65535);
    visit("max_predictions_per_seq", self.max_predictions_per_seq, "masked tokens of an example at most", 1, 65535);
    visit("masked_lm_prob", self.masked_lm_prob, "share of an example's tokens that is masked", 0.0, 1.0);
    visit("random_seed", self.random_seed, "seed of all that is drawn", 0, INT64_MAX);
    visit("dupe_factor", self.dupe_factor, "times that the text is used, each with other masks", 1, 10000);
    visit("short_seq_prob", self.short_seq_prob, "share of documents with a shorter target length", 0.0, 1.0);
    visit("do_whole_word_mask", self.do_whole_word_mask, "mask all pieces of a word together");
  }
};

}  // namespace bert
