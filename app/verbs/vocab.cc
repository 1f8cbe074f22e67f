#include <fmt/format.h>

#include <chrono>
#include <string>
#include <vector>

#include "app/cli/command_line.h"
#include "app/cli/percentage.h"
#include "app/system/exit_codes.h"
#include "app/verbs/output_paths.h"
#include "app/verbs/text_options.h"
#include "app/verbs/tokenizer_options.h"
#include "app/verbs/verbs.h"
#include "data/corpus/document_reader.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "data/tokenizer/vocabulary_warnings.h"
#include "data/tokenizer/wordpiece_trainer.h"

namespace bert {
namespace {

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

}  // namespace

int vocab_command(int argc, char** argv) {
  std::vector<std::string> inputs;
  std::string output;
  WordPieceTrainerConfig config;
  ReaderOptions read{.layout = Layout::kLines};
  CLI::App app{"Learns a WordPiece vocabulary from text.", "bert vocab"};
  app.add_option("--input", inputs, "files, which may be packed by gzip, bzip2, xz or zstd, and directories")
      ->required();
  add_text_options(app, read);
  app.add_option("--size", config.vocab_size, "number of tokens, [PAD] [UNK] [CLS] [SEP] [MASK] included")
      ->required()
      ->check(number_in<int64_t>(6, 1 << 24));
  app.add_option("--output", output, "vocabulary to write: one token per line")->required();
  app.add_flag("--allow-fewer", config.allow_fewer, "accept fewer tokens if the text does not yield --size");
  app.add_flag("--allow-fewer-characters", config.allow_fewer_characters,
               "leave out the rarest characters, below --character-coverage, if --size has no room for all");
  add_tokenizer_options(app, config.tokenizer, "keep case and accents");
  app.add_option("--character-coverage", config.character_coverage,
                 "share of the text whose characters get tokens; rarer characters become [UNK]")
      ->check(number_in(kLeastCharacterCoverage, 1.0))
      ->capture_default_str();
  app.footer("Example: bert vocab --input book.txt --size 8000 --output vocab.txt");
  if (!parse_command_line(app, argc, argv)) return kOk;

  const auto start = std::chrono::steady_clock::now();
  DocumentReader reader(inputs, read);
  std::vector<NamedPath> files;
  for (const InputFile& file : reader.files()) files.push_back({"--input", file.path});
  check_outputs({{"--output", output}}, files);
  AtomicFile file(output);  // opened first: a directory that is not writable is reported at once
  fmt::print(stderr, "bert vocab: reading {:.1f} MB\n", 1e-6 * static_cast<double>(reader.stored_bytes()));
  WordPieceTrainer trainer(config);
  add_texts(reader, trainer);
  if (trainer.words() == 0 && trainer.overlong_words() > 0) {
    throw DataError(fmt::format(
        "{}: no word to learn from: all {} are longer than {} characters. Words end at white space and punctuation.",
        inputs.front(), trainer.overlong_words(), config.tokenizer.max_input_chars_per_word));
  }
  if (trainer.words() == 0) reader.throw_no_text();
  say_left_out("bert vocab", read, reader.statistics());
  if (trainer.overlong_words() > 0) {
    fmt::print(stderr, "bert vocab: left out {} words of more than {} characters\n", trainer.overlong_words(),
               config.tokenizer.max_input_chars_per_word);
  }
  fmt::print(stderr, "bert vocab: learning {} tokens from {} different words\n", config.vocab_size, trainer.words());
  const std::vector<std::string> tokens = trainer.train();
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
  const WordPieceTokenizer learned(Vocabulary(tokens, output), config.tokenizer);
  for (const std::string& warning : vocabulary_warnings(learned, output)) say_in("bert vocab")("warning: " + warning);
  for (const std::string& token : tokens) file.write(token + "\n");
  file.commit();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  fmt::print(stderr, "bert vocab: wrote {}: {} tokens, in {:.1f} s\n", output, tokens.size(), took.count());
  return 0;
}

}  // namespace bert
