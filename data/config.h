// Options of the data side. Keys as in Hugging Face's tokenizer_config.json and Google's flags.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cuda_ext/names.h"
#include "cuda_ext/window_pooling.h"

namespace bert {

/// The conversion of text to WordPiece tokens.
struct TokenizerConfig {
  bool do_lower_case = true;
  std::optional<bool> strip_accents = {};  // empty: as do_lower_case
  bool tokenize_chinese_chars = true;
  int64_t max_input_chars_per_word = 200;
  bool match_special_tokens = false;
  bool final_sigma = true;

  /// True if accents are stripped.
  [[nodiscard]] bool strips_accents() const { return strip_accents.value_or(do_lower_case); }

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit("do_lower_case", self.do_lower_case, "lower case and strip accents (an uncased vocabulary)");
    visit("strip_accents", self.strip_accents, "strip accents: true or false; by default as do_lower_case");
    visit("tokenize_chinese_chars", self.tokenize_chinese_chars,
          "an ideograph is a word; false: it is a letter of a word (some Japanese vocabularies)");
    visit("max_input_chars_per_word", self.max_input_chars_per_word,
          "longer words become [UNK]: 200 as Google, 100 as Hugging Face and NVIDIA", 1, 10000);
    visit("match_special_tokens", self.match_special_tokens,
          "[MASK] and its like in the text are that token (Hugging Face), not punctuation and letters (Google)");
    visit("final_sigma", self.final_sigma,
          "lower case of a last sigma: U+03C2 (Google); false: U+03C3, as in a tokenizer.json");
  }
};

/// The task, beside masked tokens, that examples are made for.
enum class Objective : uint8_t {
  kNsp,  // [CLS] A [SEP] B [SEP], B follows A or comes from elsewhere. Source: BERT
  kMlm,  // [CLS] A [SEP], sentences of one document packed to full length. Source: RoBERTa's DOC-SENTENCES
  kSop   // [CLS] A [SEP] B [SEP], neighbours in the text, swapped in half of the cases. Source: ALBERT
};

/// True if the examples have two segments, and a label that a head of its own predicts.
constexpr bool has_pairs(Objective objective) { return objective != Objective::kMlm; }

/// The masks that examples store.
enum class StoredMasks : uint8_t {
  kStatic,  // drawn when the examples are made
  kNone     // left to the loader, which draws them in every epoch
};

/// The words for the values of an enumeration, in their order.
inline std::span<const char* const> names_of(Objective /*type*/) {
  static constexpr std::array<const char*, 3> kNames = {"nsp", "mlm", "sop"};
  return kNames;
}
inline std::span<const char* const> names_of(StoredMasks /*type*/) {
  static constexpr std::array<const char*, 2> kNames = {"static", "none"};
  return kNames;
}

/// The task of one class for a text.
inline constexpr const char* kClassesTask = "text-classification";
/// The task of independent labels.
inline constexpr const char* kMultiLabelTask = "multi-label-classification";
/// The task of numbers, one or several for a text.
inline constexpr const char* kRegressionTask = "text-regression";

/// The thresholds above which labels of a multi-label task are predicted.
enum class ThresholdSearch : uint8_t {
  kNone,     // the one of the configuration
  kOne,      // the one with the best micro F1 on the development examples
  kPerLabel  // for each label the one with its best F1 on the development examples
};
inline std::span<const char* const> names_of(ThresholdSearch /*type*/) {
  static constexpr std::array<const char*, 3> kNames = {"none", "one", "per_label"};
  return kNames;
}

/// The scheme of the labels of words, by its name in seqeval. IOB2 is also called BIO, IOBES also BIOES.
enum class LabelScheme : uint8_t { kAny, kIob1, kIob2, kIobes, kBilou };
inline std::span<const char* const> names_of(LabelScheme /*type*/) {
  static constexpr std::array<const char*, 5> kNames = {"any", "IOB1", "IOB2", "IOBES", "BILOU"};
  return kNames;
}

