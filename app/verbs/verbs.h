// The verbs of `bert`: the functions that run them, and one table of all.
#pragma once

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
int doctor_command(int argc, char** argv);
int evaluate_command(int argc, char** argv);
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

}  // namespace bert

/// The verbs in the order of `bert --help`: name, function, help line. A verb is CORE(...) if it works without
/// LibTorch: build/bert holds it (app/main.cc). A verb is TORCH(...) if it needs LibTorch: libbert.so holds it
/// (app/verbs/torch_verbs.cc), and build/bert opens that library for these verbs alone. Each of the two files passes
/// macros that make an entry of its table from a row, or nothing.
#define BERT_VERBS(CORE, TORCH)                                                                                     \
  CORE("vocab", vocab_command, "learn a WordPiece vocabulary from text")                                            \
  CORE("tokenize", tokenize_command, "text to tokens, ids or offsets")                                              \
  CORE("data", data_command, "create, split, verify, show and count pre-training examples")                         \
  TORCH("pretrain", pretrain_command, "pre-train; resumes by itself from its run directory")                        \
  TORCH("finetune", finetune_command, "fine-tune on SQuAD, GLUE, NER or one's own tables; resumes like pretrain")   \
  CORE("watch", watch_command, "show a run while it trains, from its files")                                        \
  CORE("report", report_command, "curves and figures of runs: one page of HTML, or Markdown")                       \
  TORCH("predict", predict_command, "fill in masked words, or features, from a checkpoint or an export")            \
  TORCH("serve", serve_command, "answer over HTTP: JSON, metrics, and a page to try the model")                     \
  TORCH("export", export_command, "checkpoint to TorchScript, safetensors, ONNX or Triton")                         \
  CORE("evaluate", evaluate_command, "official metrics of a model or of predictions for SQuAD, GLUE, and others")   \
  CORE("convert", convert_command, "model directories of transformers to checkpoints, and back")                    \
  CORE("checkpoint", checkpoint_command, "list, verify and compare checkpoints")                                    \
  CORE("config", config_command, "begin, validate, show and compare configurations; their keys and schema")         \
  TORCH("benchmark", benchmark_command, "time training, inference and every operator; compare with an earlier run") \
  CORE("plan", plan_command, "predict step time, memory and days on a cluster")                                     \
  CORE("doctor", doctor_command, "check the machine and the installation")                                          \
  CORE("completion", completion_command, "completion of command lines in bash, zsh and fish")                       \
  CORE("man", man_command, "manual pages")                                                                          \
  CORE("version", version_command, "versions of bert and of the LibTorch that it was built with")
