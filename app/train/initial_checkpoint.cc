#include "app/train/initial_checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "app/checkpoint/checkpoint.h"
#include "app/checkpoint/files.h"
#include "app/checkpoint/fit.h"
#include "app/checkpoint/position_rows.h"
#include "app/config/finetune_config.h"
#include "app/distributed/rank_zero.h"
#include "app/interop/bert_parameters.h"
#include "app/interop/conversion.h"
#include "app/interop/foreign_checkpoint.h"
#include "app/interop/formats.h"
#include "app/interop/open_tokenizer.h"
#include "app/system/errors.h"
#include "app/train/initial_vocabulary.h"
#include "data/io/error.h"
#include "model/state_dict.h"

namespace bert {
namespace {

/// `tensors`, by names of parameters that may have a prefix, without those of the sentence-pair head. Appends their
/// names to `left_out`.
StateDict without_sentence_pairs(const StateDict& tensors, std::vector<std::string>& left_out) {
  StateDict kept;
  for (const auto& item : tensors) {
    const std::string& name = item.key();
    if (std::ranges::any_of(kSentencePairParameters,
                            [&](const char* head) { return name.find(head) != std::string::npos; })) {
      left_out.push_back(name);
    } else {
      kept.insert(name, item.value());
    }
  }
  return kept;
}

/// Throws ConfigError if the tokenizer of initial_checkpoint, which is `there`, makes other words of a text.
void check_same_words(const TokenizerConfig& here, const TokenizerConfig& there, const std::string& directory) {
  const auto check = [&](const char* field, bool mine, bool theirs) {
    if (mine == theirs) return;
    throw ConfigError(fmt::format("data.{}: is {}, and the tokenizer of initial_checkpoint {} has {}", field, mine,
                                  directory, theirs));
  };
  check("do_lower_case", here.do_lower_case, there.do_lower_case);
  check("strip_accents", here.strips_accents(), there.strips_accents());
  check("tokenize_chinese_chars", here.tokenize_chinese_chars, there.tokenize_chinese_chars);
}

class InitialCheckpoint {
 public:
  InitialCheckpoint(const PretrainingInputs& inputs, ProcessGroupPtr group, TrainingStep& step, RunLog& log)
      : inputs_(inputs), group_(std::move(group)), step_(step), log_(log), objective_(objective_of(inputs.config)) {}

  void start() {
    std::string directory;
    Checkpoint checkpoint = open_initial_checkpoint(directory);
    ModelDescription model = checkpoint.state.model;
    if (!checkpoint.state.config.empty()) read_trained_model(checkpoint.state.config, model, directory);
    if (const auto rows = initial_rows(config(), {model, directory}, tokenizer(), config().data.vocab_file))
      extend(*rows, checkpoint);
    check_same_function(directory, checkpoint.state);
    if (checkpoint.model.contains("cls.predictions.bias")) {
      fit_objective(directory, checkpoint);
    } else {
      add_heads(directory, checkpoint);
    }
    const std::string longer =
        lengthen_positions(checkpoint.model, checkpoint.optimizer,
                           step_.model->bert->embeddings->position_embeddings->weight.detach().to(torch::kCPU),
                           config().initial_positions);
    if (!longer.empty()) log_.say("initial_checkpoint: " + directory + ": " + longer);
    fit_checkpoint("initial_checkpoint: " + directory, differences_from(checkpoint.state, directory), {"/model/"}, [&] {
      step_.start_phase({.weights = checkpoint.model,
                         .optimizer_state = checkpoint.optimizer,
                         .keep_moments = config().initial_optimizer_state});
    });
    expect_whole(checkpoint.model);
    expect_whole(checkpoint.optimizer);
    log_.say("starting from the weights" + std::string(config().initial_optimizer_state ? " and moments" : "") +
             " of " + directory);
  }

