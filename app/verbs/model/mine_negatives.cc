#include "app/verbs/model/mine_negatives.h"

#include <CLI/CLI.hpp>
#include <vector>

#include "app/cli/choice.h"
#include "app/cli/command_line.h"
#include "app/system/exit_codes.h"
#include "app/verbs/model/retrieval_options.h"
#include "app/verbs/torch_verbs.h"
#include "app/verbs/verbs.h"
#include "data/config.h"

namespace bert {
namespace {

constexpr int64_t kMostCandidates = 1 << 20;

void add_choice_options(CLI::App& app, MiningOptions& mining) {
  app.add_option("--num-negatives", mining.num_negatives, "negatives of a query at most")
      ->check(number_in<int64_t>(1, kMostCandidates))
      ->capture_default_str();
  app.add_option("--range-min", mining.range_min, "nearest candidates that are passed over")
      ->check(number_in<int64_t>(0, kMostCandidates))
      ->capture_default_str();
  app.add_option("--range-max", mining.range_max,
                 "candidates that are looked at; by default just enough, with a margin or --max-score 10 times as many")
      ->check(number_in<int64_t>(1, kMostCandidates));
  const auto limit = [&app](const char* name, std::optional<double>& value, const char* help) {
    app.add_option(name, value, help)->check(number_in(-1e9, 1e9));
  };
  limit("--max-score", mining.max_score, "a negative is at most so similar to the query");
  limit("--min-score", mining.min_score, "a negative is at least so similar to the query");
  limit("--absolute-margin", mining.absolute_margin, "a negative is less similar than the positive by that");
  limit("--relative-margin", mining.relative_margin, "the same as a share of the positive's similarity, such as 0.05");
  add_choice(app, "--sampling", mining.sampling, "top: the nearest candidates; random: any of them");
  app.add_option("--seed", mining.seed, "of --sampling random")->capture_default_str();
}

void add_model_choice(CLI::App& app, MineNegativesOptions& options) {
  add_choice(app, "--device", options.device, "auto takes cuda if there is a GPU");
  app.add_option("--precision", options.precision, "of the weights and of the computation; int8 is for the CPU")
      ->check(CLI::IsMember({"fp32", "fp16", "bf16", "int8"}))
      ->default_str("fp32");
  app.add_option_function<std::string>(
         "--long", [&options](const std::string& name) { options.long_texts = *value_named<LongTexts>(name); },
         "texts with more tokens than the model reads")
      ->check(CLI::IsMember({"refuse", "truncate", "windows"}))
      ->default_str("truncate");
  app.add_flag("--trust", options.trust, "also read a --checkpoint that is a pickle of PyTorch; no code is executed");
}

}  // namespace

bool parse_mine_negatives(int argc, char** argv, MineNegativesOptions& options) {
  CLI::App app(
      "Adds hard negatives to pairs of a query and a positive text: the texts that a sentence encoder finds nearest to "
      "the query, but for its positives. Prints counts as JSON.",
      "bert data mine-negatives");
  app.add_option("--input", options.input, "pairs: .tsv, .csv or .jsonl")->required();
  app.add_option("--anchor-column", options.anchor_column, "column of the query; by default anchor or query");
  app.add_option("--positive-column", options.positive_column, "column of the positive; by default positive");
  app.add_option("--corpus", options.corpus,
                 "more documents beside the positives: .jsonl with text and title, else a text a line");
  app.add_option("--checkpoint", options.checkpoint, "sentence encoder, run, checkpoint or model of transformers")
      ->required();
  app.add_option("--output", options.output, "file to write: .jsonl or .tsv")->required();
  add_choice(app, "--format", options.format,
             "triplet: a row for each negative; n-tuple: all negatives in a row, and no row without --num-negatives of "
             "them");
  app.add_flag("--scores", options.scores, "also write the similarities of the positive and the negatives");
  add_choice_options(app, options.mining);
  add_prompt_options(app, options.prompts, "");
  add_model_choice(app, options);
  app.footer(
      "The options have the names and meanings of mine_hard_negatives() of sentence-transformers. A query with several "
      "positives is in several rows of the input; margins are counted from its least similar one.\n\n"
      "Example: bert data mine-negatives --input pairs.tsv --checkpoint all-MiniLM-L6-v2 "
      "--output triplets.jsonl");
  return parse_command_line(app, argc, argv);
}

int mine_negatives_command(int argc, char** argv) {
  MineNegativesOptions options;
  if (!parse_mine_negatives(argc, argv, options)) return kOk;
  std::string verb = "data";
  std::vector<char*> arguments = {verb.data()};
  arguments.insert(arguments.end(), argv, argv + argc);
  return run_in_torch_library(argc + 1, arguments.data());
}

}  // namespace bert
