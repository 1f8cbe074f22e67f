#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "app/cli/command_line.h"
#include "app/cli/percentage.h"
#include "app/interop/open_tokenizer.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "app/verbs/output_paths.h"
#include "app/verbs/text_options.h"
#include "app/verbs/tokenizer_options.h"
#include "app/verbs/verbs.h"
#include "data/corpus/document_reader.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "data/tokenizer/vocabulary_extension.h"
#include "data/tokenizer/vocabulary_rows.h"
#include "data/tokenizer/vocabulary_warnings.h"
#include "data/tokenizer/wordpiece_trainer.h"

namespace bert {
namespace {

constexpr const char* kProgram = "bert vocab";

struct VocabOptions {
  std::vector<std::string> inputs;
  std::string output;
  WordPieceTrainerConfig config = {.vocab_size = 0};
  ReaderOptions read{.layout = Layout::kLines};
  std::string extend, replace;  // an old vocabulary
  int64_t add = 0, reserve = 0, min_frequency = 2;
  bool use_unused = false;
};

/// Adds all documents to the trainer, with progress on standard error.
void add_texts(DocumentReader& reader, WordPieceTrainer& trainer) {
  constexpr size_t kPartBytes = 1 << 20;  // the trainer's time for a call does not matter then
  Percentage percentage;
  const auto all_megabytes = 1e-6 * static_cast<double>(reader.stored_bytes());
  const auto show = [&](double megabytes) {
    if (all_megabytes > 0) percentage.update("reading", megabytes, all_megabytes, "MB");
  };
  std::string document, part;
  show(0);
  const auto add_part = [&] {
    trainer.add(part);
    part.clear();
  };
  while (reader.next(document)) {
    part.append(document).push_back('\n');
    if (part.size() < kPartBytes) continue;
    add_part();
    show(1e-6 * static_cast<double>(reader.statistics().stored_bytes));
  }
  add_part();
  show(all_megabytes);
}

void add_options(CLI::App& app, VocabOptions& options) {
  WordPieceTrainerConfig& config = options.config;
  app.add_option("--input", options.inputs, "files, which may be packed by gzip, bzip2, xz or zstd, and directories")
      ->required();
  add_text_options(app, options.read);
  app.add_option(
         "--size", config.vocab_size,
         "number of tokens, [PAD] [UNK] [CLS] [SEP] [MASK] included; default with --replace: that of the old one")
      ->check(number_in<int64_t>(6, 1 << 24));
  CLI::Option* const extend = app.add_option(
      "--extend", options.extend,
      "keep this vocabulary, and add the words and pieces that save most tokens of the input: vocab.txt, "
      "tokenizer.json or their directory");
  app.add_option("--add", options.add, "number of tokens to add")->needs(extend)->check(number_in<int64_t>(1, 1 << 24));
  app.add_flag("--use-unused", options.use_unused, "added tokens first take the places of tokens [unusedN]")
      ->needs(extend);
  app.add_option("--min-frequency", options.min_frequency,
                 "times at least that the input has words which an added token shortens")
      ->needs(extend)
      ->check(number_in<int64_t>(1, 1 << 30))
      ->capture_default_str();
  app.add_option("--replace", options.replace, "learn a new vocabulary, and compare it with this one")
      ->excludes(extend);
  app.add_option("--reserve", options.reserve, "so many tokens [unusedN] more at the end")
      ->check(number_in<int64_t>(1, 1 << 20));
  app.add_option("--output", options.output, "vocabulary to write: one token per line")->required();
  app.add_flag("--allow-fewer", config.allow_fewer, "accept fewer tokens if the text does not yield --size or --add");
  app.add_flag("--allow-fewer-characters", config.allow_fewer_characters,
               "leave out the rarest characters, below --character-coverage, if --size has no room for all");
  add_tokenizer_options(app, config.tokenizer, "keep case and accents");
  app.add_option("--character-coverage", config.character_coverage,
                 "share of the text whose characters get tokens; rarer characters become [UNK]")
      ->check(number_in(kLeastCharacterCoverage, 1.0))
      ->capture_default_str();
  app.footer(
      "Example: bert vocab --input book.txt --size 8000 --output vocab.txt\n"
      "         bert vocab --extend vocab.txt --input field.txt --add 1000 --output field-vocab.txt\n"
      "With --extend and --replace it prints a line of JSON: tokens and unknown words before and after, rows kept.");
}

void check(const VocabOptions& options) {
  if (options.extend.empty() && options.replace.empty() && options.config.vocab_size == 0)
    throw UsageError("--size: is required without --extend and --replace");
  if (!options.extend.empty() && options.add == 0) throw UsageError("--add: is required with --extend");
  if (!options.extend.empty() && options.config.vocab_size > 0)
    throw UsageError("--size: does not go with --extend, which takes --add; --replace takes it");
}

/// The tokenizer of --extend or --replace; nullptr without. Its settings become those of the learner.
std::shared_ptr<const WordPieceTokenizer> open_old(VocabOptions& options) {
  const std::string& path = options.extend.empty() ? options.replace : options.extend;
  if (path.empty()) return nullptr;
  const std::shared_ptr<const Tokenizer> tokenizer = open_tokenizer(path, options.config.tokenizer);
  auto old = std::dynamic_pointer_cast<const WordPieceTokenizer>(tokenizer);
  if (old == nullptr) throw DataError(path + ": is a SentencePiece model; expected a WordPiece vocabulary");
  if (const size_t added = old->vocabulary().added().size(); added > 0) {
    say_in(kProgram)(
        fmt::format("{}: has {} added tokens, which vocab.txt writes as others; bert convert --vocab keeps them added",
                    path, added));
  }
  options.config.tokenizer = old->config();
  if (options.config.vocab_size == 0) options.config.vocab_size = old->vocabulary().size();
  return old;
}

/// Reads the input. Throws DataError if it has no word.
void count_words(const VocabOptions& options, DocumentReader& reader, WordPieceTrainer& trainer) {
  fmt::print(stderr, "bert vocab: reading {:.1f} MB\n", 1e-6 * static_cast<double>(reader.stored_bytes()));
  add_texts(reader, trainer);
  if (trainer.words() == 0 && trainer.overlong_words() > 0) {
    throw DataError(fmt::format(
        "{}: no word to learn from: all {} are longer than {} characters. Words end at white space and punctuation.",
        options.inputs.front(), trainer.overlong_words(), options.config.tokenizer.max_input_chars_per_word));
  }
  if (trainer.words() == 0) reader.throw_no_text();
  say_left_out(kProgram, options.read, reader.statistics());
  if (trainer.overlong_words() > 0) {
    fmt::print(stderr, "bert vocab: left out {} words of more than {} characters\n", trainer.overlong_words(),
               options.config.tokenizer.max_input_chars_per_word);
  }
}

/// The old tokens and those that --add asks for.
std::vector<std::string> extend(const VocabOptions& options, const WordPieceTokenizer& old, CountedWords words) {
  constexpr size_t kMostWords = 1'000'000;  // some 300 bytes of memory each
  if (words.size() > kMostWords) {
    fmt::print(stderr, "bert vocab: left out the {} rarest words to bound the memory\n", words.size() - kMostWords);
    words.resize(kMostWords);
  }
  fmt::print(stderr, "bert vocab: choosing {} tokens from {} different words\n", options.add, words.size());
  const std::vector<NewPiece> pieces = pieces_to_add(old, words, options.add, options.min_frequency);
  if (std::ssize(pieces) < options.add && !options.config.allow_fewer) {
    throw DataError(fmt::format(
        "{}: no more than {} tokens save others, not {}. Give more text, or a smaller --add or --min-frequency, or "
        "--allow-fewer.",
        options.inputs.front(), pieces.size(), options.add));
  }
  return extended_vocabulary(old.vocabulary().tokens(), pieces, options.use_unused, options.reserve);
}

std::vector<std::string> learn(const VocabOptions& options, WordPieceTrainer& trainer) {
  fmt::print(stderr, "bert vocab: learning {} tokens from {} different words\n",
             options.config.vocab_size - options.reserve, trainer.words());
  std::vector<std::string> tokens = trainer.train();
  if (const WordsLeftOut left_out = trainer.left_out(); left_out.words > 0) {
    fmt::print(
        stderr,
        "bert vocab: left out {} rare words, {:.2g} % of the text, to bound the memory; they are counted for the "
        "characters alone\n",
        left_out.words, 100 * left_out.share);
  }
  if (const CharacterStatistics characters = trainer.characters(); characters.in_vocabulary < characters.in_text) {
    fmt::print(
        stderr,
        "bert vocab: left out the {} rarest of {} characters, {:.2g} % of the text: words with them become [UNK]\n",
        characters.in_text - characters.in_vocabulary, characters.in_text, 100 * (1 - characters.coverage));
  }
  return extended_vocabulary(std::move(tokens), {}, /*use_unused=*/false, options.reserve);
}

/// Prints the tokens of the input in both vocabularies, and the rows of the new one.
void compare_vocabularies(const WordPieceTokenizer& old, const WordPieceTokenizer& now, const CountedWords& words) {
  const VocabularyRows rows = vocabulary_rows(now.vocabulary().tokens(), old);
  const TokenCount before = count_tokens(old, words), after = count_tokens(now, words);
  const auto share = [](int64_t part, int64_t all) { return static_cast<double>(part) / static_cast<double>(all); };
  const double saved = 1 - share(after.tokens, before.tokens);
  const double unknown_before = share(before.unknown, before.words), unknown_after = share(after.unknown, after.words);
  fmt::print(stderr,
             "bert vocab: {} words: {} tokens before, {} now, {:.1f} % saved; unknown words {:.3f} % before, {:.3f} % "
             "now; {}\n",
             before.words, before.tokens, after.tokens, 100 * saved, 100 * unknown_before, 100 * unknown_after,
             rows.text());
  const nlohmann::ordered_json line = {
      {"words", before.words},
      {"tokens_before", before.tokens},
      {"tokens", after.tokens},
      {"saved", saved},
      {"unknown_before", unknown_before},
      {"unknown", unknown_after},
      {"rows", {{"kept", rows.kept}, {"moved", rows.moved}, {"new", rows.new_ids.size()}, {"dropped", rows.dropped}}}};
  fmt::print("{}\n", line.dump());
}

}  // namespace

int vocab_command(int argc, char** argv) {
  VocabOptions options;
  CLI::App app{"Learns a WordPiece vocabulary from text, or adds the words of a field to one.", kProgram};
  add_options(app, options);
  if (!parse_command_line(app, argc, argv)) return kOk;
  check(options);
  const std::shared_ptr<const WordPieceTokenizer> old = open_old(options);

  const auto start = std::chrono::steady_clock::now();
  DocumentReader reader(options.inputs, options.read);
  std::vector<NamedPath> files = {{"--extend", options.extend}, {"--replace", options.replace}};
  for (const InputFile& input : reader.files()) files.push_back({"--input", input.path});
  check_outputs({{"--output", options.output}}, files);
  AtomicFile file(options.output);  // opened first: a directory that is not writable is reported at once
  WordPieceTrainerConfig config = options.config;
  config.vocab_size -= options.reserve;
  WordPieceTrainer trainer(config);
  count_words(options, reader, trainer);
  const CountedWords words = old ? trainer.counts() : CountedWords();
  const std::vector<std::string> tokens =
      options.extend.empty() ? learn(options, trainer) : extend(options, *old, words);
  const WordPieceTokenizer learned(Vocabulary(tokens, options.output), options.config.tokenizer);
  for (const std::string& warning : vocabulary_warnings(learned, options.output))
    say_in(kProgram)("warning: " + warning);
  for (const std::string& token : tokens) file.write(token + "\n");
  file.commit();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  fmt::print(stderr, "bert vocab: wrote {}: {} tokens, in {:.1f} s\n", options.output, tokens.size(), took.count());
  if (old) compare_vocabularies(*old, learned, words);
  return 0;
}

}  // namespace bert
