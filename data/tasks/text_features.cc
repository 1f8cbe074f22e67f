#include "data/tasks/text_features.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "data/io/error.h"
#include "data/tasks/entity_markers.h"

namespace bert {
namespace {

/// Shortens the texts to `room` tokens together. Source: run_classifier.py (_truncate_seq_pair). Returns true if they
/// were longer.
bool truncate_pair(std::vector<int32_t>& a, std::vector<int32_t>& b, size_t room, bool at_begin) {
  const size_t all_a = a.size(), all_b = b.size();
  size_t size_a = all_a, size_b = all_b;
  while (size_a + size_b > room) --(size_a > size_b ? size_a : size_b);
  const auto keep = [&](std::vector<int32_t>& ids, size_t size) {
    if (at_begin) ids.erase(ids.begin(), ids.end() - static_cast<std::ptrdiff_t>(size));
    ids.resize(size);
  };
  keep(a, size_a);
  keep(b, size_b);
  return size_a + size_b < all_a + all_b;
}

/// [CLS] A [SEP] or, if B has tokens, [CLS] A [SEP] B [SEP]. Sets `cut` if the texts are too long.
TaskSequence pair_sequence(std::vector<int32_t> a, std::vector<int32_t> b, const Vocabulary& vocabulary,
                           const TaskDataConfig& config, bool& cut) {
  cut |= truncate_pair(a, b, static_cast<size_t>(config.max_seq_length) - (b.empty() ? 2 : 3), config.cut_at_begin);
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

/// The sequence of a text with two marked entities. Throws DataError with the example.
TaskSequence marked_example(const TaskExamples& examples, const TextExample& example, const Tokenizer& tokenizer,
                            const TaskDataConfig& config, bool& cut) {
  try {
    return marked_sequence(tokenizer.encode(with_markers(example.text)), tokenizer.vocabulary(), config.max_seq_length,
                           cut);
  } catch (const DataError& error) {
    if (examples.file.empty()) throw;
    throw DataError(fmt::format("{}: example {}: {}", examples.file, example.id, error.what()));
  }
}

/// Cuts a sentence into sequences of whole words.
class SentenceCutter {
 public:
  SentenceCutter(const Tokenizer& tokenizer, int64_t max_seq_length, TaskFeatures& features)
      : tokenizer_(tokenizer), room_(static_cast<size_t>(max_seq_length) - 2), features_(features) {}

  void append(const TaggedSentence& sentence, int32_t example) {
    begin(example);
    cut_ = false;
    int32_t number = 0;
    for (const EncodedWord& word : tokenizer_.encode_words(sentence.text))
      append_word(word, number++, kNoLabel, /*keep_spans=*/true);
    for (const std::string& word : sentence.words) {
      EncodedWord whole;
      for (const EncodedWord& part : tokenizer_.encode_words(word))
        whole.ids.insert(whole.ids.end(), part.ids.begin(), part.ids.end());
      const auto place = static_cast<size_t>(number);
      append_word(whole, number++, sentence.tags.empty() ? kNoLabel : sentence.tags[place], /*keep_spans=*/false);
    }
    if (next_.input_ids.size() > 1) end();  // a sentence whose words have no tokens has no sequence
    features_.cut += cut_;
  }

 private:
  void append_word(const EncodedWord& word, int32_t number, int32_t label, bool keep_spans) {
    const size_t pieces = std::min(word.ids.size(), room_);
    cut_ |= pieces < word.ids.size();
    if (pieces == 0) return;
    if (next_.input_ids.size() - 1 + pieces > room_) {
      const int32_t example = next_.example;
      end();
      begin(example);
    }
    for (size_t piece = 0; piece < pieces; ++piece) {
      const bool first = piece == 0;
      if (keep_spans) next_.token_spans.resize(next_.input_ids.size());  // [CLS] has no place
      add(word.ids[piece], first ? label : kNoLabel, first ? number : -1);
      if (keep_spans) next_.token_spans.push_back(word.spans[piece]);
    }
  }
  void begin(int32_t example) {
    next_ = {};
    next_.example = example;
    add(tokenizer_.vocabulary().cls_id(), kNoLabel, -1);
  }
  void end() {
    add(tokenizer_.vocabulary().sep_id(), kNoLabel, -1);
    next_.token_type_ids.assign(next_.input_ids.size(), 0);
    if (!next_.token_spans.empty()) next_.token_spans.resize(next_.input_ids.size());
    features_.sequences.push_back(std::move(next_));
  }
  void add(int32_t id, int32_t label, int32_t word) {
    next_.input_ids.push_back(id);
    next_.token_labels.push_back(label);
    next_.token_words.push_back(word);
  }

  const Tokenizer& tokenizer_;
  const size_t room_;  // tokens beside [CLS] and [SEP]
  TaskFeatures& features_;
  TaskSequence next_;
  bool cut_ = false;  // a word of the sentence has more pieces than a sequence has room for
};

}  // namespace

TaskSequence text_sequence(const Tokenizer& tokenizer, const std::string& text, const TaskDataConfig& config,
                           bool& cut) {
  return pair_sequence(tokenizer.encode(text), {}, tokenizer.vocabulary(), config, cut);
}

void append_text_features(const TaskExamples& examples, const Tokenizer& tokenizer, const TaskDataConfig& config,
                          TaskFeatures& features) {
  const Vocabulary& vocabulary = tokenizer.vocabulary();
  const bool marked = config.entity_markers != EntityMarkers::kNone && features.kind == TaskKind::kClassification;
  features.start_markers = marked && config.entity_markers == EntityMarkers::kStartMarkers;
  for (size_t i = 0; i < examples.texts.size(); ++i) {
    const TextExample& example = examples.texts[i];
    const std::vector<int32_t> a = marked ? std::vector<int32_t>() : tokenizer.encode(example.text),
                               b = tokenizer.encode(example.text_pair);
    const size_t choices = std::max<size_t>(example.choices.size(), 1);
    bool cut = false;
    for (size_t choice = 0; choice < choices; ++choice) {
      std::vector<int32_t> second = b;
      if (!example.choices.empty()) tokenizer.encode(example.choices[choice], second);
      TaskSequence sequence = marked ? marked_example(examples, example, tokenizer, config, cut)
                                     : pair_sequence(a, std::move(second), vocabulary, config, cut);
      sequence.example = static_cast<int32_t>(i);
      sequence.choice = static_cast<int32_t>(choice);
      if (example.label >= 0) sequence.label = example.label;
      sequence.labels = example.labels;
      sequence.values.assign(example.values.begin(), example.values.end());
      features.sequences.push_back(std::move(sequence));
    }
    features.cut += cut;
  }
}

void append_sentence_features(const TaskExamples& examples, const Tokenizer& tokenizer, const TaskDataConfig& config,
                              TaskFeatures& features) {
  SentenceCutter cutter(tokenizer, config.max_seq_length, features);
  for (size_t i = 0; i < examples.sentences.size(); ++i) cutter.append(examples.sentences[i], static_cast<int32_t>(i));
}

}  // namespace bert
