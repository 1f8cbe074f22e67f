#include "app/train/pretraining_inputs.h"

#include <limits>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "app/checkpoint/files.h"
#include "app/config/finetune_config.h"
#include "app/distributed/rank_zero.h"
#include "app/interop/formats.h"
#include "app/train/micro_batch.h"
#include "app/train/rank_agreement.h"
#include "app/train/run_inputs.h"
#include "app/train/run_loader.h"
#include "data/io/files.h"

namespace bert {
namespace {

/// The sizes that stand in the state of a checkpoint, or of the newest one of a run; empty if none can be read. Their
/// bytes are verified when the weights are read.
std::optional<BertConfig> sizes_of_own(const std::string& path) {
  std::vector<std::string> directories;
  for (const CheckpointEntry& entry : list_checkpoints(path)) directories.push_back(entry.directory);
  if (directories.empty()) directories.push_back(path);
  for (auto directory = directories.rbegin(); directory != directories.rend(); ++directory) {
    const std::string file = *directory + "/" + kStateFile;
    try {
      CheckpointState state = parse_checkpoint_state(read_file(file), file);
      read_trained_model(state.config, state.model, file);
      return state.model.config;
    } catch (const std::runtime_error&) {  // who opens the checkpoint says what is wrong with it
    }
  }
  return std::nullopt;
}

/// The sizes of the model that the run starts from: its own newest checkpoint, else initial_checkpoint.
std::optional<BertConfig> sizes_at_start(const PretrainConfig& config) {
  if (!list_checkpoints(config.run_directory).empty()) return sizes_of_own(config.run_directory);
  const ForeignFormat* format = foreign_format_of(config.initial_checkpoint);
  if (format == nullptr) return sizes_of_own(config.initial_checkpoint);
  return format->read(config.initial_checkpoint, {.trust = config.trust_initial_checkpoint, .config = {}}).model.config;
}

/// The configuration with the sizes of initial_checkpoint in the fields of `model` that nobody has given. Rank 0 reads
/// them. Dropout and the like are the run's own.
PretrainConfig with_initial_sizes(const PretrainConfig& config, const RunPlace& place) {
  if (config.initial_checkpoint.empty()) return config;
  PretrainConfig taken = config;
  const std::string text =
      on_rank_zero(place.group, "sizes of initial_checkpoint", config.distributed.timeout_seconds, [&] {
        PretrainConfig read;
        const std::optional<BertConfig> sizes = sizes_at_start(config);
        if (sizes) read.model = *sizes;
        return sizes ? to_json(read) : std::string();
      });
  if (text.empty()) return config;
  const BertConfig model = parse_pretrain_config(text, "initial_checkpoint").model;
  std::set<std::string> given = config.given;
  for (const ConfigDifference& d : compare(PretrainConfig(), config)) given.insert(d.pointer);
  const std::set<std::string> own = {"hidden_dropout_prob", "attention_probs_dropout_prob", "initializer_range"};
  BertConfig::visit_fields(taken.model, [&](const char* name, auto& value, auto&&...) {
    BertConfig::visit_fields(model, [&](const char* other, const auto& found, auto&&...) {
      if constexpr (std::is_same_v<std::remove_cvref_t<decltype(value)>, std::remove_cvref_t<decltype(found)>>) {
        if (std::string(name) == other && !given.contains(std::string("/model/") + name) && !own.contains(name))
          value = found;
      }
    });
  });
  if (config.initial_vocabulary.rows != InitialRows::kNone && !given.contains("/model/vocab_size")) {
    constexpr int64_t kMultiple = 8;  // as tensor cores want it
    taken.model.vocab_size = std::numeric_limits<int64_t>::max();
    const int64_t tokens = load_tokenizer(taken)->vocabulary().size();
    taken.model.vocab_size = (tokens + kMultiple - 1) / kMultiple * kMultiple;
  }
  return taken;
}

}  // namespace

PretrainingInputs read_pretraining_inputs(const PretrainConfig& as_given, const RunPlace& place) {
  PretrainingInputs inputs;
  const RunNote note = print_and_keep(as_given, get_rank(place.group), inputs.notes);
  const PretrainConfig config = with_initial_sizes(as_given, place);
  inputs.tokenizer = load_tokenizer(config);
  PretrainConfig known = config;
  if (const auto* words = dynamic_cast<const WordPieceTokenizer*>(inputs.tokenizer.get()))
    known.data.tokenizer = words->config();  // a tokenizer.json has its own settings
  expect_same_config(place.group, known);
  note("opening the shards of data.train");  // many shards on a slow disk take minutes
  inputs.train = open_shards(known, "train", *inputs.tokenizer);
  check_micro_batches(config, get_world_size(place.group));
  inputs.config = with_objective(with_micro_batch(known, *inputs.train, place, note), *inputs.train);
  inputs.config = with_length(std::move(inputs.config), *inputs.train, note);
  if (config.evaluate_every > 0) inputs.validation = open_shards(inputs.config, "validation", *inputs.tokenizer);
  if (config.evaluate_every == 0) {
    note(config.data.validation.empty()
             ? "no evaluation: data.validation names no shards; bert data create --validation-output makes some, and "
               "evaluate_every says how often they are read"
             : "no evaluation: data.validation is given, and evaluate_every is 0");
  }
  inputs.data = training_identities(inputs.config, *inputs.train);
  if (inputs.validation) inputs.data["validation"] = identity_of(*inputs.validation);
  expect_same_data(place.group, inputs.data, config.distributed.timeout_seconds);
  for (const auto& shards : {inputs.train, inputs.validation}) {
    if (const std::string warning = shards ? unknown_vocabulary(*shards) : ""; !warning.empty()) note(warning);
  }
  return inputs;
}

}  // namespace bert
