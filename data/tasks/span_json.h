// Spans of characters in JSON, as spaCy, Prodigy and doccano write them.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string_view>
#include <vector>

#include "data/tokenizer/basic_tokenizer.h"

namespace bert {

/// [start, end, ...], or an object with start and end, or start_offset and end_offset. Throws DataError for other values.
TextSpan span_of_json(const nlohmann::json& value);

/// The places of a text's characters among its bytes. `text` is valid UTF-8.
class CharacterPlaces {
 public:
  explicit CharacterPlaces(std::string_view text);
  /// The bytes of [begin, end) in characters. Throws DataError if the span is empty or not in the text.
  [[nodiscard]] TextSpan bytes_of(const TextSpan& characters) const;

 private:
  std::vector<int64_t> begins_;  // of each character, and the end of the text
};

}  // namespace bert
