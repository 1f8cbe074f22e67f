// A trained BERT as it was saved: sizes, weights and tokenizer.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "app/checkpoint/checkpoint.h"
#include "cuda_ext/state_dict.h"
#include "data/config.h"
#include "data/tokenizer/tokenizer.h"
#include "model/config.h"

namespace bert {

/// The parts of a trained BertForPreTraining.
struct Pretrained {
  std::string name = "weights";  // stands in messages: the path that was read
  BertConfig config;
  Objective objective = Objective::kNsp;  // without pairs, the model has no sentence-pair head: Note [Objectives]
  StateDict weights = StateDict();  // on the CPU, with the names of BertForPreTraining; load_state_dict() takes them
  std::shared_ptr<const Tokenizer> tokenizer;  // [MASK] and its like in a text are those tokens
};

/// Reads a checkpoint directory, a run directory, or a TorchScript file that `bert export` wrote. Every byte is compared
/// with its checksum. `weights` does not apply to a TorchScript file, which has one kind of weights. If `path` is a run
/// whose latest checkpoint is damaged, `note` gets a line that names the checkpoint which is read instead.
/// Throws InputMissing, DataError, IoError. A TorchScript file contains code: read it only from a trusted source.
Pretrained load_pretrained(
    const std::filesystem::path& path, WeightsKind weights = WeightsKind::kAveraged,
    const std::function<void(const std::string& message)>& note = [](const std::string&) {});

}  // namespace bert
