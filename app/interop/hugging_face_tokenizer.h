// The files of a tokenizer of transformers: vocab.txt, tokenizer.json, tokenizer_config.json, special_tokens_map.json,
// added_tokens.json, and sentence_bert_config.json of sentence-transformers.
#pragma once

#include <string>

#include "app/interop/foreign_checkpoint.h"

namespace bert {

/// Reads the files that `directory` has. Sets vocabulary, added_tokens, tokenizer, max_tokens and cut_at_begin of the
/// model, states_case, and adds notes about differences that change the tokens of some texts. The vocabulary stays empty
/// if there is neither tokenizer.json nor vocab.txt. tokenizer_config.json decides where files differ in settings, as in
/// transformers. Throws DataError for a tokenizer that is not BERT's or has settings that this program does not know, and
/// for a vocab.txt that is not the vocabulary of tokenizer.json (with the first token); IoError.
void read_hugging_face_tokenizer(const std::string& directory, ForeignCheckpoint& checkpoint);

/// The same of one file in the format of tokenizer.json, whatever its name and the files beside it.
void read_tokenizer_file(const std::string& file, ForeignCheckpoint& checkpoint);

}  // namespace bert
