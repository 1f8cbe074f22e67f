// Texts, choices and tagged sentences to sequences of tokens.
#pragma once

#include "data/tasks/task_data.h"

namespace bert {

/// [CLS] text [SEP]. Sets `cut` if tokens are left out, as append_text_features() does.
TaskSequence text_sequence(const Tokenizer& tokenizer, const std::string& text, const TaskDataConfig& config,
                           bool& cut);

/// Appends the sequences of examples.texts: [CLS] A [SEP], or [CLS] A [SEP] B [SEP], with tokens taken from the end of
/// the longer text, of B if both are equal; with config.cut_at_begin, from its begin. With LongTexts::kWindows nothing is
/// taken from that text, which has windows, and the other is cut if it fills more than half of them. Source:
/// run_classifier.py (convert_single_example). Multiple choice: A is the context, B the start of the next sentence and one
/// of its ends. Source: transformers' run_swag.py.
void append_text_features(const TaskExamples& examples, const Tokenizer& tokenizer, const TaskDataConfig& config,
                          TaskFeatures& features);

/// Appends the sequences of examples.sentences. A sentence that is too long continues in further sequences, between
/// words, or in windows.
void append_sentence_features(const TaskExamples& examples, const Tokenizer& tokenizer, const TaskDataConfig& config,
                              TaskFeatures& features);

}  // namespace bert
