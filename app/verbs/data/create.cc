#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app/cli/command_line.h"
#include "app/cli/percentage.h"
#include "app/distributed/environment.h"
#include "app/interop/open_tokenizer.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "app/system/fail_point.h"
#include "app/system/machine/memory.h"
#include "app/system/machine/processors.h"
#include "app/system/machine/threads.h"
#include "app/verbs/data/actions.h"
#include "app/verbs/data/google_spelling.h"
#include "app/verbs/output_paths.h"
#include "app/verbs/text_options.h"
#include "data/corpus/document_reader.h"
#include "data/creation/document_tokenizer.h"
#include "data/creation/example_directory.h"
#include "data/creation/needs.h"
#include "data/creation/write_examples.h"
#include "data/examples/example_maker.h"
#include "data/formats/example_file.h"
#include "data/formats/shard.h"
#include "data/io/error.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/vocabulary_warnings.h"

namespace bert {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr const char* kProgram = "bert data create";
constexpr int64_t kMegabyte = 1'000'000;

struct CreateOptions {
  std::vector<std::string> input, outputs;  // outputs: Google's list of files
  std::string input_list, output_list;      // --input-file and --output-file
  std::string vocab, output, validation_output, format = "shard";
  double validation_share = 0.05;
  std::optional<double> validation_masked_lm_prob;  // default: examples.masked_lm_prob
  int64_t num_threads = 1, num_shards = 0;
  std::optional<int64_t> memory;  // megabytes
  bool split_sentences = false, overwrite = false;
  ReaderOptions reader = {.layout = Layout::kSentences};
  PretrainingDataConfig examples;
  TokenizerConfig tokenizer;

  /// Held-out examples are used once, and have masks: a loss is comparable only with the same masks.
  [[nodiscard]] PretrainingDataConfig validation_examples() const {
    PretrainingDataConfig once = examples;
    once.dupe_factor = 1;
    once.masked_lm_prob = validation_masked_lm_prob.value_or(once.masked_lm_prob);
    once.masking = StoredMasks::kStatic;
    return once;
  }

  /// The settings beside those of the examples that the result depends on.
  [[nodiscard]] Parameters parameters() const {
    const ReaderOptions usual;
    Parameters list = parameters_of(tokenizer);
    list.emplace_back("layout", kLayoutNames[static_cast<size_t>(reader.layout)]);
    if (!reader.encoding.empty()) list.emplace_back("encoding", reader.encoding);
    if (reader.layout == Layout::kJsonLines || reader.text_field != usual.text_field)
      list.emplace_back("text_field", reader.text_field);
    if (reader.skip_bad_lines) list.emplace_back("skip_bad_lines", parameter_text(true));
    if (!reader.language.empty()) list.emplace_back("language", reader.language);
    return list;
  }

  [[nodiscard]] bool is_directory() const {
    return num_shards > 0 || output.ends_with('/') || fs::is_directory(output);
  }

