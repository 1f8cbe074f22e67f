#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app/cli/command_line.h"
#include "app/cli/percentage.h"
#include "app/system/exit_codes.h"
#include "app/system/processors.h"
#include "app/system/threads.h"
#include "app/verbs/data_actions.h"
#include "app/verbs/output_paths.h"
#include "data/examples/pretraining_data.h"
#include "data/formats/shard.h"
#include "data/io/error.h"
#include "data/tokenizer/tokenizer.h"

namespace bert {
namespace {

using Json = nlohmann::ordered_json;

/// The fields of a configuration struct as text, for the manifest of a shard.
struct ParameterList {
  std::vector<std::pair<std::string, std::string>> parameters;

  template <class T, class... Rest>
  void operator()(const char* name, const T& value, Rest&&...) {
    if constexpr (std::is_enum_v<T>) {
      parameters.emplace_back(name, name_of_value(value));
    } else {
      parameters.emplace_back(name, fmt::format("{}", value));
    }
  }
};

struct CreateOptions {
  std::vector<std::string> input;
  std::string vocab, output, validation_output, format = "shard";
  double validation_share = 0.05;
  std::optional<double> validation_masked_lm_prob;  // default: examples.masked_lm_prob
  int64_t num_threads = usable_processors();
  bool split_sentences = false;
  PretrainingDataConfig examples;
  TokenizerConfig tokenizer;
};

/// Makes the examples and writes them to the shard `path`. Returns the counts of the shard for the summary.
Json write_shard(const std::string& path, const std::vector<TokenizedDocument>& documents, const Tokenizer& tokenizer,
                 const CreateOptions& options, const PretrainingDataConfig& config, Percentage& percentage) {
  ParameterList list;
  PretrainingDataConfig::visit_fields(config, list);
  TokenizerConfig::visit_fields(options.tokenizer, list);
  list("split_sentences", options.split_sentences);
  list("documents", documents.size());
  // The shard is opened before the examples are made: a directory that is not writable is reported at once.
  ShardWriter writer(path, {.vocab_size = tokenizer.vocabulary().size(),
                            .max_seq_length = config.max_seq_length,
                            .vocabulary_checksum = tokenizer.vocabulary().hash(),
                            .parameters = list.parameters});
  const auto examples =
      create_examples(documents, tokenizer, config, [&](double share) { percentage.update("making examples", share); });
  int64_t without_masks = 0;  // Google's create_pretraining_data.py makes such examples, too
  for (const PretrainingExample& example : examples) {
    writer.add(example);
    without_masks += example.masked_ids.empty();
  }
  if (without_masks > 0) {
    const std::string why = fmt::format(
        "{}: {} of {} examples have no masked token: {}", path, without_masks, examples.size(),
        config.do_whole_word_mask
            ? fmt::format("each word of them has more pieces than may be masked; raise --max-predictions-per-seq ({}) "
                          "or --masked-lm-prob ({})",
                          config.max_predictions_per_seq, config.masked_lm_prob)
            : "they have nothing but special tokens");
    if (without_masks == static_cast<int64_t>(examples.size())) throw DataError(why);
    fmt::print(stderr, "bert data create: {}\n", why);
  }
  Json summary = manifest_json(writer.commit());
  summary["examples_without_masks"] = without_masks;
  return summary;
}

}  // namespace

int data_create(int argc, char** argv) {
  CLI::App app(
      "Makes pre-training examples from text: one sentence per line, an empty line between documents.\nExample: bert "
      "data create --input a.txt b.txt --vocab vocab.txt --output train.shard --max-seq-length 128",
      "bert data create");
  app.footer(
      "Text and examples are held in memory: about 24 bytes for a byte of text at --dupe-factor 10. Make several "
      "shards of a larger corpus in one directory; data.train takes the directory. --do-lower-case, "
      "--match-special-tokens and --max-input-chars-per-word do not apply to a SentencePiece model, which has its own "
      "rules inside.");
  CreateOptions options;
  app.add_option("--input", options.input, "text files, UTF-8")->required();
  app.add_option("--vocab", options.vocab, "vocab.txt, or a SentencePiece model *.model")->required();
  app.add_option("--output", options.output, "file to write")->required();
  app.add_option("--format", options.format, "shard")->check(CLI::IsMember({"shard"}))->capture_default_str();
  app.add_flag("--split-sentences", options.split_sentences,
               "split the input, which is prose, into sentences first (as bert data split does)");
  auto* validation =
      app.add_option("--validation-output", options.validation_output,
                     "examples of documents that are held out, each used once; they are not in --output");
  app.add_option("--validation-share", options.validation_share, "share of the documents that is held out")
      ->check(number_in(0.0001, 0.9))
      ->capture_default_str()
      ->needs(validation);
  app.add_option("--validation-masked-lm-prob", options.validation_masked_lm_prob,
                 "share of the held-out examples' tokens that is masked; default: --masked-lm-prob")
      ->check(number_in(0.0, 1.0))
      ->needs(validation);
  app.add_option("--num-threads", options.num_threads,
                 "threads that tokenize; the result does not depend on their number")
      ->check(number_in<int64_t>(1, kMaxThreads))
      ->capture_default_str();
  PretrainingDataConfig::visit_fields(options.examples, OptionAdder(app));
  TokenizerConfig::visit_fields(options.tokenizer, OptionAdder(app));
  if (!parse_command_line(app, argc, argv)) return kOk;
  std::vector<NamedPath> inputs = named_paths("--input", options.input);
  inputs.push_back({"--vocab", options.vocab});
  check_outputs({{"--output", options.output}, {"--validation-output", options.validation_output}}, inputs);

  const auto start = std::chrono::steady_clock::now();
  Percentage percentage;
  const auto tokenizer = make_tokenizer(options.vocab, options.tokenizer);
  ReadOptions read{.split_sentences = options.split_sentences, .num_threads = options.num_threads, .progress = {}};
  read.progress = [&](int64_t bytes, int64_t of_bytes) {
    percentage.update("reading and tokenizing",
                      static_cast<double>(bytes) / static_cast<double>(std::max<int64_t>(1, of_bytes)));
  };
  Corpus corpus = read_documents(options.input, *tokenizer, read);
  const CorpusStatistics& statistics = corpus.statistics;
  if (statistics.invalid_sequences > 0)
    fmt::print(stderr, "bert data create: dropped {} invalid UTF-8 sequences\n", statistics.invalid_sequences);
  Json summary = {
      {"documents", statistics.documents},
      {"sentences", statistics.sentences},
      {"tokens", statistics.tokens},
      {"unknown_token_share", static_cast<double>(statistics.unknown_tokens) / static_cast<double>(statistics.tokens)},
      {"invalid_utf8", statistics.invalid_sequences}};
  Json validation_summary;
  if (!options.validation_output.empty()) {
    const auto held_out =
        hold_out(corpus.documents, options.validation_share, static_cast<uint64_t>(options.examples.random_seed));
    PretrainingDataConfig once = options.examples;
    once.dupe_factor = 1;
    once.masked_lm_prob = options.validation_masked_lm_prob.value_or(once.masked_lm_prob);
    validation_summary = write_shard(options.validation_output, held_out, *tokenizer, options, once, percentage);
    validation_summary["documents"] = held_out.size();
    validation_summary["output"] = options.validation_output;
  }
  summary.update(write_shard(options.output, corpus.documents, *tokenizer, options, options.examples, percentage));
  summary["output"] = options.output;
  if (!validation_summary.is_null()) summary["validation"] = validation_summary;
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  summary["seconds"] = took.count();
  summary["megabytes_per_second"] = static_cast<double>(statistics.bytes) / 1e6 / took.count();
  print_line(summary);
  return kOk;
}

}  // namespace bert
