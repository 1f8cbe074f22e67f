#include "app/train/pretraining_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "app/config/run_length.h"
#include "app/interop/hugging_face_files.h"
#include "app/system/errors.h"
#include "app/train/initial_checkpoint.h"
#include "app/train/pretrain.h"
#include "app/train/run_inputs.h"
#include "app/train/run_loader.h"
#include "app/train/trainer.h"
#include "data/formats/shard.h"
#include "data/loader/dataloader.h"
#include "data/tokenizer/vocabulary_warnings.h"

namespace bert {
namespace {

/// The names of the sources of training examples; none if there is one source.
std::vector<std::string> source_names(const PretrainConfig& config) {
  std::vector<std::string> names;
  if (config.data.sources.size() > 1) {
    for (const DataSourceConfig& source : config.data.sources) names.push_back(source_name(source));
  }
  return names;
}

std::unique_ptr<StepLoader> make_loader(const PretrainingInputs& inputs, const RunPlace& place) {
  DataLoaderConfig config = loader_config(inputs.config, *inputs.train, inputs.tokenizer.get());
  config.rank = get_rank(place.group);
  config.world_size = get_world_size(place.group);
  config.pin_memory = place.device.is_cuda();
  return std::make_unique<PretrainingDataLoader>(inputs.train, std::move(config));
}

}  // namespace

int pretrain(const PretrainConfig& config, bool allow_config_change) {
  const auto make_run = [&](const RunPlace& place) {
    return std::make_unique<PretrainingRun>(read_pretraining_inputs(config, place), place);
  };
  return train(config, make_run, allow_config_change);
}

PretrainingRun::PretrainingRun(PretrainingInputs inputs, const RunPlace& place)
    : inputs_(std::move(inputs)),
      group_(place.group),
      objective_(objective_of(inputs_.config)),
      step_(inputs_.config, place.device, group_),
      log_(inputs_.config,
           {.config_sha256 = config_sha256(inputs_.config),
            .pooler = has_pairs(objective_),
            .sources = source_names(inputs_.config)},
           step_),
      loader_(make_loader(inputs_, place)) {
  for (const std::string& sentence : inputs_.notes) log_.note(sentence);
  if (inputs_.config.cuda_graphs != CudaGraphs::kOff) use_graphs(place.device);
  if (const size_t sources = inputs_.config.data.sources.size(); sources > 1)
    step_.sum_losses_by_source(static_cast<int64_t>(sources));
  if (!inputs_.validation) return;
  log_.say("counting the words of data.train: evaluations compare their loss with that of word frequencies");
  unigram_.emplace(*inputs_.train, inputs_.config.data.corrupted_rows == CorruptedRows::kSkip);
}

void PretrainingRun::use_graphs(c10::Device device) {
  const bool required = inputs_.config.cuda_graphs == CudaGraphs::kOn;
  if (device.is_cuda()) {
    step_.use_graphs(required, [this](const std::string& text) { log_.say(text); });
  } else if (required) {
    throw ConfigError("cuda_graphs on: the run is on the CPU; set cuda_graphs=auto or off");
  } else {
    log_.note("cuda_graphs auto: no graphs on the CPU");
  }
}

std::optional<DynamicMasking> PretrainingRun::validation_masking() const {
  return lacks_masks(*inputs_.validation) ? dynamic_masking(inputs_.config, inputs_.tokenizer.get()) : std::nullopt;
}

double PretrainingRun::sequences(int64_t steps) const {
  return batch_sizes_of(inputs_.config, mean_length(training_sources(inputs_.config, *inputs_.train), *inputs_.train))
      .sequences(steps);
}

int64_t PretrainingRun::max_sequence_length() const {
  int64_t longest = 0;
  for (const auto& shard : inputs_.train->shards()) longest = std::max(longest, shard->manifest().max_seq_length);
  return longest;
}

int64_t PretrainingRun::evaluation_examples() const {
  if (!inputs_.validation) return 0;
  const int64_t most = inputs_.config.data.max_eval_examples;
  return most > 0 ? std::min(most, inputs_.validation->size()) : inputs_.validation->size();
}

void PretrainingRun::announce(int64_t applied) {
  if (applied == 0) {
    const bool left_out = !has_pairs(objective_) && inputs_.train->any_pairs();
    log_.say(fmt::format("objective {}{}", name_of_value(objective_),
                         left_out ? ": the labels of the sentence pairs in data.train are not used" : ""));
    log_.note(fmt::format("{}, {}", name_of_value(inputs_.config.optimizer.type), step_.parameter_report()));
  }
  for (const std::string& warning : vocabulary_warnings(*inputs_.tokenizer, inputs_.config.data.vocab_file))
    log_.say("warning: " + warning);
  if (const int64_t tokens = inputs_.tokenizer->vocabulary().size(); tokens < inputs_.config.model.vocab_size) {
    log_.say(fmt::format("model.vocab_size {}: {} has {} tokens, the rows after them are padding",
                         inputs_.config.model.vocab_size, inputs_.config.data.vocab_file, tokens));
  }
}

std::optional<EvaluationReport> PretrainingRun::evaluate(int64_t applied, bool /*last*/,
                                                         const std::function<bool()>& stop) {
  const auto evaluation = evaluate_pretraining(step_, inputs_.validation, *unigram_,
                                               inputs_.config.data.max_eval_examples, stop, validation_masking());
  if (!evaluation) return std::nullopt;
  if (is_rank_zero()) {
    if (!sentences_)
      sentences_.emplace(inputs_.validation, *inputs_.tokenizer, evaluation_examples(), validation_masking());
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
  if (applied == 0 && inputs_.config.initial_checkpoint.empty()) report.summary["mlm_loss_untrained"] = e.mlm_loss;
  return report;
}

RunState::Earlier PretrainingRun::read_earlier(const CheckpointState& state, const std::string& directory) {
  PretrainConfig before = parse_pretrain_config(state.config, directory + "/state.json");
  if (state.model.objective != objective_) {
    throw ConfigError(fmt::format(
        "objective: was {} in {}, now {}; not even --allow-config-change changes it: use another "
        "run_directory, with {} as initial_checkpoint to start from these weights",
        name_of_value(state.model.objective), directory, name_of_value(objective_), inputs_.config.run_directory));
  }
  before.objective = inputs_.config.objective;  // auto in an older checkpoint is no difference
  const PretrainConfig& now = inputs_.config;
  if (now.from_step > 0 && (now.max_tokens > 0 || now.num_train_epochs > 0) &&
      (before.global_batch_size != now.global_batch_size || before.batch_size_schedule != now.batch_size_schedule)) {
    throw ConfigError(fmt::format(
        "from_step: the sizes of steps were others in {}, and max_tokens and num_train_epochs count steps of one plan; "
        "give the branch max_steps in their place",
        directory));
  }
  return {.seed = before.seed,
          .global_batch_size = before.global_batch_size,
          .precision = before.precision,
          .changes = compare_for_resume(before, inputs_.config),
          .all = compare(before, inputs_.config)};
}

void PretrainingRun::describe(Checkpoint& checkpoint) {
  ModelDescription& model = checkpoint.state.model;
  model.config = inputs_.config.model;
  model.objective = objective_;
  model.tokenizer = inputs_.config.data.tokenizer;
  checkpoint.files = hugging_face_files(model, dtype_name(checkpoint.model));
}

void PretrainingRun::start_from_initial_checkpoint() {
  bert::start_from_initial_checkpoint(inputs_, group_, step_, log_);
}

}  // namespace bert