  /// Bytes that may be taken: --memory, or `usual`, but not more than the machine has.
  [[nodiscard]] int64_t memory_bytes(int64_t usual) const {
    return memory ? *memory * kMegabyte : std::min(usual, available_memory());
  }
};

/// The sums over files of examples, for the summary.
Json counts_of(const std::vector<ExampleFileFigures>& files) {
  ExampleFileFigures sum;
  for (const ExampleFileFigures& file : files) {
    sum.examples += file.examples;
    sum.tokens += file.tokens;
    sum.masked_tokens += file.masked_tokens;
    sum.longest = std::max(sum.longest, file.longest);
    sum.without_masks += file.without_masks;
    sum.lone_tokens += file.lone_tokens;
    sum.documents += file.documents;
  }
  Json json = {{"examples", sum.examples},
               {"example_tokens", sum.tokens},
               {"masked_tokens", sum.masked_tokens},
               {"longest", sum.longest}};
  if (files.size() == 1) json["checksum"] = files.front().checksum;
  json["examples_without_masks"] = sum.without_masks;
  if (sum.lone_tokens > 0) json["sentences_without_pair"] = sum.lone_tokens;
  return json;
}

Json text_json(const CorpusStatistics& text, const ReadStatistics& read) {
  const double tokens = static_cast<double>(std::max<int64_t>(1, text.tokens));
  Json json = {{"files", read.files},
               {"documents", text.documents},
               {"sentences", text.sentences},
               {"tokens", text.tokens},
               {"unknown_token_share", static_cast<double>(text.unknown_tokens) / tokens},
               {"invalid_utf8", read.invalid_sequences}};
  if (text.empty_documents > 0) json["documents_without_tokens"] = text.empty_documents;
  if (read.skipped_files > 0) json["skipped_files"] = read.skipped_files;
  if (read.bad_lines > 0) json["bad_lines"] = read.bad_lines;
  return json;
}

/// Says on standard error what was left out, and why, and what the files do not record.
void say_left_out(const CorpusStatistics& text, const ReadStatistics& read, const CreateOptions& options,
                  const std::vector<ExampleFileFigures>& files) {
  const auto say = say_in(kProgram);
  if (const auto unsaid = unsaid_objective(options.format, options.output, parameters_of(options.examples));
      !unsaid.empty())
    say(unsaid);
  if (has_pairs(options.examples.objective) && text.documents > 0 && text.sentences == text.documents) {
    say(fmt::format(
        "warning: every one of the {} documents is one sentence, so that no example has two sentences in order. "
        "--split-sentences finds the sentences of prose; --objective mlm needs none",
        text.documents));
  }
  constexpr double kManyUnknown = 0.02;
  if (const double share =
          static_cast<double>(text.unknown_tokens) / static_cast<double>(std::max<int64_t>(1, text.tokens));
      share > kManyUnknown) {
    say(fmt::format(
        "warning: {:.1f} % of the tokens are unknown: {} lacks words of this text, and no model learns from "
        "[UNK]. `bert vocab` learns a vocabulary of the text; --cased and --strip-accents are as the "
        "vocabulary was made",
        100 * share, options.vocab));
  }
  if (has_pairs(options.examples.objective) && text.documents == 1) {
    say("warning: there is one document, so that no pair is of two documents and every label is \"not random\". "
        "Separate documents by empty lines, or give --objective sop or mlm");
  }
  const auto lone =
      std::count_if(files.begin(), files.end(), [](const ExampleFileFigures& file) { return file.documents == 1; });
  if (has_pairs(options.examples.objective) && text.documents > 1 && lone > 0) {
    say(
        fmt::format("warning: {} of {} files have one document each, so that none of their pairs is of two documents; "
                    "fewer files (--num-shards) hold more",
                    lone, files.size()));
  }
  if (read.invalid_sequences > 0) say(fmt::format("dropped {} invalid UTF-8 sequences", read.invalid_sequences));
  if (text.empty_documents > 0)
    say(fmt::format("left out {} documents that have no token, such as control characters", text.empty_documents));
  if (read.bad_lines > 0) say(fmt::format("skipped {} bad lines", read.bad_lines));
  if (read.skipped_files > 0)
    say(fmt::format("left out {} files or directories whose names begin with a full stop", read.skipped_files));
  for (const ExampleFileFigures& file : files) {
    if (file.without_masks > 0) say(without_masks_message(file.path, options.examples, file));
    if (file.lone_tokens > 0) {
      say(fmt::format("{}: left out {} sentences of one token, of which no pair can be made", file.path,
                      file.lone_tokens));
    }
  }
}

/// Google's form: all documents in one shuffle, and all in memory.
Json create_file(const CreateOptions& options, const Tokenizer& tokenizer, Percentage& percentage) {
  std::vector<NamedPath> inputs = named_paths("--input", options.input);
  std::vector<NamedPath> outputs = named_paths("--output", options.outputs);
  inputs.push_back({"--vocab", options.vocab});
  outputs.push_back({"--validation-output", options.validation_output});
  check_outputs(outputs, inputs);

  const FileMemory memory(options.examples, tokenizer.vocabulary().size(), options.memory_bytes(INT64_MAX));
  say_in(kProgram)(memory.check_files(find_input_files(options.input).files));
  ReadOptions read{.reader = options.reader, .num_threads = options.num_threads, .progress = {}, .counted = {}};
  read.progress = [&](int64_t bytes, int64_t of_bytes) {
    percentage.update("reading and tokenizing", static_cast<double>(bytes) / 1e6, static_cast<double>(of_bytes) / 1e6,
                      "MB");
  };
  read.counted = [&](const CorpusStatistics& so_far) { memory.check_text(so_far); };
  const Corpus corpus = read_documents(options.input, tokenizer, read);
  const auto seed = static_cast<uint64_t>(options.examples.random_seed);
  std::vector<uint8_t> held(corpus.documents.size());
  if (!options.validation_output.empty()) {
    if (held.size() < 2) {
      throw DataError(
          "the input has one document; holding one out for validation needs two. Separate documents by empty "
          "lines, or leave validation out.");
    }
    held = held_out(0, held.size(), options.validation_share, seed, true);
  }
  const auto write = [&](const std::vector<std::string>& paths, const PretrainingDataConfig& config, bool validation) {
    std::vector<uint32_t> which;
    for (uint32_t i = 0; i < held.size(); ++i) {
      if ((held[i] != 0) == validation) which.push_back(i);
    }
    Parameters parameters = parameters_of(config);
    for (const auto& each : options.parameters()) parameters.push_back(each);
    parameters.emplace_back("documents", std::to_string(which.size()));
    try {
      return write_examples({.paths = paths,
                             .format = options.format,
                             .named = paths.front(),
                             .which = std::move(which),
                             .config = config,
                             .seed = seed,
                             .parameters = parameters,
                             .expected_examples = validation ? 0 : memory.examples(corpus.statistics),
                             .memory_bytes = memory.for_examples(corpus.statistics)},
                            corpus.documents, tokenizer,
                            [&](double share) { percentage.update("making examples", share); });
    } catch (const MemoryExceeded&) {
      throw memory.exceeded(corpus.statistics);
    }
  };
  Json summary = text_json(corpus.statistics, corpus.read), validation;
  std::vector<ExampleFileFigures> files;
  if (!options.validation_output.empty()) {
    files = write({options.validation_output}, options.validation_examples(), true);
    validation = counts_of(files);
    validation["documents"] = files.back().documents;
    validation["output"] = options.validation_output;
  }
  const auto made = write(options.outputs, options.examples, false);
  summary.update(counts_of(made));
  files.insert(files.end(), made.begin(), made.end());
  if (options.format == "shard" && made.size() == 1)
    summary["content_checksum"] = Shard(options.output).manifest().content_checksum;
  summary["output"] = options.output;
  if (!validation.is_null()) summary["validation"] = validation;
  summary["text_bytes"] = corpus.read.text_bytes;
  say_left_out(corpus.statistics, corpus.read, options, files);
  return summary;
}

/// Throws UsageError if the directory `output` is one of `others`, or lies in one: its files would count as theirs.
void check_apart(const std::string& name, const std::string& output, const std::vector<std::string>& others) {
  if (output.empty()) return;
  std::error_code unnamed;  // a pipe of /dev/stdin has no path
  const std::string target = (fs::weakly_canonical(fs::absolute(output)) / "").string();
  for (const std::string& other : others) {
    const fs::path place = fs::weakly_canonical(fs::absolute(other), unnamed);
    if (!unnamed && target.starts_with((place / "").string()))
      throw UsageError(fmt::format("{} {}: lies in {}; write elsewhere", name, output, other));
  }
}

/// The scalable form: a directory of files.
Json create_files(const CreateOptions& options, const Tokenizer& tokenizer, const DistributedEnvironment& ranks,
                  Percentage& percentage) {
  check_apart("--output", options.output, options.input);
  check_apart("--validation-output", options.validation_output, options.input);
  check_apart("--validation-output", options.validation_output, {options.output});
  if (ranks.world_size > 1 && options.overwrite)
    throw UsageError("--overwrite works with one process: remove the directory before you start several ranks");
  constexpr std::array<FailPoint, 6> kSteps = {FailPoint::kDataChunk, FailPoint::kDataRead,  FailPoint::kDataExamples,
                                               FailPoint::kDataFile,  FailPoint::kDataNamed, FailPoint::kDataRemoved};
  const DirectorySummary made =
      create_directory({.input = options.input,
                        .reader = options.reader,
                        .output = options.output,
                        .validation_output = options.validation_output,
                        .format = options.format,
                        .num_shards = options.num_shards,
                        .validation_share = options.validation_share,
                        .examples = options.examples,
                        .validation_examples = options.validation_examples(),
                        .parameters = options.parameters(),
                        .num_threads = options.num_threads,
                        .rank = ranks.rank,
                        .world_size = ranks.world_size,
                        .overwrite = options.overwrite,
                        .memory_bytes = options.memory_bytes(kDirectoryMemory),
                        .processes_here = ranks.local_size,
                        .progress = [&](std::string_view phase, double done, double total,
                                        std::string_view unit) { percentage.update(phase, done, total, unit); },
                        .reached = [&](CreationStep step) { fail_point(kSteps[static_cast<size_t>(step)]); },
                        .say = say_in(kProgram)},
                       tokenizer);
  Json summary = text_json(made.statistics, made.read);
  summary.update(counts_of(made.files));
  summary["shards"] = made.files.size();
  summary["complete"] = made.complete;
  if (made.complete && options.format == "shard")
    summary["content_checksum"] = PretrainingShards({options.output}).content_checksum();
  summary["output"] = options.output;
  if (!options.validation_output.empty()) {
    Json validation = counts_of(made.validation_files);
    validation["shards"] = made.validation_files.size();
    validation["output"] = options.validation_output;
    summary["validation"] = validation;
  }
  summary["text_bytes"] = made.read.text_bytes;
  if (made.nothing_to_do) say_in(kProgram)(options.output + ": is finished; nothing to do");
  if (!made.complete) say_in(kProgram)(options.output + ": other processes are still making files");
  auto files = made.files;
  files.insert(files.end(), made.validation_files.begin(), made.validation_files.end());
  say_left_out(made.statistics, made.read, options, files);
  return summary;
}

void add_options(CLI::App& app, CreateOptions& options) {
  auto* input = app.add_option("--input", options.input, "text files or directories of them, UTF-8; may be compressed");
  app.add_option("--input-file", options.input_list,
                 "the same as Google's option: names or patterns with commas between")
      ->excludes(input);
  app.add_option("--vocab,--vocab-file", options.vocab,
                 "vocab.txt, *.model of SentencePiece, or tokenizer.json or its directory")
      ->required();
  auto* output = app.add_option("--output", options.output,
                                "file to write; a directory, or a name that ends with /, gets numbered files");
  app.add_option("--output-file", options.output_list,
                 "the same as Google's option: files with commas between, which get the examples in turn")
      ->excludes(output);
  const auto formats = example_formats();
  app.add_option("--format", options.format, "of the files")
      ->check(CLI::IsMember(std::vector<std::string>(formats.begin(), formats.end())))
      ->capture_default_str();
  app.add_option("--num-shards", options.num_shards,
                 "files in the directory --output; default: as many as keep the text of each at 64 MB")
      ->check(number_in<int64_t>(1, 99'999));
  app.add_flag("--overwrite", options.overwrite, "make the directory again, whatever it was made of");
  add_text_options(app, options.reader);
  app.add_flag("--split-sentences", options.split_sentences, "the same as --layout prose")
      ->excludes(app.get_option("--layout"));
  add_language_option(app, options.reader.language);
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
  app.add_option("--num-threads", options.num_threads, "threads; the result does not depend on their number")
      ->check(number_in<int64_t>(1, kMaxThreads))
      ->capture_default_str();
  app.add_option("--memory", options.memory,
                 "megabytes for all processes; default: 2000 for a directory, all there is for a file")
      ->check(number_in<int64_t>(1, 1'000'000'000));
  PretrainingDataConfig::visit_fields(options.examples, OptionAdder(app));
  TokenizerConfig::visit_fields(options.tokenizer, OptionAdder(app));
}

/// Settles the options that follow from others. Throws UsageError, InputMissing.
void settle(CreateOptions& options, const CLI::App& app) {
  if (!options.input_list.empty()) options.input = files_of_patterns(options.input_list);
  if (options.input.empty()) throw UsageError("--input is required; see bert data create --help");
  options.outputs = options.output_list.empty() ? std::vector{options.output} : split_at_commas(options.output_list);
  if (!options.outputs.empty()) options.output = options.outputs.front();
  if (options.output.empty()) throw UsageError("--output is required; see bert data create --help");
  if (options.outputs.size() > 1 && options.is_directory()) {
    throw UsageError(
        fmt::format("--output-file {}: names {} files, and a directory is one name: end it with /, or leave "
                    "--num-shards out",
                    options.output_list, options.outputs.size()));
  }
  if (options.split_sentences) options.reader.layout = Layout::kProse;
  if (options.reader.layout == Layout::kSentences) {
    const InputFiles files = find_input_files(options.input);
    options.reader.layout = layout_of_names(files.files, app.count("--layout") > 0);
  }
  if (options.reader.layout == Layout::kSentences && !options.reader.language.empty())
    throw UsageError(
        "--language is for prose, and the input has one sentence a line; give --split-sentences for prose");
  if (options.examples.masking == StoredMasks::kNone && app.count("--dupe-factor") == 0)
    options.examples.dupe_factor = 1;
}

}  // namespace

int data_create(int argc, char** argv) {
  CLI::App app(
      "Makes pre-training examples from text: one sentence per line, an empty line between documents.\nExample: bert "
      "data create --input a.txt b.txt --vocab vocab.txt --output train/ --max-seq-length 128",
      kProgram);
  app.footer(
      "A directory is made in less than 2 GB of memory (--memory). Each file is what Google's "
      "create_pretraining_data.py makes of its documents. A killed run continues where it was. Several processes may "
      "work on one directory; bertrun starts them. A single file is made in memory. With --masking none the text is "
      "used once unless --dupe-factor says otherwise. --short-seq-prob does not apply to --objective mlm; "
      "--do-lower-case and the options below it not to a SentencePiece model. --strip-accents=false switches a flag "
      "off. Google's spellings, as --nodo_lower_case, work too.");
  const DistributedEnvironment ranks = distributed_environment();
  CreateOptions options;
  options.num_threads = std::max<int64_t>(1, usable_processors() / ranks.local_size);
  add_options(app, options);
  std::vector<std::string> arguments = in_our_spelling(argc, argv);
  std::vector<char*> pointers;
  pointers.reserve(arguments.size());
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  if (!parse_command_line(app, argc, pointers.data())) return kOk;
  settle(options, app);
  if (ranks.world_size > 1 && !options.is_directory()) {
    throw UsageError(
        fmt::format("--output {}: {} processes make a directory of files together: end the name with /, or "
                    "give --num-shards",
                    options.output, ranks.world_size));
  }

  const auto start = std::chrono::steady_clock::now();
  Percentage percentage;
  require_format(options.format);
  const auto tokenizer = open_tokenizer(options.vocab, options.tokenizer);
  if (const auto* words = dynamic_cast<const WordPieceTokenizer*>(tokenizer.get()))
    options.tokenizer = words->config();  // a tokenizer.json has its own settings
  if (ranks.rank == 0) {
    for (const std::string& warning : vocabulary_warnings(*tokenizer, options.vocab))
      say_in(kProgram)("warning: " + warning);
  }
  Json summary;
  try {
    summary = options.is_directory() ? create_files(options, *tokenizer, ranks, percentage)
                                     : create_file(options, *tokenizer, percentage);
  } catch (const TooMuchMemory& error) {
    throw OutOfMemory(error.what());
  } catch (const NoProgress& error) {
    throw PeerError(error.what());
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  summary["seconds"] = took.count();
  summary["megabytes_per_second"] = summary["text_bytes"].get<double>() / 1e6 / took.count();
  print_line(summary);
  return kOk;
}

}  // namespace bert
