// A checkpoint of another program as the weights of a BertForPreTraining: the interface of all readers.
//
// A reader fills path and model, gives its tensors the names of transformers, and calls take_tensors(), and take_task()
// where the head of a task is wanted. These functions do the rest: older names, prefixes, tied weights, padded
// vocabularies, shapes and the report.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "app/checkpoint/safetensors.h"
#include "app/config/model_description.h"
#include "app/interop/bert_parameters.h"

namespace bert {

/// The wishes of a user about a checkpoint of another program.
struct ForeignOptions {
  bool trust = false;      // also read pickles, which can hold code; none is executed (Note [Pickles])
  std::string config;      // configuration of weights from Google or NVIDIA; empty: the one beside the weights
  bool task_head = false;  // keep the head of a fine-tuned model with its labels, and what is behind a sentence encoder
  bool originals = false;  // also read the small files of a sentence encoder as they are
};

/// The account of every tensor of a checkpoint, by name.
struct ImportReport {
  std::vector<std::string> loaded;      // parameters of BertForPreTraining that have values now
  std::vector<std::string> missing;     // parameters of BertForPreTraining that the checkpoint lacks
  std::vector<std::string> unexpected;  // tensors that BertForPreTraining has no place for, such as other heads
  std::vector<std::string> reshaped;    // "NAME: [30528, 768], now [30522, 768]"
  std::vector<std::string> ignored;     // tensors that repeat others or are no weights: a tied decoder, moments
  std::vector<std::string> notes;       // sentences about the rest, such as tokens that are not matched in texts

  /// True if nothing is missing, unexpected or reshaped, and there are no notes.
  [[nodiscard]] bool plain() const;
  /// The counts in one line, then a line for each name but the loaded ones, then the notes.
  [[nodiscard]] std::string text() const;
};

struct ForeignCheckpoint {
  std::string path;                   // stands in messages
  ModelDescription model;             // objective: kNsp with pooler, kMlm without (Note [Objectives] in model/bert.h)
  bool states_case = false;           // do_lower_case is stated by the checkpoint, and is no default
  std::vector<TensorSource> tensors;  // by name of bert_parameters(), in that order, then the head of model.task; dtype
                                      // F64, F32, F16 or BF16
  ImportReport report;
  std::map<std::string, std::string> originals = {};  // of a sentence encoder: its small files, by name

  /// True if all parameters of `part` have values. The encoder always has.
  [[nodiscard]] bool has(BertPart part) const;
};

/// Gives the tensors the names of today's transformers: "gamma" and "beta" become "weight" and "bias", names of a bare
/// encoder get "bert.", the heads of Google's run_classifier.py and run_squad.py become classifier and qa_outputs. The
/// prefixes of wrappers (module., _orig_mod., model.) go. Throws DataError that names another prefix.
void use_modern_names(const std::string& path, std::vector<TensorSource>& found);

/// Sets tensors, objective, masked_token_head and report from `found`, tensors of use_modern_names() in any order. Their `bytes` may be called several times, also by later functions; a result is valid until the next call for
/// any tensor. Keeps entries of the report that are there already.
/// - A decoder that repeats the word embeddings, and position ids, are ignored.
/// - Up to 1,023 rows of padding are cut or added, so that the vocabulary has config.vocab_size rows.
/// - A pooler without the sentence-pair head is left out (unexpected) if there is a masked-token head.
/// Throws DataError with the names if a parameter of the encoder is missing, or a head is there in part; for two tensors
/// of one name; for a wrong shape or dtype; and for a decoder that does not repeat the word embeddings.
void take_tensors(ForeignCheckpoint& checkpoint, std::vector<TensorSource> found);

/// Adds the head of a task from `found`, tensors of use_modern_names(), after take_tensors(), and moves heads of
/// pre-training, and a pooler that the task's model has not, to the unexpected ones. Without model.task, the tensors say
/// the task; it stays "" if they are no head of a task. Outputs without labels get LABEL_0 and so on. Throws DataError if
/// the head of model.task is missing, or not of the labels.
void take_task(ForeignCheckpoint& checkpoint, const std::vector<TensorSource>& found);

/// use_modern_names(), take_tensors(), and take_task() if options.task_head; without it model.task and its labels go.
void take_all(ForeignCheckpoint& checkpoint, std::vector<TensorSource> found, const ForeignOptions& options);

/// Cuts or adds rows of padding, which are zeros, so that config.vocab_size is `rows`. Adds to the report. Throws
/// DataError if tokens of the vocabulary would be cut, or for more than 1,023 rows.
void resize_vocabulary(ForeignCheckpoint& checkpoint, int64_t rows);

/// The first difference of two vocabularies, such as `token 7 is "cat" there and "dog" here`; empty if they are equal.
/// `a` is "there", `b` is "here".
std::string vocabulary_difference(const std::vector<std::string>& a, const std::vector<std::string>& b);

}  // namespace bert
