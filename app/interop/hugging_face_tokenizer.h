// The files of a tokenizer of transformers: vocab.txt, tokenizer.json, tokenizer_config.json, special_tokens_map.json.
#pragma once

#include <string>
#include <vector>

#include "data/config.h"

namespace bert {

/// A BERT tokenizer of transformers.
struct HuggingFaceTokenizer {
  std::vector<std::string> vocabulary;  // empty if the directory has neither tokenizer.json nor vocab.txt
  TokenizerConfig config{.max_input_chars_per_word = 100, .match_special_tokens = true};  // transformers' defaults
  bool states_case = false;        // one of the files says do_lower_case
  std::vector<std::string> notes;  // differences that change the tokens of some texts
};

/// Reads the files that `directory` has. tokenizer_config.json decides where files differ in settings, as in
/// transformers. Throws DataError for a tokenizer that is not BERT's or has settings that this program does not know, and
/// for a vocab.txt that is not the vocabulary of tokenizer.json (with the first token); IoError.
HuggingFaceTokenizer read_hugging_face_tokenizer(const std::string& directory);

}  // namespace bert
