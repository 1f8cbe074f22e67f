#include "app/train/pretraining_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "app/checkpoint/files.h"
#include "app/checkpoint/fit.h"
#include "app/interop/conversion.h"
#include "app/interop/foreign_checkpoint.h"
#include "app/interop/formats.h"
#include "app/interop/hugging_face_files.h"
#include "app/system/errors.h"
#include "app/train/micro_batch.h"
#include "app/train/rank_agreement.h"
#include "app/train/run_inputs.h"
#include "app/train/run_loader.h"
#include "data/io/error.h"
#include "data/tokenizer/vocabulary_warnings.h"
#include "model/state_dict.h"

namespace bert {
namespace {

/// `loader` for this rank.
DataLoaderConfig of_rank(DataLoaderConfig loader, const DistributedEnvironment& environment, c10::Device device) {
  loader.rank = environment.rank;
  loader.world_size = environment.world_size;
  loader.pin_memory = device.is_cuda();
  return loader;
}

constexpr const char* kOpening = "opening the shards of data.train";

/// open_shards() of data.train. Rank 0 says so before: many shards on a slow disk take minutes.
std::shared_ptr<const PretrainingShards> open_training(const PretrainConfig& config, const Tokenizer& tokenizer,
                                                       int64_t rank) {
  if (rank == 0 && is_on_console(config)) fmt::print(stderr, "{}\n", kOpening);
  return open_shards(config, "train", tokenizer);
}

/// with_micro_batch(). Its sentences go to `notes`.
PretrainConfig sized(const PretrainConfig& config, const PretrainingShards& train, const RunPlace& place,
                     std::vector<std::string>& notes) {
  check_micro_batches(config, get_world_size(place.group));
  return with_micro_batch(config, train, place, [&](const std::string& sentence) { notes.push_back(sentence); });
}

/// The identities of the shards. Throws ConfigError if the other ranks have other shards.
std::map<std::string, DataIdentity> agreed_data(std::map<std::string, DataIdentity> data,
                                                const PretrainingShards* validation, const ProcessGroupPtr& group,
                                                int64_t timeout_seconds) {
  if (validation != nullptr) data["validation"] = identity_of(*validation);
  expect_same_data(group, data, timeout_seconds);
  return data;
}

/// `tensors`, by names of parameters that may have a prefix, without those of the sentence-pair head. Appends their
/// names to `left_out`.
StateDict without_sentence_pairs(const StateDict& tensors, std::vector<std::string>& left_out) {
  StateDict kept;
  for (const auto& item : tensors) {
    const std::string& name = item.key();
    if (std::any_of(kSentencePairParameters.begin(), kSentencePairParameters.end(),
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

}  // namespace

PretrainingRun::PretrainingRun(const PretrainConfig& config, const DistributedEnvironment& environment,
                               c10::Device device, ProcessGroupPtr& joined)
    : tokenizer_(load_tokenizer(config)),
      group_(expect_same_config(joined = join(config, device), config)),
      train_(open_training(config, *tokenizer_, environment.rank)),
      config_(
          sized(config, *train_, {.device = device, .group = group_, .local_size = environment.local_size}, notes_)),
      objective_(objective_of(with_objective(config_, *train_))),
      validation_(config_.evaluate_every > 0 ? open_shards(with_objective(config_, *train_), "validation", *tokenizer_)
                                             : nullptr),
      data_(agreed_data(training_identities(config_, *train_), validation_.get(), group_,
                        config_.distributed.timeout_seconds)),
      step_(with_objective(config_, *train_), device, group_),
      log_(config_, {.config_sha256 = config_sha256(config_), .pooler = has_pairs(objective_)}, step_),
      loader_(train_, of_rank(loader_config(config_, *train_, tokenizer_.get()), environment, device)) {
  log_.note(kOpening);
  for (const std::string& sentence : notes_) log_.say(sentence);
  for (const auto& shards : {train_, validation_}) {
    if (const std::string warning = shards ? unknown_vocabulary(*shards) : ""; !warning.empty()) log_.say(warning);
  }
  if (loader_.sources().size() > 1) step_.tell_sources_apart(static_cast<int64_t>(loader_.sources().size()));
  if (!validation_) return;
  log_.say("counting the words of data.train: evaluations compare their loss with that of word frequencies");
  unigram_.emplace(*train_, config_.data.corrupted_rows == "skip");
}

std::optional<DynamicMasking> PretrainingRun::validation_masking() const {
  return lacks_masks(*validation_) ? dynamic_masking(config_, tokenizer_.get()) : std::nullopt;
}

int64_t PretrainingRun::max_sequence_length() const {
  int64_t longest = 0;
  for (const auto& shard : train_->shards()) longest = std::max(longest, shard->manifest().max_seq_length);
  return longest;
}

int64_t PretrainingRun::evaluation_examples() const {
  if (!validation_) return 0;
  const int64_t most = config_.data.max_eval_examples;
  return most > 0 ? std::min(most, validation_->size()) : validation_->size();
}

void PretrainingRun::announce(int64_t applied) {
  if (applied == 0) {
    const bool left_out = !has_pairs(objective_) && train_->any_pairs();
    log_.say(fmt::format("objective {}{}", name_of_value(objective_),
                         left_out ? ": the labels of the sentence pairs in data.train are not used" : ""));
    log_.note(config_.optimizer.type + ", " + step_.parameter_report());
  }
  for (const std::string& warning : vocabulary_warnings(*tokenizer_, config_.data.vocab_file))
    log_.say("warning: " + warning);
  if (const int64_t tokens = tokenizer_->vocabulary().size(); tokens < config_.model.vocab_size) {
    log_.say(fmt::format("model.vocab_size {}: {} has {} tokens, the rows after them are padding",
                         config_.model.vocab_size, config_.data.vocab_file, tokens));
  }
}

std::optional<EvaluationReport> PretrainingRun::evaluate(int64_t applied, bool /*last*/,
                                                         const std::function<bool()>& stop) {
  const auto evaluation =
      evaluate_pretraining(step_, validation_, *unigram_, config_.data.max_eval_examples, stop, validation_masking());
  if (!evaluation) return std::nullopt;
  if (chief()) {
    if (!sentences_) sentences_.emplace(validation_, *tokenizer_, evaluation_examples(), validation_masking());
    log_.write_answers(sentences_->answers(step_, applied));
  }
  return report_of(*evaluation, applied);
}

EvaluationReport PretrainingRun::report_of(const Evaluation& e, int64_t applied) const {
  EvaluationReport report;
  report.main_figure = "mlm_accuracy";
  report.figures = {{"loss", e.mlm_loss + e.pair_loss},
                    {"mlm_loss", e.mlm_loss},
                    {"mlm_perplexity", std::exp(e.mlm_loss)},
                    {"mlm_accuracy", e.mlm_accuracy}};
  report.text = fmt::format("held-out mlm loss {:.4f} (word frequency {:.4f}), mlm accuracy {:.3f}", e.mlm_loss,
                            e.unigram_entropy, e.mlm_accuracy);
  if (has_pairs(objective_)) {
    const std::string pairs = name_of_value(objective_);
    report.figures[pairs + "_loss"] = e.pair_loss;
    report.figures[pairs + "_accuracy"] = report.summary[pairs + "_accuracy"] = e.pair_accuracy;
    report.text += fmt::format(", {} accuracy {:.3f}", pairs, e.pair_accuracy);
  }
  report.figures.update(
      {{"unigram_entropy", e.unigram_entropy}, {"examples", e.examples}, {"masked_tokens", e.masked_tokens}});
  report.summary["mlm_loss"] = e.mlm_loss;
  report.summary["mlm_accuracy"] = e.mlm_accuracy;
  report.summary["unigram_entropy"] = e.unigram_entropy;
  if (applied == 0 && config_.initial_checkpoint.empty()) report.summary["mlm_loss_untrained"] = e.mlm_loss;
  return report;
}

RunState::Earlier PretrainingRun::read_earlier(const CheckpointState& state, const std::string& directory) {
  PretrainConfig before = parse_pretrain_config(state.config, directory + "/state.json");
  if (state.model.objective != objective_) {
    throw ConfigError(
        fmt::format("objective: was {} in {}, now {}; not even --allow-config-change changes it: use another "
                    "run_directory, with {} as initial_checkpoint to start from these weights",
                    name_of_value(state.model.objective), directory, name_of_value(objective_), config_.run_directory));
  }
  before.objective = config_.objective;  // two words for one objective are no difference
  return {.seed = before.seed,
          .global_batch_size = before.global_batch_size,
          .precision = before.precision,
          .changes = compare_for_resume(before, config_),
          .all = compare(before, config_)};
}

void PretrainingRun::describe(Checkpoint& checkpoint) {
  ModelDescription& model = checkpoint.state.model;
  model.config = config_.model;
  model.objective = objective_;
  model.tokenizer = config_.data.tokenizer;
  checkpoint.files = hugging_face_files(model, dtype_name(checkpoint.model));
}

std::vector<ConfigDifference> PretrainingRun::differences_from(const CheckpointState& state,
                                                               const std::string& directory) const {
  if (state.config.empty() || !state.model.task.empty()) return {};
  return compare(parse_pretrain_config(state.config, directory + "/state.json"), config_);
}

/// Returns the directory of a valid checkpoint that initial_checkpoint stands for. Rank 0 chooses and verifies it.
std::string PretrainingRun::find_initial_checkpoint() {
  return of_chief("verification of initial_checkpoint", [&] {
    return find_valid_checkpoint(config_.initial_checkpoint,
                                 [&](const std::string& message) { log_.say("initial_checkpoint: " + message); })
        .directory;
  });
}

/// Opens the model directory of another program that initial_checkpoint names. Every rank reads its small files and the
/// headers of its weights; rank 0 alone has their bytes.
Checkpoint PretrainingRun::open_foreign(const ForeignFormat& format, std::string& directory) {
  const auto read = [&] {
    ForeignCheckpoint source =
        format.read(config_.initial_checkpoint, {.trust = config_.trust_initial_checkpoint, .config = {}});
    if (source.model.config.vocab_size != config_.model.vocab_size) resize_vocabulary(source, config_.model.vocab_size);
    return source;
  };
  // If rank 0 cannot read it, every rank ends with the message of rank 0.
  const std::string report = of_chief("reading of initial_checkpoint", [&] { return read().report.text(); });
  ForeignCheckpoint source = read();
  directory = source.path;
  log_.say("initial_checkpoint: " + directory + ": " + report);
  if (config_.initial_optimizer_state) {
    throw ConfigError("initial_optimizer_state: " + directory +
                      " has no moments of an optimizer here; expected false, which starts from the weights alone");
  }
  const auto* words = dynamic_cast<const WordPieceTokenizer*>(tokenizer_.get());
  if (source.states_case && words != nullptr) check_same_words(words->config(), source.model.tokenizer, directory);
  if (source.model.vocabulary.empty()) {
    log_.say(fmt::format("initial_checkpoint: {} has no vocabulary: its rows are taken as the tokens of {}", directory,
                         config_.data.vocab_file));
    source.model.vocabulary = tokenizer_->vocabulary().tokens();
  }
  return {.model = read_tensors(source.tensors, chief() ? TensorBytes::kMapped : TensorBytes::kNone),
          .optimizer = StateDict(),
          .state = state_of(source)};
}

Checkpoint PretrainingRun::open_initial_checkpoint(std::string& directory) {
  try {
    if (const ForeignFormat* format = foreign_format_of(config_.initial_checkpoint))
      return open_foreign(*format, directory);
    directory = find_initial_checkpoint();
    return open(directory);
  } catch (const InputMissing& error) {
    throw InputMissing(std::string("initial_checkpoint: ") + error.what());
  }
}

/// Throws ConfigError if the model of the checkpoint computes other things than this one, with weights of the same
/// shapes.
void PretrainingRun::check_same_function(const std::string& directory, const CheckpointState& state) const {
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

void PretrainingRun::start_from_initial_checkpoint() {
  std::string directory;
  Checkpoint checkpoint = open_initial_checkpoint(directory);
  const std::string other = vocabulary_difference(checkpoint.state.model.vocabulary, tokenizer_->vocabulary().tokens());
  if (!other.empty()) {
    throw ConfigError(fmt::format("initial_checkpoint: {} was trained with another vocabulary than {}: {}", directory,
                                  config_.data.vocab_file, other));
  }
  check_same_function(directory, checkpoint.state);
  take_parts(directory, checkpoint);
  fit_checkpoint("initial_checkpoint: " + directory, differences_from(checkpoint.state, directory), {"/model/"}, [&] {
    step_.start_phase({.weights = checkpoint.model,
                       .optimizer_state = checkpoint.optimizer,
                       .keep_moments = config_.initial_optimizer_state});
  });
  expect_whole(checkpoint.model);
  expect_whole(checkpoint.optimizer);
  log_.say("starting from the weights" + std::string(config_.initial_optimizer_state ? " and moments" : "") + " of " +
           directory);
}

void PretrainingRun::fit_objective(const std::string& directory, Checkpoint& checkpoint) {
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
    throw ConfigError(fmt::format(
        "{}, so it has no pooler and no sentence-pair head, which this run's objective {} needs; expected a checkpoint "
        "of nsp or sop, or objective=mlm here",
        names, name_of_value(objective_)));
  }
}

/// Leaves in `checkpoint` the parts that initial_parts names and that it has, and gives it the others of this run.
void PretrainingRun::take_parts(const std::string& directory, Checkpoint& checkpoint) {
  const std::string& parts = config_.initial_parts;
  const bool has_heads = checkpoint.model.contains("cls.predictions.bias");
  if (!has_heads && parts == "heads") {
    throw ConfigError(fmt::format(
        "initial_parts: is heads, and initial_checkpoint {} is an encoder without cls.predictions; set it to encoder",
        directory));
  }
  if (has_heads && parts != "encoder") fit_objective(directory, checkpoint);
  const auto of_encoder = [](BertPart part) { return part == BertPart::kEncoder || part == BertPart::kPooler; };
  if (parts == "heads") {
    begin_rest(fmt::format("{} gives its heads alone (initial_parts)", directory), std::not_fn(of_encoder), checkpoint);
  } else if (parts == "encoder") {
    begin_rest(fmt::format("{} gives its encoder alone (initial_parts)", directory), of_encoder, checkpoint);
  } else if (!has_heads) {
    begin_rest(
        fmt::format("{} is an encoder without cls.predictions", directory), [](BertPart) { return true; }, checkpoint);
  }
}

/// Takes the tensors out of `checkpoint` whose part is not `loaded`, or that this run lacks. Heads that are absent then,
/// and an encoder that is not loaded, are those that this run has just initialised.
void PretrainingRun::begin_rest(const std::string& reason, const std::function<bool(BertPart part)>& loaded,
                                Checkpoint& checkpoint) {
  std::vector<std::string> begun, left_out;
  const StateDict initial = state_dict(*step_.model);
  const auto of_encoder = [](const std::string& name) { return part_of(name) == BertPart::kEncoder; };
  StateDict weights;
  for (const auto& item : checkpoint.model) {
    const std::string& name = item.key();
    const bool wanted = loaded(part_of(name)) && (initial.contains(name) || of_encoder(name));
    wanted ? static_cast<void>(weights.insert(name, item.value())) : left_out.push_back(name);
  }
  for (const auto& item : initial) {
    const std::string& name = item.key();
    const bool given = of_encoder(name) && loaded(BertPart::kEncoder);  // an absent one is an error of the checkpoint
    if (weights.contains(name) || given) continue;
    weights.insert(name, item.value().detach().clone());
    begun.push_back(name);
  }
  checkpoint.model = std::move(weights);
  log_.say(fmt::format("initial_checkpoint: {}; the run initialises {}{}", reason, fmt::join(begun, ", "),
                       left_out.empty() ? "" : fmt::format(", and leaves out {}", fmt::join(left_out, ", "))));
}

}  // namespace bert
