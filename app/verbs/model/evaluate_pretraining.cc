#include "app/verbs/model/evaluate_pretraining.h"

#include <CLI/CLI.hpp>

#include "app/cli/choice.h"
#include "app/cli/command_line.h"
#include "app/system/exit_codes.h"
#include "app/verbs/torch_verbs.h"

namespace bert {

bool parse_evaluate_pretraining(int argc, char** argv, EvaluatePretrainingOptions& options) {
  constexpr int64_t kShortest = 8, kLongest = 65535;  // tokens; a row of a shard has no more
  CLI::App app(
      "Says how good pre-trained models are, side by side: loss, perplexity and accuracy of masked tokens, the "
      "perplexity of a word, and the sentence-pair head. Prints a table, and one JSON object on the last line.",
      "bert evaluate pretraining");
  app.add_option("--checkpoint", options.checkpoints,
                 "runs, checkpoints, exports, or models of transformers, Google and NVIDIA, divided by commas")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->required();
  app.add_option("--dataset", options.dataset,
                 "shard, text (.jsonl: the field text), or a directory of shards or of texts")
      ->required();
  app.add_option("--mask-seed", options.mask_seed,
                 "draw masks, and pairs of text, with this seed; by default the masks of the shards, for others 1");
  app.add_option("--max-examples", options.max_examples,
                 "examples at most, the same number of every file, its first ones; 0: all")
      ->check(number_in<int64_t>(0, kManyTimes))
      ->capture_default_str();
  app.add_option("--max-seq-length", options.max_seq_length, "text: tokens of an example, in every vocabulary")
      ->check(number_in(kShortest, kLongest))
      ->capture_default_str();
  app.add_option("--pseudo-examples", options.pseudo_examples,
                 "of these, the examples, spread evenly, whose tokens are masked in turn: pseudo-perplexity; 0: none")
      ->check(number_in<int64_t>(0, kManyTimes))
      ->capture_default_str();
  add_choice(app, "--device", options.device, "auto takes cuda if there is a GPU");
  app.add_flag("--raw-weights", options.raw_weights, "the weights of a run themselves, not their moving average");
  app.add_flag("--trust", options.trust, "also read a pickle of PyTorch, of which nothing is executed");
  app.footer(
      "Shards need models of their vocabulary. Text is cut into examples that every model reads whole, so the "
      "pseudo-perplexity, that of a word, compares models of any vocabularies. Masks depend on the seed and the tokens "
      "alone. Pairs of text are those of bert data create --layout prose --masking none --dupe-factor 1 "
      "--short-seq-prob 0. Figures are also those of each file, and of words that occur so many times in the "
      "examples.\n\n"
      "Example: bert evaluate pretraining --checkpoint runs/phase1,bert-base-uncased --dataset held-out.txt\n"
      "         bert evaluate pretraining --checkpoint runs/phase1 --dataset validation --max-examples 0");
  return parse_command_line(app, argc - 1, argv + 1);
}

int evaluate_pretraining_command(int argc, char** argv) {
  EvaluatePretrainingOptions options;
  if (!parse_evaluate_pretraining(argc, argv, options)) return kOk;
  return run_in_torch_library(argc, argv);
}

}  // namespace bert
