// Words of any text, for comparing and counting documents.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace bert {

/// Calls `take` with every word of valid UTF-8, in lower case and without accents. White space and punctuation separate
/// words; an ideograph is a word.
void for_each_word(std::string_view text, const std::function<void(std::string_view word)>& take);

/// Number of words.
int64_t count_words(std::string_view text);

}  // namespace bert
