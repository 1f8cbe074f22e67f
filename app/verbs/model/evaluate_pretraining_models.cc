#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>

#include "app/cli/command_line.h"
#include "app/cli/percentage.h"
#include "app/device/device.h"
#include "app/inference/pretrained.h"
#include "app/system/exit_codes.h"
#include "app/system/machine/memory.h"
#include "app/system/machine/threads.h"
#include "app/verbs/model/evaluate_pretraining.h"
#include "app/verbs/model/pretraining_examples.h"
#include "app/verbs/model/pretraining_scores.h"
#include "app/verbs/model/weights_options.h"
#include "data/formats/shard.h"
#include "data/io/error.h"
#include "data/io/files.h"

namespace bert {
namespace {

constexpr uint64_t kMaskSeed = 1;  // of examples without masks

/// The examples of each model, from shards or from text.
class PretrainingData {
 public:
  PretrainingData(const EvaluatePretrainingOptions& options, const std::vector<Pretrained>& models)
      : options_(options), files_(pretraining_files(options.dataset)), seed_(options.mask_seed) {
    std::vector<std::shared_ptr<const Tokenizer>> tokenizers;
    max_tokens_ = options.max_seq_length;
    for (const Pretrained& model : models) {
      if (model.tokenizer == nullptr) throw DataError(model.name + ": has no tokenizer; put its vocab.txt there");
      tokenizers.push_back(model.tokenizer);
      max_tokens_ = std::min(max_tokens_, most_tokens(model.model));
    }
    if (begins_as_shard(files_.front())) {
      shards_.emplace(files_);
      for (const Pretrained& model : models) check_vocabulary(model);
      const auto masked = [](const auto& shard) { return shard->manifest().masked_tokens > 0; };
      if (!seed_ && std::ranges::none_of(shards_->shards(), masked)) seed_ = kMaskSeed;
      return;
    }
    if (!seed_) seed_ = kMaskSeed;
    TextPieces text = pieces_of_files(files_, tokenizers, max_tokens_, options.max_examples);
    if (text.words_left_out > 0)
      fmt::print(stderr, "bert evaluate: {} words have more tokens than an example, and were left out\n",
                 text.words_left_out);
    pieces_ = std::move(text.pieces);
  }

  [[nodiscard]] EvaluatedExamples examples_for(const Pretrained& model) {
    const Tokenizer& tokenizer = *model.tokenizer;
    EvaluatedExamples examples;
    if (shards_) {
      examples = examples_of_shards(*shards_, tokenizer, options_.max_examples);
    } else {
      examples = examples_of_pieces(pieces_, tokenizer, max_tokens_);
      if (has_pairs(model.model.objective)) add_pairs(examples, model);
    }
    if (seed_) {
      draw_masks(examples.examples, tokenizer, *seed_);
      draw_masks(examples.pairs, tokenizer, *seed_);
    }
    return examples;
  }

  [[nodiscard]] const std::vector<std::string>& files() const { return files_; }
  [[nodiscard]] std::optional<uint64_t> seed() const { return seed_; }

 private:
  void add_pairs(EvaluatedExamples& examples, const Pretrained& model) const {
    examples.pairs =
        pairs_of_files(files_, *model.tokenizer, {model.model.objective, max_tokens_, *seed_, options_.max_examples});
    if (examples.pairs.empty())
      fmt::print(stderr, "bert evaluate: no pairs for {}: next sentences need a text of two documents\n", model.name);
  }

  static bool begins_as_shard(const std::string& path) {
    const MappedFile file(path);
    return is_shard(file.view().substr(0, 64));
  }

  void check_vocabulary(const Pretrained& model) {
    const Vocabulary& vocabulary = model.tokenizer->vocabulary();
    if (shards_->vocabulary_checksum().empty()) shards_->assume_vocabulary(vocabulary.size());
    if (shards_->vocabulary_checksum().empty() || shards_->vocabulary_checksum() == vocabulary.hash()) return;
    throw DataError(
        fmt::format("{}: made with another vocabulary ({} entries) than that of {} ({}); give the text in --dataset",
                    files_.front(), shards_->vocab_size(), model.name, vocabulary.size()));
  }

