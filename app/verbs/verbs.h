// The verbs of `bert`: the functions that run them, and one table of all.
#pragma once

#include <string_view>

namespace bert {

// A verb's function takes the verb's command line; argv[0] is the verb. Results go to standard output; progress and
// messages to standard error. It returns an exit code (app/system/exit_codes.h) and throws what guarded() turns into
// one: UsageError, ConfigError, DataError, InputMissing, IoError and the others of app/system/errors.h.
int benchmark_command(int argc, char** argv);
int checkpoint_command(int argc, char** argv);
int completion_command(int argc, char** argv);
int config_command(int argc, char** argv);
int convert_command(int argc, char** argv);
int data_command(int argc, char** argv);
int data_torch_command(int argc, char** argv);      // its action mine-negatives
int mine_negatives_command(int argc, char** argv);  // the same without LibTorch; argv[0] is the action
int doctor_command(int argc, char** argv);
int doctor_torch_command(int argc, char** argv);  // its part that needs LibTorch
int evaluate_command(int argc, char** argv);
int evaluate_torch_command(int argc, char** argv);  // with --checkpoint
int export_command(int argc, char** argv);
int finetune_command(int argc, char** argv);
int man_command(int argc, char** argv);
int plan_command(int argc, char** argv);
int predict_command(int argc, char** argv);
int pretrain_command(int argc, char** argv);
int report_command(int argc, char** argv);
int serve_command(int argc, char** argv);
int tokenize_command(int argc, char** argv);
int version_command(int argc, char** argv);
int vocab_command(int argc, char** argv);
int watch_command(int argc, char** argv);

enum VerbTrait : unsigned {
  kNone = 0,
  kFinishesOnSignal = 1,  // SIGTERM ends it in an orderly way, also while LibTorch is being loaded
  kReadsModel = 2,        // large blocks are mapped: the weights of a checkpoint go back to the system
};

}  // namespace bert

/// The verbs in the order of `bert --help`: name, function, traits, help line. CORE(...) is a verb that works without
/// LibTorch: build/bert holds it (app/main.cc). TORCH(...) needs LibTorch: libbert.so holds it (app/verbs/torch_verbs.cc),
/// and build/bert opens that library for it. BOTH(...) is a core verb with a second function, in the library. The files
/// that include this pass macros that make an entry of their table from a row, or nothing.
#define BERT_VERBS(CORE, TORCH, BOTH)                                                                                 \
  CORE("vocab", vocab_command, kNone, "learn a WordPiece vocabulary from text")                                       \
  CORE("tokenize", tokenize_command, kNone, "text to tokens, ids or offsets")                                         \
  BOTH("data", data_command, data_torch_command, kReadsModel,                                                         \
       "create, split, verify, show and count pre-training examples; mine negatives")                                 \
  TORCH("pretrain", pretrain_command, kFinishesOnSignal, "pre-train; resumes by itself from its run directory")       \
  TORCH("finetune", finetune_command, kFinishesOnSignal,                                                              \
        "fine-tune on SQuAD, GLUE, NER or one's own tables; resumes like pretrain")                                   \
  CORE("watch", watch_command, kNone, "show a run while it trains, from its files")                                   \
  CORE("report", report_command, kNone, "curves and figures of runs: one page of HTML, or Markdown")                  \
  TORCH("predict", predict_command, kReadsModel, "fill in masked words, or features, from a checkpoint or an export") \
  TORCH("serve", serve_command, kFinishesOnSignal | kReadsModel,                                                      \
        "answer over HTTP: JSON, metrics, and a page to try the model")                                               \
  TORCH("export", export_command, kNone, "checkpoint to TorchScript, safetensors, ONNX or Triton")                    \
  BOTH("evaluate", evaluate_command, evaluate_torch_command, kReadsModel,                                             \
       "official metrics of a model or of predictions for SQuAD, GLUE, and others")                                   \
  CORE("convert", convert_command, kNone, "model directories of transformers to checkpoints, and back")               \
  CORE("checkpoint", checkpoint_command, kNone, "list, verify, compare and average checkpoints")                      \
  CORE("config", config_command, kNone, "begin, validate, show and compare configurations; their keys and schema")    \
  TORCH("benchmark", benchmark_command, kNone, "time training, inference and data; compare with an earlier run")      \
  CORE("plan", plan_command, kNone, "predict step time, memory and days on a cluster")                                \
  BOTH("doctor", doctor_command, doctor_torch_command, kNone, "check the machine and the installation")               \
  CORE("completion", completion_command, kNone, "completion of command lines in bash, zsh and fish")                  \
  CORE("man", man_command, kNone, "manual pages")                                                                     \
  CORE("version", version_command, kNone, "versions of bert and of the LibTorch that it was built with")

namespace bert {

/// The traits of a verb; kNone for an unknown one.
constexpr unsigned traits_of(std::string_view verb) {
#define BERT_TRAITS(name, function, traits, help) \
  if (verb == (name)) return (traits);
#define BERT_TRAITS_OF_BOTH(name, function, torch_function, traits, help) BERT_TRAITS(name, function, traits, help)
  BERT_VERBS(BERT_TRAITS, BERT_TRAITS, BERT_TRAITS_OF_BOTH)
#undef BERT_TRAITS
#undef BERT_TRAITS_OF_BOTH
  return kNone;
}

}  // namespace bert