 private:
  [[nodiscard]] const PretrainConfig& config() const { return inputs_.config; }
  [[nodiscard]] bool changes_vocabulary() const { return config().initial_vocabulary.rows != InitialRows::kNone; }
  [[nodiscard]] const Tokenizer& tokenizer() const { return *inputs_.tokenizer; }
  /// Rank 0 alone has the bytes of tensors.
  [[nodiscard]] TensorBytes tensor_bytes() const {
    return step_.rank() == 0 ? TensorBytes::kMapped : TensorBytes::kNone;
  }
  [[nodiscard]] std::string on_rank_zero(const std::string& name, const std::function<std::string()>& work) const {
    return bert::on_rank_zero(group_, name, config().distributed.timeout_seconds, work);
  }

  /// Returns the directory of a valid checkpoint that initial_checkpoint stands for. Rank 0 chooses and verifies it.
  std::string find_initial_checkpoint() {
    return on_rank_zero("verification of initial_checkpoint", [&] {
      return find_valid_checkpoint(config().initial_checkpoint,
                                   [&](const std::string& message) { log_.say("initial_checkpoint: " + message); })
          .directory;
    });
  }
  Checkpoint open_initial_checkpoint(std::string& directory) {
    try {
      if (const ForeignFormat* format = foreign_format_of(config().initial_checkpoint))
        return open_foreign(*format, directory);
      refuse_other_weights(config().initial_checkpoint);
      directory = find_initial_checkpoint();
      return open_checkpoint(directory, tensor_bytes());
    } catch (const InputMissing& error) {
      throw InputMissing(std::string("initial_checkpoint: ") + error.what());
    }
  }
  /// Opens the model directory of another program that initial_checkpoint names. Every rank reads its small files and the
  /// headers of its weights; rank 0 alone has their bytes.
  Checkpoint open_foreign(const ForeignFormat& format, std::string& directory) {
    const auto read = [&] {
      ForeignCheckpoint source =
          format.read(config().initial_checkpoint, {.trust = config().trust_initial_checkpoint, .config = {}});
      if (!changes_vocabulary() && source.model.config.vocab_size != config().model.vocab_size)
        resize_vocabulary(source, config().model.vocab_size);
      return source;
    };
    // If rank 0 cannot read it, every rank ends with the message of rank 0.
    const std::string report = on_rank_zero("reading of initial_checkpoint", [&] { return read().report.text(); });
    ForeignCheckpoint source = read();
    directory = source.path;
    log_.say("initial_checkpoint: " + directory + ": " + report);
    if (config().initial_optimizer_state) {
      throw ConfigError("initial_optimizer_state: " + directory +
                        " has no moments of an optimizer here; expected false, which starts from the weights alone");
    }
    const auto* words = dynamic_cast<const WordPieceTokenizer*>(&tokenizer());
    if (source.states_case && words != nullptr && !changes_vocabulary())
      check_same_words(words->config(), source.model.tokenizer, directory);
    if (const std::string& from = config().initial_vocabulary.from; source.model.vocabulary.empty() && !from.empty()) {
      const auto given = open_tokenizer(from, source.model.tokenizer);
      if (const auto* old = dynamic_cast<const WordPieceTokenizer*>(given.get()))
        source.model.tokenizer = old->config();
      source.model.vocabulary = given->vocabulary().tokens();
    }
    if (source.model.vocabulary.empty()) {
      log_.say(fmt::format("initial_checkpoint: {} has no vocabulary: its rows are taken as the tokens of {}",
                           directory, config().data.vocab_file));
      source.model.vocabulary = tokenizer().vocabulary().tokens();
    }
    return {.model = read_tensors(source.tensors, tensor_bytes()), .optimizer = StateDict(), .state = state_of(source)};
  }
  /// Gives `checkpoint` the rows of the run's vocabulary.
  void extend(const VocabularyRows& rows, Checkpoint& checkpoint) {
    const StateDict initial = state_dict(*step_.model);
    const auto extended = [&](const StateDict& state) {
      StateDict result = extend_embeddings(state, rows, config().initial_vocabulary.rows, initial);
      expect_whole(state);
      return result;
    };
    checkpoint.model = extended(checkpoint.model);
    checkpoint.optimizer = extended(checkpoint.optimizer);
    log_.say("initial_vocabulary: " + rows.text());
  }
  /// The differences of the configuration in `state` from this one; none if it has no configuration of pre-training.
  [[nodiscard]] std::vector<ConfigDifference> differences_from(const CheckpointState& state,
                                                               const std::string& directory) const {
    if (state.config.empty() || !state.model.task.empty()) return {};
    return compare(parse_pretrain_config(state.config, directory + "/state.json"), config());
  }
  /// Throws ConfigError if the model of the checkpoint computes other things than this one, with weights of the same
  /// shapes.
  void check_same_function(const std::string& directory, const CheckpointState& state) const {
    for (const ConfigDifference& d : differences_from(state, directory)) {
      for (const char* field : {"num_attention_heads", "hidden_act", "layer_norm_eps"}) {
        if (d.pointer != std::string("/model/") + field) continue;
        throw ConfigError(
            fmt::format("initial_checkpoint: {} was trained with model.{}={}, and this run has {}; set it to "
                        "that of the weights",
                        directory, field, d.before, d.after));
      }
    }
  }
  /// Gives `checkpoint`, an encoder, the heads that this run has just initialised, and takes out what this run lacks.
  void add_heads(const std::string& directory, Checkpoint& checkpoint) {
    std::vector<std::string> begun, left_out;
    const StateDict initial = state_dict(*step_.model);
    const auto of_encoder = [](const std::string& name) { return part_of(name) == BertPart::kEncoder; };
    StateDict weights;
    for (const auto& item : checkpoint.model) {
      const std::string& name = item.key();
      const bool wanted = initial.contains(name) || of_encoder(name);
      wanted ? static_cast<void>(weights.insert(name, item.value())) : left_out.push_back(name);
    }
    for (const auto& item : initial) {
      const std::string& name = item.key();
      if (weights.contains(name) || of_encoder(name)) continue;  // an encoder that lacks one is an error
      weights.insert(name, item.value().detach().clone());
      begun.push_back(name);
    }
    checkpoint.model = std::move(weights);
    log_.say(fmt::format("initial_checkpoint: {} is an encoder without cls.predictions; the run initialises {}{}",
                         directory, fmt::join(begun, ", "),
                         left_out.empty() ? "" : fmt::format(", and leaves out {}", fmt::join(left_out, ", "))));
  }
  /// Leaves the tensors of the sentence-pair head out of `checkpoint` if this run has none, and says so. Throws
  /// ConfigError if this run needs a head that `checkpoint` lacks.
  void fit_objective(const std::string& directory, Checkpoint& checkpoint) {
    const Objective before = checkpoint.state.model.objective;
    if (before == objective_) return;
    const std::string names =
        fmt::format("initial_checkpoint: {} was trained with objective {}", directory, name_of_value(before));
    if (has_pairs(before) && has_pairs(objective_)) {
      log_.say(fmt::format("{}; its sentence-pair head goes on with {}", names, name_of_value(objective_)));
    } else if (has_pairs(before)) {
      std::vector<std::string> left_out, of_optimizer;
      checkpoint.model = without_sentence_pairs(checkpoint.model, left_out);
      checkpoint.optimizer = without_sentence_pairs(checkpoint.optimizer, of_optimizer);
      log_.say(fmt::format("{}; this run, with {}, leaves out {}", names, name_of_value(objective_),
                           fmt::join(left_out, ", ")));
    } else {
      throw ConfigError(
          fmt::format("{}, so it has no pooler and no sentence-pair head, which this run's objective {} needs; "
                      "expected a checkpoint "
                      "of nsp or sop, or objective=mlm here",
                      names, name_of_value(objective_)));
    }
  }

  const PretrainingInputs& inputs_;
  const ProcessGroupPtr group_;
  TrainingStep& step_;
  RunLog& log_;
  const Objective objective_;
};

}  // namespace

void start_from_initial_checkpoint(const PretrainingInputs& inputs, const ProcessGroupPtr& group, TrainingStep& step,
                                   RunLog& log) {
  InitialCheckpoint(inputs, group, step, log).start();
}

}  // namespace bert
