#include "data/tasks/text_features.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "data/io/error.h"
#include "data/tasks/entity_markers.h"
#include "data/tasks/text_windows.h"

namespace bert {
namespace {

/// Keeps the first or, with `at_begin`, the last `size` tokens. Returns true if there were more.
bool keep_tokens(std::vector<int32_t>& ids, size_t size, bool at_begin) {
  const bool more = ids.size() > size;
  if (at_begin) ids.erase(ids.begin(), ids.end() - static_cast<std::ptrdiff_t>(size));
  ids.resize(size);
  return more;
}

/// Shortens the texts to `room` tokens together. Two halves of an odd room: the first text has one token more as in
/// run_classifier.py (_truncate_seq_pair), with odd_token_to_longer the one that was longer, or the second (tokenizers'
/// truncate_encodings). Returns true if they were longer.
bool truncate_pair(std::vector<int32_t>& a, std::vector<int32_t>& b, size_t room, const TaskDataConfig& config) {
  size_t size_a = a.size(), size_b = b.size();
  while (size_a + size_b > room) --(size_a > size_b ? size_a : size_b);
  if (config.odd_token_to_longer && size_a == size_b + 1 && b.size() > size_b && a.size() <= b.size())
    std::swap(size_a, size_b);
  const bool cut_a = keep_tokens(a, size_a, config.cut_at_begin), cut_b = keep_tokens(b, size_b, config.cut_at_begin);
  return cut_a || cut_b;
}

/// [CLS] A [SEP] or, if B has tokens, [CLS] A [SEP] B [SEP].
TaskSequence pair_sequence(std::span<const int32_t> a, std::span<const int32_t> b, const Vocabulary& vocabulary) {
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

/// The tokens that a sequence of A, or of A and B, has room for.
int64_t room_for(const std::vector<int32_t>& b, const TaskDataConfig& config) {
  return config.max_seq_length - (b.empty() ? 2 : 3);
}

/// pair_sequence() of texts that are cut to their room. Sets `cut` if they are longer.
TaskSequence cut_sequence(std::vector<int32_t> a, std::vector<int32_t> b, const Vocabulary& vocabulary,
                          const TaskDataConfig& config, bool& cut) {
  cut |= truncate_pair(a, b, static_cast<size_t>(room_for(b, config)), config);
  return pair_sequence(a, b, vocabulary);
}

/// The windows of texts that are longer than their room: of the longer text, of B if both are equal. The other is in each
/// window, cut to half of the room; then `cut` is set. Shorter texts have one sequence.
std::vector<TaskSequence> window_sequences(std::vector<int32_t> a, std::vector<int32_t> b, const Vocabulary& vocabulary,
                                           const TaskDataConfig& config, bool& cut) {
  const int64_t room = room_for(b, config);
  if (std::ssize(a) + std::ssize(b) <= room) return {pair_sequence(a, b, vocabulary)};
  const bool of_a = a.size() > b.size();
  std::vector<int32_t>& whole = of_a ? b : a;
  const std::vector<int32_t>& parted = of_a ? a : b;
  cut |= keep_tokens(whole, std::min(whole.size(), static_cast<size_t>(room / 2)), config.cut_at_begin);
  std::vector<TaskSequence> sequences;
  for (const TextWindow& window :
       text_windows(std::ssize(parted), room - std::ssize(whole), config.doc_stride, config.most_window_tokens)) {
    const std::span part =
        std::span(parted).subspan(static_cast<size_t>(window.start), static_cast<size_t>(window.length));
    sequences.push_back(of_a ? pair_sequence(part, whole, vocabulary) : pair_sequence(whole, part, vocabulary));
  }
  return sequences;
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

/// A sentence as its pieces, and these in sequences.
class SentenceCutter {
 public:
  SentenceCutter(const Tokenizer& tokenizer, const TaskDataConfig& config, TaskFeatures& features)
      : tokenizer_(tokenizer),
        config_(config),
        room_(static_cast<size_t>(config.max_seq_length) - 2),
        features_(features) {}

  void append(const TaggedSentence& sentence, int32_t example) {
    pieces_.clear();
    int32_t number = 0;
    bool cut = false;
    for (const EncodedWord& word : tokenizer_.encode_words(sentence.text)) cut |= append_word(word, number++, kNoLabel);
    for (const std::string& word : sentence.words) {
      EncodedWord whole;
      for (const EncodedWord& part : tokenizer_.encode_words(word))
        whole.ids.insert(whole.ids.end(), part.ids.begin(), part.ids.end());
      const auto place = static_cast<size_t>(number);
      cut |= append_word(whole, number++, sentence.tags.empty() ? kNoLabel : sentence.tags[place]);
    }
    features_.cut += cut;
    const std::vector<TextWindow> parts = windows() ? text_windows(std::ssize(pieces_), static_cast<int64_t>(room_),
                                                                   config_.doc_stride, config_.most_window_tokens)
                                                    : whole_words();
    for (size_t part = 0; part < parts.size(); ++part) {
      append_sequence(parts[part], example, !sentence.text.empty());
      if (windows()) keep_own(parts, part);
    }
  }

 private:
  struct Piece {
    int32_t id = 0, word = -1, label = kNoLabel;  // the word that begins here, and its label
    TextSpan span = {};
  };

  [[nodiscard]] bool windows() const { return config_.long_texts == LongTexts::kWindows; }

  /// Returns true if the word has more pieces than a sequence has room for: without windows, the rest is lost.
  bool append_word(const EncodedWord& word, int32_t number, int32_t label) {
    const size_t pieces = windows() ? word.ids.size() : std::min(word.ids.size(), room_);
    for (size_t piece = 0; piece < pieces; ++piece) {
      const bool first = piece == 0;
      pieces_.push_back({.id = word.ids[piece],
                         .word = first ? number : -1,
                         .label = first ? label : kNoLabel,
                         .span = piece < word.spans.size() ? word.spans[piece] : TextSpan()});
    }
    return pieces < word.ids.size();
  }

  /// Parts of whole words, one behind the other.
  [[nodiscard]] std::vector<TextWindow> whole_words() const {
    std::vector<TextWindow> parts;
    for (size_t begin = 0; begin < pieces_.size();) {
      size_t end = std::min(begin + room_, pieces_.size());
      while (end < pieces_.size() && pieces_[end].word < 0) --end;
      parts.push_back({static_cast<int64_t>(begin), static_cast<int64_t>(end - begin)});
      begin = end;
    }
    return parts;
  }

  void append_sequence(const TextWindow& part, int32_t example, bool keep_spans) {
    TaskSequence& sequence = features_.sequences.emplace_back();
    sequence.example = example;
    const auto add = [&](const Piece& piece) {
      sequence.input_ids.push_back(piece.id);
      sequence.token_labels.push_back(piece.label);
      sequence.token_words.push_back(piece.word);
      if (keep_spans) sequence.token_spans.push_back(piece.span);
    };
    add({.id = tokenizer_.vocabulary().cls_id()});
    for (int64_t i = part.start; i < part.start + part.length; ++i) add(pieces_[static_cast<size_t>(i)]);
    add({.id = tokenizer_.vocabulary().sep_id()});
    sequence.token_type_ids.assign(sequence.input_ids.size(), 0);
  }

  /// Leaves the words of window `index` that have more context in another one to that one.
  void keep_own(const std::vector<TextWindow>& parts, size_t index) {
    TaskSequence& sequence = features_.sequences.back();
    SquadWindow& window = features_.windows.emplace_back();
    window.first_token = 1;
    for (int64_t i = 0; i < parts[index].length; ++i) {
      const bool own = is_max_context(parts, index, parts[index].start + i);
      window.max_context.push_back(own);
      if (own) continue;
      const auto token = static_cast<size_t>(i) + 1;
      sequence.token_labels[token] = kNoLabel;
      sequence.token_words[token] = -1;
    }
  }

  const Tokenizer& tokenizer_;
  const TaskDataConfig& config_;
  const size_t room_;  // tokens beside [CLS] and [SEP]
  TaskFeatures& features_;
  std::vector<Piece> pieces_;
};

}  // namespace

TaskSequence text_sequence(const Tokenizer& tokenizer, const std::string& text, const TaskDataConfig& config,
                           bool& cut) {
  return cut_sequence(tokenizer.encode(text), {}, tokenizer.vocabulary(), config, cut);
}

void append_text_features(const TaskExamples& examples, const Tokenizer& tokenizer, const TaskDataConfig& config,
                          TaskFeatures& features) {
  const Vocabulary& vocabulary = tokenizer.vocabulary();
  const bool marked = config.entity_markers != EntityMarkers::kNone && features.kind == TaskKind::kClassification;
  features.start_markers = marked && config.entity_markers == EntityMarkers::kStartMarkers;
  const bool windows = !marked && config.long_texts == LongTexts::kWindows && features.has_text_rows();
  for (size_t i = 0; i < examples.texts.size(); ++i) {
    const TextExample& example = examples.texts[i];
    const std::vector<int32_t> a = marked ? std::vector<int32_t>() : tokenizer.encode(example.text),
                               b = tokenizer.encode(example.text_pair);
    const size_t choices = std::max<size_t>(example.choices.size(), 1);
    bool cut = false;
    for (size_t choice = 0; choice < choices; ++choice) {
      std::vector<int32_t> second = b;
      if (!example.choices.empty()) tokenizer.encode(example.choices[choice], second);
      std::vector<TaskSequence> sequences;
      if (marked) {
        sequences.push_back(marked_example(examples, example, tokenizer, config, cut));
      } else if (windows) {
        sequences = window_sequences(a, std::move(second), vocabulary, config, cut);
      } else {
        sequences.push_back(cut_sequence(a, std::move(second), vocabulary, config, cut));
      }
      for (TaskSequence& sequence : sequences) {
        sequence.example = static_cast<int32_t>(i);
        sequence.choice = static_cast<int32_t>(choice);
        if (example.label >= 0) sequence.label = example.label;
        sequence.labels = example.labels;
        sequence.values.assign(example.values.begin(), example.values.end());
        features.sequences.push_back(std::move(sequence));
      }
    }
    if (windows) features.text_ends.push_back(std::ssize(features.sequences));
    features.cut += cut;
  }
}

void append_sentence_features(const TaskExamples& examples, const Tokenizer& tokenizer, const TaskDataConfig& config,
                              TaskFeatures& features) {
  SentenceCutter cutter(tokenizer, config, features);
  for (size_t i = 0; i < examples.sentences.size(); ++i) cutter.append(examples.sentences[i], static_cast<int32_t>(i));
}

}  // namespace bert