/// The two entities of a text whose relation is the class. Source: Soares et al. 2019, "Matching the Blanks".
enum class EntityMarkers : uint8_t {
  kNone,
  kCls,          // tokens [E1] [/E1] [E2] [/E2] around them; the class is read from the pooler, as ever
  kStartMarkers  // the class is read from the last hidden states of [E1] and [E2], one behind the other
};
inline std::span<const char* const> names_of(EntityMarkers /*type*/) {
  static constexpr std::array<const char*, 3> kNames = {"none", "cls", "start_markers"};
  return kNames;
}

/// The choice of the tokens that are masked (data/examples/masking.h).
struct MaskingConfig {
  double masked_lm_prob = 0.15;          // share of a sequence's tokens
  int64_t max_predictions_per_seq = 20;  // tokens at most
  bool do_whole_word_mask = false;       // all pieces of a word together
  int64_t max_ngram = 1;                 // longest masked span: tokens, or words with do_whole_word_mask
};

/// The making of pre-training examples from text. Names and defaults of Google's create_pretraining_data.py.
struct PretrainingDataConfig {
  int64_t max_seq_length = 128;
  int64_t max_predictions_per_seq = 20;
  double masked_lm_prob = 0.15;
  int64_t random_seed = 12345;
  int64_t dupe_factor = 10;
  double short_seq_prob = 0.1;
  bool do_whole_word_mask = false;
  int64_t max_ngram = 1;
  Objective objective = Objective::kNsp;
  StoredMasks masking = StoredMasks::kStatic;

  [[nodiscard]] MaskingConfig masks() const {
    return {masked_lm_prob, max_predictions_per_seq, do_whole_word_mask, max_ngram};
  }

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit("max_seq_length", self.max_seq_length, "tokens of an example with [CLS] and both [SEP]", 5, 65535);
    visit("max_predictions_per_seq", self.max_predictions_per_seq, "masked tokens of an example at most", 1, 65535);
    visit("masked_lm_prob", self.masked_lm_prob, "share of an example's tokens that is masked", 0.0, 1.0);
    visit("random_seed", self.random_seed, "seed of all that is drawn", 0, INT64_MAX);
    visit("dupe_factor", self.dupe_factor, "times that the text is used, each with other masks", 1, 10000);
    visit("short_seq_prob", self.short_seq_prob, "share of documents with a shorter target length", 0.0, 1.0);
    visit("do_whole_word_mask", self.do_whole_word_mask, "mask all pieces of a word together");
    visit("max_ngram", self.max_ngram,
          "mask spans of up to so many tokens, or words with whole-word masking; 10: as SpanBERT", 1, 100);
    visit("objective", self.objective,
          "nsp: next sentence, as BERT; mlm: full sequences without pairs, as RoBERTa; sop: sentence order, as ALBERT");
    visit("masking", self.masking, "static: store masks; none: training draws them (data.masking)");
  }
};

/// The treatment of a text with more tokens than the model reads. kWindows: windows of the text are read one by one, and
/// what they say is joined.
enum class LongTexts : uint8_t { kRefuse, kTruncate, kWindows };
inline std::span<const char* const> names_of(LongTexts /*type*/) {
  static constexpr std::array<const char*, 3> kNames = {"refuse", "truncate", "windows"};
  return kNames;
}

