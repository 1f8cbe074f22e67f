#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/cli/command_line.h"
#include "app/cli/percentage.h"
#include "app/cli/standard_input.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "app/system/processors.h"
#include "app/system/threads.h"
#include "app/verbs/output_paths.h"
#include "app/verbs/verbs.h"
#include "data/examples/pretraining_data.h"
#include "data/formats/shard.h"
#include "data/io/error.h"
#include "data/text/sentence_splitter.h"
#include "data/text/text_input.h"
#include "data/text/unicode.h"
#include "data/tokenizer/tokenizer.h"

namespace bert {
namespace {

using Json = nlohmann::ordered_json;

/// Adds an option for each field of a configuration struct: max_seq_length becomes --max-seq-length.
class OptionAdder {
 public:
  explicit OptionAdder(CLI::App& app) : app_(app) {}

  void operator()(const char* name, bool& value, const char* help) {
    app_.add_flag(flag(name), value, help)->capture_default_str();
  }
  template <class T>
  void operator()(const char* name, T& value, const char* help, T low, T high) {
    app_.add_option(flag(name), value, help)->check(number_in(low, high))->capture_default_str();
  }
  template <class T, class Low, class High>
  void operator()(const char* name, T& value, const char* help, Low low, High high) {
    (*this)(name, value, help, static_cast<T>(low), static_cast<T>(high));
  }

 private:
  static std::string flag(std::string name) {
    std::replace(name.begin(), name.end(), '_', '-');
    return name == "do-lower-case" ? "--do-lower-case,!--cased" : "--" + name;
  }

  CLI::App& app_;
};

/// The fields of a configuration struct as text, for the manifest of a shard.
struct ParameterList {
  std::vector<std::pair<std::string, std::string>> parameters;

