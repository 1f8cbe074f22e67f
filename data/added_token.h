// A token that was added to a vocabulary.
#pragma once

#include <cstdint>

namespace bert {

/// One token, with the fields of transformers' AddedToken. Its text is that of the vocabulary.
struct AddedToken {
  int32_t id = 0;
  bool single_word = false;  // matches whole words alone
  // Takes the white space on that side along. BERT's tokenizer drops white space, so no id depends on this.
  bool lstrip = false, rstrip = false;
  bool normalized = false;  // is searched in the folded text: "COVID" also matches "Covid" of an uncased model
  bool special = false;     // no word: decode() leaves it out
  bool operator==(const AddedToken&) const = default;
};

}  // namespace bert