  const EvaluatePretrainingOptions& options_;
  std::vector<std::string> files_;
  std::optional<uint64_t> seed_;
  int64_t max_tokens_ = 0;
  std::optional<PretrainingShards> shards_;
  std::vector<TextPiece> pieces_;
};

/// The figures of one model, by name. Those of nothing are not there.
using ScoreFigures = nlohmann::ordered_json;

void add_figures(ScoreFigures& figures, const std::string& prefix, const PredictionSums& sums) {
  if (sums.count == 0) return;
  figures[prefix + "loss"] = sums.mean_loss();
  figures[prefix + "accuracy"] = sums.accuracy();
}

std::string name_of_band(size_t band) {
  const int64_t first = kFrequencyBands[band];
  if (band + 1 == kFrequencyBands.size()) return fmt::format("{}+", first);
  const int64_t last = kFrequencyBands[band + 1] - 1;
  return first == last ? std::to_string(first) : fmt::format("{}-{}", first, last);
}

ScoreFigures figures_of(const std::string& checkpoint, const PretrainingScores& scores, Objective objective,
                        const std::vector<std::string>& files) {
  const auto group = [](const char* key, const std::string& name, const PredictionSums& sums) {
    ScoreFigures one = {{key, name}, {"masked_tokens", sums.count}};
    add_figures(one, "mlm_", sums);
    return one;
  };
  ScoreFigures figures = {{"checkpoint", checkpoint}, {"masked_tokens", scores.masked.count}};
  add_figures(figures, "mlm_", scores.masked);
  if (scores.masked.count > 0) figures["perplexity"] = std::exp(scores.masked.mean_loss());
  if (scores.pseudo_words > 0) {
    figures["pseudo_perplexity"] = std::exp(scores.pseudo.loss / static_cast<double>(scores.pseudo_words));
    figures["pseudo_words"] = scores.pseudo_words;
    figures["pseudo_tokens"] = scores.pseudo.count;
  }
  add_figures(figures, std::string(name_of_value(objective)) + "_", scores.pairs);
  figures["unknown_tokens"] = scores.unknown_tokens;
  figures["by_frequency"] = ScoreFigures::array();
  for (size_t band = 0; band < kFrequencyBands.size(); ++band)
    figures["by_frequency"].push_back(group("occurrences", name_of_band(band), scores.by_frequency[band]));
  figures["by_source"] = ScoreFigures::array();
  for (size_t source = 0; source < files.size(); ++source)
    figures["by_source"].push_back(group("source", files[source], scores.by_source[source]));
  return figures;
}

/// A line of the table: the member `key` of each of the figures, "-" where it is not there; nothing if no one has it.
void print_row(const std::string& label, const std::vector<const ScoreFigures*>& models, const char* key) {
  if (std::ranges::none_of(models, [&](const ScoreFigures* one) { return one->contains(key); })) return;
  std::cout << fmt::format("{:<34}", label);
  for (const ScoreFigures* one : models) {
    const ScoreFigures& value = one->contains(key) ? (*one)[key] : ScoreFigures("-");
    std::cout << (value.is_number_float() ? fmt::format(" {:>12.5g}", value.get<double>())
                  : value.is_string()     ? fmt::format(" {:>12}", value.get<std::string>())
                                          : fmt::format(" {:>12}", value.dump()));
  }
  std::cout << '\n';
}

void print_table(const std::vector<ScoreFigures>& models) {
  std::vector<const ScoreFigures*> all;
  std::cout << fmt::format("{:<34}", "");
  for (const ScoreFigures& one : models) {
    const std::string name = fmt::format("[{}]", all.size() + 1);
    std::cout << fmt::format(" {:>12}", name);
    all.push_back(&one);
  }
  std::cout << '\n';
  for (const char* key : {"mlm_loss", "perplexity", "mlm_accuracy", "masked_tokens", "pseudo_perplexity",
                          "pseudo_words", "nsp_loss", "nsp_accuracy", "sop_loss", "sop_accuracy", "unknown_tokens"})
    print_row(key, all, key);
  for (const auto& [list, key] : {std::pair("by_frequency", "occurrences"), std::pair("by_source", "source")}) {
    const size_t groups = models.front()[list].size();
    for (size_t i = 0; i < groups && (groups > 1); ++i) {
      std::vector<const ScoreFigures*> parts;
      for (const ScoreFigures& one : models) parts.push_back(&one[list][i]);
      const auto name = (*parts.front())[key].get<std::string>();
      print_row("mlm_loss, " + (key == std::string("source") ? name : name + " times"), parts, "mlm_loss");
    }
  }
  for (size_t i = 0; i < models.size(); ++i)
    std::cout << fmt::format("[{}] {}\n", i + 1, models[i]["checkpoint"].get<std::string>());
}

}  // namespace

int evaluate_pretraining_torch_command(int argc, char** argv) {
  EvaluatePretrainingOptions options;
  if (!parse_evaluate_pretraining(argc, argv, options)) return kOk;
  const c10::Device device = select_device(options.device, /*local_rank=*/0);
  use_threads(0);
  const WeightsKind weights = options.raw_weights ? WeightsKind::kRaw : WeightsKind::kAveraged;
  std::vector<Pretrained> models;
  for (const std::string& checkpoint : options.checkpoints) {
    check_raw_weights(checkpoint, weights);
    models.push_back(load_pretrained({checkpoint, options.trust, Task::kFillMask}, weights, say_in("bert evaluate")));
  }
  PretrainingData data(options, models);
  keep_large_blocks();
  std::vector<ScoreFigures> figures;
  int64_t examples_read = 0;
  {
    Percentage percentage;
    for (size_t i = 0; i < models.size(); ++i) {
      const EvaluatedExamples examples = data.examples_for(models[i]);
      examples_read = std::ssize(examples.examples);
      const PretrainingScores scores =
          score_pretraining(models[i], examples, data.files().size(), options.pseudo_examples, device,
                            [&](double share) { percentage.update("evaluating " + options.checkpoints[i], share); });
      figures.push_back(figures_of(options.checkpoints[i], scores, models[i].model.objective, data.files()));
    }
  }
  print_table(figures);
  ScoreFigures result = {{"dataset", options.dataset}, {"examples", examples_read}, {"mask_seed", nullptr}};
  if (data.seed()) result["mask_seed"] = *data.seed();
  result["models"] = figures;
  std::cout << result.dump(-1, ' ', false, ScoreFigures::error_handler_t::replace) << '\n';
  return kOk;
}

}  // namespace bert