  template <class T, class... Rest>
  void operator()(const char* name, const T& value, Rest&&...) {
    parameters.emplace_back(name, fmt::format("{}", value));
  }
};

/// Prints one line on standard output. Invalid UTF-8, for example in a path, becomes U+FFFD.
void print_line(const Json& json) {
  std::cout << json.dump(-1, ' ', false, Json::error_handler_t::replace) << std::endl;
}

Json manifest_json(const ShardManifest& manifest) {
  return {{"examples", manifest.rows},
          {"example_tokens", manifest.tokens},
          {"masked_tokens", manifest.masked_tokens},
          {"longest", manifest.longest_row},
          {"content_checksum", manifest.content_checksum}};
}

/// The members that both objects have with the same value.
Json shared_members(const Json& a, const Json& b) {
  Json both = Json::object();
  for (const auto& [key, value] : a.items()) {
    if (const auto found = b.find(key); found != b.end() && *found == value) both[key] = value;
  }
  return both;
}

// ---- create ----

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

int create(int argc, char** argv) {
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

// ---- split ----

int split(int argc, char** argv) {
  CLI::App app(
      "Splits prose on standard input into sentences: one per line on standard output, an empty line after each "
      "document.\n"
      "Example: bert data split <book.txt >sentences.txt",
      "bert data split");
  if (!parse_command_line(app, argc, argv)) return kOk;
  std::string text = read_standard_input();
  check_is_plain_text("standard input", text);
  check_share_of_invalid("standard input", text, count_invalid_utf8(text));
  const int64_t invalid = drop_invalid_utf8(text);
  if (invalid > 0) fmt::print(stderr, "bert data split: dropped {} invalid UTF-8 sequences\n", invalid);
  split_prose(text, [](std::string_view line) { std::cout << line << '\n'; });
  return kOk;
}

// ---- verify, show, stats ----

int verify(int argc, char** argv) {
  CLI::App app(
      "Checks every byte of shards and prints a line of JSON for each shard. Exit code 65 if one is damaged.\n"
      "Example: bert data verify train.shard",
      "bert data verify");
  std::vector<std::string> paths;
  app.add_option("PATH", paths, "shards, or directories of them")->required();
  if (!parse_command_line(app, argc, argv)) return kOk;
  int64_t shards = 0;
  std::vector<std::string> damaged;
  for (const std::string& path : paths) {
    for (const std::string& file : shard_files(path)) {
      ++shards;
      try {
        const Shard shard(file);
        Percentage percentage;
        const std::string phase = "verifying " + file;
        shard.verify([&](double share) { percentage.update(phase, share); });
        Json line = {{"path", file}, {"ok", true}};
        line.update(manifest_json(shard.manifest()));
        print_line(line);
      } catch (const DataError& error) {
        print_line(Json{{"path", file}, {"ok", false}, {"error", error.what()}});
        damaged.push_back(error.what());
      }
    }
  }
  if (!damaged.empty())
    throw DataError(fmt::format("{} of {} shards are damaged. {}", damaged.size(), shards, damaged.front()));
  return kOk;
}

int show(int argc, char** argv) {
  CLI::App app(
      "Shows one example. A masked token is shown as [MASK](original).\nExample: bert data show train.shard --vocab "
      "vocab.txt --row 7",
      "bert data show");
  std::string path, vocab;
  int64_t row = 0;
  app.add_option("PATH", path, "shard, or a directory of them")->required();
  app.add_option("--vocab", vocab, "vocabulary that the shard was made with; without it, ids are shown");
  app.add_option("--row", row, "number of the example, from 0")
      ->check(number_in<int64_t>(0, INT64_MAX))
      ->capture_default_str();
  if (!parse_command_line(app, argc, argv)) return kOk;
  const PretrainingShards shards({path});
  if (row >= shards.size())
    throw UsageError(fmt::format("--row {}: {} has the rows 0 to {}", row, path, shards.size() - 1));
  std::unique_ptr<Tokenizer> tokenizer;
  if (!vocab.empty()) {
    tokenizer = make_tokenizer(vocab);
    if (tokenizer->vocabulary().hash() != shards.vocabulary_checksum()) {
      throw DataError(fmt::format("{}: is not the vocabulary that {} was made with: checksum {}, the shard says {}",
                                  vocab, path, tokenizer->vocabulary().hash(), shards.vocabulary_checksum()));
    }
  }
  const auto name = [&](int32_t id) { return tokenizer ? tokenizer->vocabulary().token(id) : std::to_string(id); };
  const PretrainingExample example = shards.example(row);
  std::cout << fmt::format("row {} of {}: {} tokens, {} masked, B {} A\nA:", row, shards.size(),
                           example.input_ids.size(), example.masked_ids.size(),
                           example.is_random_next ? "does not follow" : "follows");
  size_t mask = 0;
  for (size_t i = 0; i < example.input_ids.size(); ++i) {
    if (i == static_cast<size_t>(example.segment_b_start)) std::cout << "\nB:";
    std::cout << ' ' << name(example.input_ids[i]);
    if (mask < example.masked_positions.size() && static_cast<size_t>(example.masked_positions[mask]) == i) {
      std::cout << '(' << name(example.masked_ids[mask++]) << ')';
    }
  }
  std::cout << std::endl;
  return kOk;
}

int stats(int argc, char** argv) {
  CLI::App app(
      "Counts what shards hold; prints JSON. length_histogram: [shortest, longest, examples] of each bin; parameters: "
      "those that all shards have in common; content_checksum: that of all shards together, as in a run's state.json; "
      "files: the same for each shard.\n"
      "Example: bert data stats train.shard",
      "bert data stats");
  std::string path;
  app.add_option("PATH", path, "shard, or a directory of them")->required();
  if (!parse_command_line(app, argc, argv)) return kOk;
  constexpr int64_t kBins = 16;
  const PretrainingShards shards({path});
  const int64_t width = (shards.longest_row() + kBins - 1) / kBins;
  std::array<int64_t, kBins> histogram{};
  int64_t tokens = 0, masked = 0, random_next = 0;
  Percentage percentage;
  for (int64_t i = 0; i < shards.size(); ++i) {
    percentage.update("counting", static_cast<double>(i + 1) / static_cast<double>(shards.size()));
    const ShardRow row = shards.row(i);
    tokens += row.length;
    masked += row.num_masked;
    random_next += row.is_random_next;
    ++histogram[static_cast<size_t>((row.length - 1) / width)];
  }
  Json bins = Json::array();
  for (int64_t bin = 0; bin < kBins; ++bin)
    bins.push_back({bin * width + 1, (bin + 1) * width, histogram[static_cast<size_t>(bin)]});
  const auto share = [](int64_t part, int64_t whole) { return static_cast<double>(part) / static_cast<double>(whole); };
  int64_t padded_tokens = 0, max_seq_length = 0;
  Json files = Json::array(), common = Json::object();
  for (const auto& shard : shards.shards()) {
    const ShardManifest& manifest = shard->manifest();
    padded_tokens += manifest.rows * manifest.max_seq_length;
    max_seq_length = std::max(max_seq_length, manifest.max_seq_length);
    Json file = {{"path", shard->path()}}, parameters = Json::object();
    file.update(manifest_json(manifest));
    for (const auto& [key, value] : manifest.parameters) parameters[key] = value;
    common = files.empty() ? parameters : shared_members(common, parameters);
    file["parameters"] = parameters;
    files.push_back(file);
  }
  const Json result = {{"shards", shards.shards().size()},
                       {"examples", shards.size()},
                       {"tokens", tokens},
                       {"masked_tokens", masked},
                       {"mean_length", share(tokens, shards.size())},
                       {"longest", shards.longest_row()},
                       {"max_seq_length", max_seq_length},
                       {"real_token_share", share(tokens, padded_tokens)},
                       {"masked_share", share(masked, tokens)},
                       {"random_next_share", share(random_next, shards.size())},
                       {"vocab_size", shards.vocab_size()},
                       {"vocabulary_checksum", shards.vocabulary_checksum()},
                       {"content_checksum", shards.content_checksum()},
                       {"parameters", common},
                       {"files", files},
                       {"length_histogram", bins}};
  print_line(result);
  return kOk;
}

constexpr Action kActions[] = {
    {"create", create, "makes pre-training examples from text"},
    {"split", split, "splits prose into sentences"},
    {"verify", verify, "checks every byte of shards"},
    {"show", show, "shows one example"},
    {"stats", stats, "prints counts and a histogram of lengths"},
};

}  // namespace

int data_command(int argc, char** argv) {
  return run_action(
      {.program = "bert data",
       .example = "bert data create --input book.txt --split-sentences --vocab vocab.txt --output book.shard",
       .actions = kActions},
      argc, argv);
}

}  // namespace bert
