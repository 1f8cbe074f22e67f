#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app/cli/command_line.h"
#include "app/cli/percentage.h"
#include "app/interop/conversion.h"
#include "app/interop/formats.h"
#include "app/interop/original_files.h"
#include "app/interop/vocabulary_change.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "app/verbs/output_paths.h"
#include "app/verbs/tokenizer_options.h"
#include "app/verbs/verbs.h"
#include "data/io/error.h"
#include "data/tokenizer/vocabulary.h"

namespace bert {
namespace {

struct ConvertOptions {
  std::string from, to, input, output, vocab;
  ForeignOptions foreign = {.trust = false, .config = {}, .task_head = true, .originals = true};
  TokenizerConfig tokenizer;  // of `vocab`
  NewRows rows;               // likewise
  bool overwrite = false, raw_weights = false;
};

std::vector<std::string> format_names() {
  std::vector<std::string> names;
  for (const ForeignFormat& format : foreign_formats()) names.emplace_back(format.name);
  return names;
}

/// Gives a checkpoint the vocabulary of --vocab. Returns the rows of its tokens if the checkpoint has another one.
std::optional<VocabularyRows> use_vocabulary(const CLI::App& app, const ConvertOptions& options,
                                             ForeignCheckpoint& source) {
  if (options.vocab.empty()) return std::nullopt;
  const Vocabulary given = Vocabulary::load(options.vocab);
  std::optional<VocabularyRows> rows;
  const bool first = source.model.vocabulary.empty();
  if (first) {
    source.model.vocabulary = given.tokens();
    resize_vocabulary(source, source.model.config.vocab_size);  // throws if there are more tokens than rows
  } else if (!vocabulary_difference(source.model.vocabulary, given.tokens()).empty()) {
    NewRows new_rows = options.rows;
    new_rows.deviation = source.model.config.initializer_range;
    rows = change_vocabulary(source, given, new_rows);
    source.report.notes.push_back(fmt::format("vocabulary of {}: {}", options.vocab, rows->text()));
  }
  TokenizerConfig& tokenizer = source.model.tokenizer;
  bool other_tokenizer = rows.has_value();
  const auto take = [&](const char* option, auto TokenizerConfig::*field) {
    if (!first && app.count(option) == 0) return;
    tokenizer.*field = options.tokenizer.*field;
    other_tokenizer = true;
  };
  take("--cased", &TokenizerConfig::do_lower_case);
  take("--strip-accents", &TokenizerConfig::strip_accents);
  take("--tokenize-chinese-chars", &TokenizerConfig::tokenize_chinese_chars);
  if (other_tokenizer) drop_original_tokenizer(source.originals);
  return rows;
}

ForeignCheckpoint open_source(const ConvertOptions& options, Percentage& percentage) {
  for (const ForeignFormat& format : foreign_formats()) {
    if (options.from.empty() ? format.recognises(options.input) : options.from == format.name)
      return format.read(options.input, options.foreign);
  }
  refuse_other_weights(options.input);
  std::error_code unseen;
  if (std::filesystem::is_regular_file(options.input, unseen)) {
    throw InputMissing(
        options.input +
        ": is a file, and none of torch.save() or TensorFlow; name a checkpoint, a run directory or a model "
        "directory of transformers");
  }
  return read_own_checkpoint(options.input, options.raw_weights, say_in("bert convert"),
                             [&](double share) { percentage.update("verifying", share); });
}

void check(const CLI::App& app, const ConvertOptions& options) {
  if (options.from.empty() && options.to.empty() && options.vocab.empty()) {
    throw UsageError(
        "neither --from nor --to nor --vocab: --from huggingface, google or nvidia reads checkpoints of others, --to "
        "huggingface writes a model directory of transformers, --vocab changes a vocabulary; see bert convert --help");
  }
  if (options.raw_weights && !options.from.empty())
    throw UsageError("--raw-weights: a model directory has one kind of weights; leave it out");
  if (!options.foreign.config.empty() && options.from != "google" && options.from != "nvidia")
    throw UsageError("--config: belongs to --from google and --from nvidia; other models have a configuration inside");
  for (const char* option : {"--cased", "--strip-accents", "--tokenize-chinese-chars", "--rows", "--seed"}) {
    if (app.count(option) > 0 && options.vocab.empty())
      throw UsageError(std::string(option) + ": belongs to --vocab, which is not given");
  }
  check_output_directory({"--output", options.output}, {"--input", options.input}, options.overwrite);
}

}  // namespace

int convert_command(int argc, char** argv) {
  CLI::App app(
      "Converts between checkpoints of bert and those of other programs. Prints a line of JSON; a report of every "
      "tensor "
      "goes to standard error.\n"
      "Example: bert convert --from huggingface --input bert-base-uncased --output checkpoints/bert-base\n"
      "         bert convert --from google --input uncased_L-12_H-768_A-12 --output checkpoints/google\n"
      "         bert convert --from nvidia --input ckpt_8601.pt --trust --config large.json --vocab vocab.txt --output "
      "new\n"
      "         bert convert --to huggingface --input runs/phase2 --output my-bert\n"
      "         bert convert --vocab extended.txt --input runs/phase2 --output extended",
      "bert convert");
  app.footer(
      "--from FORMAT writes a checkpoint, for initial_checkpoint, predict and export. huggingface is a model directory "
      "of "
      "transformers, google a checkpoint of TensorFlow, nvidia a state dict of torch.save(). --to huggingface writes "
      "config.json, model.safetensors, vocab.txt, tokenizer.json, tokenizer_config.json and special_tokens_map.json. "
      "Both "
      "together convert without a checkpoint in between. Weights keep their bits. Moments of an optimizer stay "
      "behind: initial_vocabulary.rows with initial_optimizer_state of bert pretrain keeps those of kept tokens.");
  ConvertOptions options;
  app.add_option("--from", options.from, "format of the input; default: a checkpoint, or whatever format it has")
      ->check(CLI::IsMember(format_names()));
  app.add_option("--to", options.to, "format of the output; default: a checkpoint")
      ->check(CLI::IsMember({"huggingface"}));
  app.add_option(
         "--input", options.input,
         "checkpoint or run directory; model directory, also in the hub's cache (models--ORG--NAME); directory or "
         "common name of TensorFlow's files; file of torch.save()")
      ->required();
  app.add_option("--output", options.output, "directory to write; absent or empty")->required();
  app.add_option("--config", options.foreign.config,
                 "bert_config.json of weights of Google or NVIDIA that have none beside them");
  app.add_flag("--trust", options.foreign.trust,
               "also read pickles, files of torch.save(), which can hold code; none is executed");
  app.add_option(
      "--vocab", options.vocab,
      "vocab.txt of a model directory without a tokenizer, or another vocabulary than the model's, which --rows "
      "fits to it");
  app.add_option_function<std::string>(
         "--rows", [&options](const std::string& rows) { options.rows.mean_of_pieces = rows != "random"; },
         "rows of new tokens: the means of those of their pieces, or new ones, drawn with --seed")
      ->check(CLI::IsMember({"mean_of_pieces", "random"}))
      ->default_str("mean_of_pieces");
  app.add_option("--seed", options.rows.seed, "of --rows random")->default_str("0");
  add_tokenizer_options(app, options.tokenizer, "the tokens of --vocab keep upper case and accents");
  app.add_flag("--overwrite", options.overwrite, "replace the model that --output holds");
  app.add_flag("--raw-weights", options.raw_weights,
               "of a run with optimizer.ema_decay: the weights themselves, not their moving averages");
  if (!parse_command_line(app, argc, argv)) return kOk;
  check(app, options);
  const auto start = std::chrono::steady_clock::now();
  Percentage percentage;
  ForeignCheckpoint source = open_source(options, percentage);
  const std::optional<VocabularyRows> rows = use_vocabulary(app, options, source);
  fmt::print(stderr, "bert convert: {}: {}\n", source.path, source.report.text());
  const auto writing = [&](double share) { percentage.update("writing", share); };
  if (options.to.empty()) {
    write_own_checkpoint(options.output, source, writing);
  } else {
    write_hugging_face(options.output, source, writing);
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  nlohmann::ordered_json line = {{"output", options.output},
                                 {"format", options.to.empty() ? "checkpoint" : options.to},
                                 {"loaded", source.report.loaded.size()},
                                 {"missing", source.report.missing},
                                 {"unexpected", source.report.unexpected},
                                 {"reshaped", source.report.reshaped},
                                 {"ignored", source.report.ignored},
                                 {"tokens", source.model.vocabulary.size()},
                                 {"seconds", took.count()}};
  if (rows)
    line["rows"] = {
        {"kept", rows->kept}, {"moved", rows->moved}, {"new", rows->new_ids.size()}, {"dropped", rows->dropped}};
  fmt::print("{}\n", line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  return kOk;
}

}  // namespace bert
