// The windows of a text that is too long, with a stride.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "data/io/error.h"

namespace bert {

/// The windows of a text have more tokens than the caller wants to compute.
struct TooManyTokens : DataError {
  using DataError::DataError;
};

/// Tokens of a text in one window.
struct TextWindow {
  int64_t start = 0, length = 0;
};

/// Windows of `room` tokens, `stride` tokens from start to start, but never with a gap; the last one ends with the text.
/// No tokens have no window. Source: run_squad.py; transformers' tokenizers with a stride of room - `stride`. Throws
/// TooManyTokens if all windows together have more than `most` tokens.
std::vector<TextWindow> text_windows(int64_t tokens, int64_t room, int64_t stride,
                                     int64_t most = std::numeric_limits<int64_t>::max());

/// True if, of all windows with the token at `position`, window `index` is the first with the most context around it.
/// Starts and ends of the windows ascend.
/// Source: run_squad.py (_check_is_max_context).
bool is_max_context(const std::vector<TextWindow>& windows, size_t index, int64_t position);

}  // namespace bert
