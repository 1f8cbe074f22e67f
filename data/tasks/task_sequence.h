// One sequence of a fine-tuning task.
#pragma once

#include <cstdint>
#include <vector>

#include "data/tokenizer/basic_tokenizer.h"

namespace bert {

/// The label of a token without one: the default ignore_index of PyTorch's CrossEntropyLoss.
inline constexpr int32_t kNoLabel = -100;

/// [CLS] A [SEP], or [CLS] A [SEP] B [SEP], without padding, and the label of the task's kind.
struct TaskSequence {
  std::vector<int32_t> input_ids;       // [S]
  std::vector<int32_t> token_type_ids;  // [S], 0 up to the first [SEP], 1 behind it
  int32_t example = 0;                  // index of its example
  int32_t choice = 0;                   // multiple choice: its number among the example's choices
  int32_t label = kNoLabel;             // the class; multiple choice: the right choice, the same for all choices
  std::vector<int32_t> labels;          // multi-label: the right ones, ascending
  std::vector<float> values;            // regression: one for each output
  float value = 0;                      // embeddings: TextExample::value
  int32_t start_position = 0,
          end_position = 0;           // answers: first and last token; 0 and 0 where the answer is not inside;
                                      // EntityMarkers::kStartMarkers: the tokens [E1] and [E2]
  std::vector<int32_t> token_labels;  // [S] in token classification: kNoLabel but for the first piece of a word
  std::vector<int32_t> token_words;   // [S] in token classification: the word that begins at the token, or -1
  std::vector<TextSpan> token_spans;  // [S] of a TaggedSentence with a text: bytes of the text; empty for [CLS], [SEP]
};

}  // namespace bert
