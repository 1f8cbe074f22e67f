// A trained BERT as it was saved: sizes, weights and tokenizer.
#pragma once

#include <concepts>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/checkpoint/checkpoint.h"
#include "app/config/model_description.h"
#include "app/inference/answer_options.h"
#include "cuda_ext/state_dict.h"
#include "data/config.h"
#include "data/tokenizer/tokenizer.h"

namespace bert {

/// The encoder's weights in a model with heads have names with it.
inline constexpr const char* kEncoderPrefix = "bert.";

/// The parts of a trained BertForPreTraining, or of a model with the head of a task.
struct Pretrained {
  std::string name = "weights";  // stands in messages: the path that was read
  ModelDescription model = {};
  // On the CPU, with the names of BertForPreTraining; load_state_dict() takes them. Those of load_pretrained() are mapped
  // files, which must not be written to: clone() gives a copy.
  StateDict weights = StateDict();
  StateDict sentence_weights = StateDict();              // of the dense layers of a sentence encoder: kSentencePrefix
  std::shared_ptr<const Tokenizer> tokenizer = nullptr;  // [MASK] and its like in a text are those tokens
  bool averaged = false;                                 // `weights` are the moving averages of a run
  std::vector<std::string> unread = {};  // tensors of another program's file that have no place in the model
};

/// The settings with which texts for a fine-tuned model are tokenized and cut: those of its run, else of the published
/// recipes for questions, else all tokens that the model takes. Never more than most_tokens().
TaskDataConfig text_settings(const ModelDescription& model);

/// A model on the disk. A path alone is one, untrusted, for any task.
struct ModelSource {
  template <class Path>
  requires std::convertible_to<Path, std::filesystem::path> ModelSource(
      Path&& location, bool is_trusted = false,
      std::optional<Task> its_task = {})  // NOLINT: a path stands for a source
      : path(std::forward<Path>(location)), trust(is_trusted), task(its_task) {}

  std::filesystem::path path;
  bool trust = false;             // also read pickles of PyTorch, which can hold code; none is executed
  std::optional<Task> task = {};  // that the model is read for: what it does not need is not reported as missing
};

/// Reads a checkpoint directory, a run directory, a model of another program (app/interop/formats.h), or a
/// TorchScript file that `bert export` wrote. Every byte is compared with its checksum, where the format has one.
/// `weights` applies to runs and checkpoints alone. `note` gets a line that names the checkpoint which is read instead, if
/// the latest one of a run is damaged; and of another program's directory the report, unless every tensor of
/// BertForPreTraining that the task needs is there as it should be. `progress`, which may be empty, is called with the
/// share of a checkpoint that is verified.
/// Throws InputMissing, DataError, IoError; RefusedError for a pickle without trust. The code of a TorchScript file is not
/// compiled, but LibTorch is not made to read hostile files: read one only from a trusted source.
Pretrained load_pretrained(
    const ModelSource& source, WeightsKind weights = WeightsKind::kAveraged,
    const std::function<void(const std::string& message)>& note = [](const std::string&) {},
    const std::function<void(double share)>& progress = {});

}  // namespace bert
