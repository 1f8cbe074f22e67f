// The inputs of a fine-tuning run: the encoder and tokenizer that it starts from, and the task's examples.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/checkpoint/state.h"
#include "app/config/finetune_config.h"
#include "app/finetune/embedding_inputs.h"
#include "app/finetune/finetuning_step.h"
#include "app/inference/pretrained.h"
#include "app/train/run_place.h"
#include "data/tasks/task_data.h"
#include "data/tasks/task_definition.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/vocabulary_rows.h"

namespace bert {

/// Examples that are evaluated or predicted.
struct TaskSet {
  TaskExamples examples;
  TaskFeatures features;
};

/// The name of the loss on the development examples among the figures of an evaluation.
inline constexpr const char* kLossFigure = "loss";

struct FinetuningInputs {
  FinetuneConfig config;  // resolved: model and tokenizer of `start`, max_steps of the epochs, a micro_batch_size
  std::vector<std::string> notes;  // sentences that rank 0 has printed, for the log
  int64_t newest = -1;             // step of the checkpoint from which the run goes on; -1: it begins with `start`
  Pretrained start;                // config.initial_checkpoint, or that checkpoint
  std::optional<VocabularyRows> vocabulary_rows;  // of the tokens of `tokenizer`, where `start.weights` have others
  TaskDefinition task;  // with all labels; its main metric, which may be kLossFigure, chooses the best checkpoint
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const TaskFeatures> train;
  int64_t train_examples = 0;  // rows, questions or sentences of the training file
  EmbeddingInputs embedding;   // in place of `train`, of a run of embeddings
  TaskHead head;
  std::vector<TaskSet> dev, test;
  std::optional<Pretrained> teacher;         // config.distillation.teacher
  std::map<std::string, DataIdentity> data;  // of each file, by split and part; and of the teacher
};

/// Reads what `config` names and resolves what it leaves open. Every rank must call it. Rank 0 looks for the newest
/// checkpoint and sets damaged ones aside; every rank reads the rest. Throws ConfigError if the configuration does not fit
/// the model of the initial checkpoint, or if the ranks differ in it or in their data, DataError with file and line,
/// InputMissing, IoError, PeerError, RefusedError.
FinetuningInputs read_finetuning_inputs(const FinetuneConfig& config, const RunPlace& place);

/// Tokens of the largest training example: those of the longest sequence, times the choices of an example; those of all
/// windows of a text.
int64_t longest_unit(const FinetuningInputs& inputs);

/// Weights of the classes in the loss: the inverse of their frequencies, with mean 1 over the examples, as scikit-learn's
/// "balanced". A class without examples has weight 0. Of independent labels: pos_weight of PyTorch's BCEWithLogitsLoss,
/// the number of examples without the label by the number with it; 1 for a label without examples.
std::vector<float> balanced_class_weights(const TaskFeatures& train);

}  // namespace bert