/// The examples of a fine-tuning task: sizes, columns, and the decoding of answers. Names and defaults of Google's
/// run_squad.py and run_classifier.py, and of transformers' example scripts for columns.
struct TaskDataConfig {
  int64_t max_seq_length = 128;
  LongTexts long_texts = LongTexts::kTruncate;
  WindowPooling window_pooling = WindowPooling::kMean;
  int64_t doc_stride = 128;
  int64_t max_query_length = 64;
  int64_t max_answer_length = 30;
  int64_t n_best_size = 20;
  bool search_null_threshold = true;
  double null_score_diff_threshold = 0;
  std::string text_column = "text";
  std::string text_pair_column;
  std::string label_column = "label";
  std::vector<std::string> columns;
  std::vector<std::string> labels;
  std::string negative_label;
  EntityMarkers entity_markers = EntityMarkers::kNone;
  std::string spans_column = "spans";
  LabelScheme label_scheme = LabelScheme::kAny;
  std::string language = "en";
  std::string train_language;
  std::vector<std::string> label_columns;
  std::string label_separator = ",";
  double label_threshold = 0.5;
  ThresholdSearch search_label_threshold = ThresholdSearch::kNone;
  std::vector<double> label_thresholds;  // no key: one for each label, as searched; empty: label_threshold
  bool cut_at_begin = false;             // no key: the wish of the model's tokenizer (truncation_side left)
  bool odd_token_to_longer = false;      // no key: the cut of pairs of transformers' tokenizers, not of Google's
  int64_t most_window_tokens = std::numeric_limits<int64_t>::max();  // no key: of all windows of an example

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit("max_seq_length", self.max_seq_length, "tokens of a sequence with [CLS] and [SEP]; see long_texts", 8, 65535);
    visit(
        "long_texts", self.long_texts,
        "longer texts are refused, cut (truncate; sentences of ner go on in further sequences, cut between words), or "
        "read in windows with one loss a text; a word's label counts in the window with most context around it. "
        "Questions always have windows");
    visit("window_pooling", self.window_pooling,
          "long_texts=windows: logits of a text from those of its windows; attention: a mean whose weights are the "
          "softmax "
          "of a learned vector's products with the pooler's outputs");
    visit("doc_stride", self.doc_stride, "tokens between the starts of two windows of a long text or context", 1,
          65535);
    visit("max_query_length", self.max_query_length, "SQuAD: tokens of a question; the rest is cut off", 1, 65535);
    visit("max_answer_length", self.max_answer_length, "SQuAD: tokens of an answer at most", 1, 65535);
    visit("n_best_size", self.n_best_size, "SQuAD: answers in nbest_predictions.json for each question", 1, 1000);
    visit("search_null_threshold", self.search_null_threshold,
          "SQuAD 2.0: the threshold is the one with the best F1 on the development set");
    visit("null_score_diff_threshold", self.null_score_diff_threshold,
          "SQuAD 2.0 without the search: no answer where its score exceeds that of the best answer by more", -1e9, 1e9);
    visit("text_column", self.text_column, "own tables: column of the text");
    visit("text_pair_column", self.text_pair_column, "own tables: column of a second text; empty = none");
    visit("label_column", self.label_column, "own tables: column of the label, or of the number");
    visit("columns", self.columns,
          "own CSV and TSV: names of the columns of files whose first row is no header; one with the name text_column "
          "is");
    visit(
        "labels", self.labels,
        "own tables and ner: labels in their order; empty = those of the training file, sorted; text-regression: names "
        "of several numbers");
    visit("negative_label", self.negative_label,
          "text-classification: the label that means no relation; precision, recall and f1_micro are of all others");
    visit("entity_markers", self.entity_markers,
          "text-classification: the relation of two entities, around which the text has the tokens [E1] [/E1] and [E2] "
          "[/E2], or spans_column says where; cls: read from the pooler; start_markers: from the states of [E1] and "
          "[E2]");
    visit("spans_column", self.spans_column,
          "entity_markers in JSON lines: field with the two spans, as [[start, end], [start, end]] in characters");
    visit(
        "label_scheme", self.label_scheme,
        "ner: entities count as in seqeval's strict mode of the scheme, or, with any, as in its default mode; spans in "
        "JSON lines become labels of the scheme; with any, of that of the labels, else IOB2");
    visit("language", self.language, "xnli: the language of the development and test rows");
    visit("train_language", self.train_language, "xnli: the language of the training file; empty = language");
    visit("label_columns", self.label_columns,
          "multi-label: columns of 0 and 1, one for each label, in place of label_column; their names are the labels; "
          "text-regression: columns of numbers");
    visit("label_separator", self.label_separator,
          "multi-label: text between the labels in label_column; JSON lines may have lists in its place");
    visit("label_threshold", self.label_threshold,
          "multi-label without the search: a label is predicted where its probability exceeds this", 0.0, 1.0);
    visit("search_label_threshold", self.search_label_threshold,
          "multi-label: none: label_threshold; one: the threshold with the best micro F1 on the development set; "
          "per_label: that with the best F1 of each label");
  }
};

}  // namespace bert
