#include "data/tasks/text_features.h"

#include <algorithm>
#include <utility>

namespace bert {
namespace {

/// Shortens the texts to `room` tokens together. Source: run_classifier.py (_truncate_seq_pair).
void truncate_pair(std::vector<int32_t>& a, std::vector<int32_t>& b, size_t room) {
  while (a.size() + b.size() > room) (a.size() > b.size() ? a : b).pop_back();
}

/// [CLS] A [SEP] or, if B has tokens, [CLS] A [SEP] B [SEP].
TaskSequence pair_sequence(std::vector<int32_t> a, std::vector<int32_t> b, const Vocabulary& vocabulary,
                           int64_t max_seq_length) {
  truncate_pair(a, b, static_cast<size_t>(max_seq_length) - (b.empty() ? 2 : 3));
  TaskSequence sequence;
  std::vector<int32_t>& ids = sequence.input_ids;
  ids.reserve(a.size() + b.size() + 3);
  ids.push_back(vocabulary.cls_id());
  ids.insert(ids.end(), a.begin(), a.end());
  ids.push_back(vocabulary.sep_id());
  sequence.token_type_ids.assign(ids.size(), 0);
  if (b.empty()) return sequence;
  ids.insert(ids.end(), b.begin(), b.end());
  ids.push_back(vocabulary.sep_id());
  sequence.token_type_ids.resize(ids.size(), 1);
  return sequence;
}

/// Cuts a sentence into sequences of whole words.
class SentenceCutter {
 public:
  SentenceCutter(const Tokenizer& tokenizer, int64_t max_seq_length, std::vector<TaskSequence>& sequences)
      : tokenizer_(tokenizer), room_(static_cast<size_t>(max_seq_length) - 2), sequences_(sequences) {}

  void append(const TaggedSentence& sentence, int32_t example) {
    begin(example);
    for (size_t word = 0; word < sentence.words.size(); ++word) {
      std::vector<int32_t> pieces = tokenizer_.encode(sentence.words[word]);
      if (pieces.empty()) continue;
      if (pieces.size() > room_) pieces.resize(room_);
      if (next_.input_ids.size() - 1 + pieces.size() > room_) {
        end();
        begin(example);
      }
      for (size_t piece = 0; piece < pieces.size(); ++piece) {
        const bool first = piece == 0;
        add(pieces[piece], first && !sentence.tags.empty() ? sentence.tags[word] : kNoLabel,
            first ? static_cast<int32_t>(word) : -1);
      }
    }
    if (next_.input_ids.size() > 1) end();  // a sentence whose words have no tokens has no sequence
  }

 private:
  void begin(int32_t example) {
    next_ = {};
    next_.example = example;
    add(tokenizer_.vocabulary().cls_id(), kNoLabel, -1);
  }
  void end() {
    add(tokenizer_.vocabulary().sep_id(), kNoLabel, -1);
    next_.token_type_ids.assign(next_.input_ids.size(), 0);
    sequences_.push_back(std::move(next_));
  }
  void add(int32_t id, int32_t label, int32_t word) {
    next_.input_ids.push_back(id);
    next_.token_labels.push_back(label);
    next_.token_words.push_back(word);
  }

  const Tokenizer& tokenizer_;
  const size_t room_;  // tokens beside [CLS] and [SEP]
  std::vector<TaskSequence>& sequences_;
  TaskSequence next_;
};

}  // namespace

void append_text_features(const TaskExamples& examples, const Tokenizer& tokenizer, const TaskDataConfig& config,
                          std::vector<TaskSequence>& sequences) {
  const Vocabulary& vocabulary = tokenizer.vocabulary();
  for (size_t i = 0; i < examples.texts.size(); ++i) {
    const TextExample& example = examples.texts[i];
    const std::vector<int32_t> a = tokenizer.encode(example.text), b = tokenizer.encode(example.text_pair);
    const size_t choices = std::max<size_t>(example.choices.size(), 1);
    for (size_t choice = 0; choice < choices; ++choice) {
      std::vector<int32_t> second = b;
      if (!example.choices.empty()) tokenizer.encode(example.choices[choice], second);
      TaskSequence sequence = pair_sequence(a, std::move(second), vocabulary, config.max_seq_length);
      sequence.example = static_cast<int32_t>(i);
      sequence.choice = static_cast<int32_t>(choice);
      if (example.label >= 0) sequence.label = example.label;
      sequence.value = static_cast<float>(example.value);
      sequences.push_back(std::move(sequence));
    }
  }
}

void append_sentence_features(const TaskExamples& examples, const Tokenizer& tokenizer, const TaskDataConfig& config,
                              std::vector<TaskSequence>& sequences) {
  SentenceCutter cutter(tokenizer, config.max_seq_length, sequences);
  for (size_t i = 0; i < examples.sentences.size(); ++i) cutter.append(examples.sentences[i], static_cast<int32_t>(i));
}

}  // namespace bert
