#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "app/cli/command_line.h"
#include "app/cli/percentage.h"
#include "app/system/exit_codes.h"
#include "app/verbs/output_paths.h"
#include "app/verbs/verbs.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "data/text/text_input.h"
#include "data/tokenizer/wordpiece_trainer.h"

namespace bert {
namespace {

/// Adds the files to the trainer in parts of whole lines, with progress on standard error. Returns the number of
/// invalid UTF-8 sequences.
int64_t add_texts(const std::vector<std::string>& names, const std::vector<std::unique_ptr<MappedFile>>& files,
                  int64_t bytes, WordPieceTrainer& trainer) {
  constexpr size_t kPartBytes = 16 << 20;
  Percentage percentage;
  int64_t invalid = 0, done = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    const int64_t invalid_before = invalid;
    for (std::string_view rest = files[i]->view(); !rest.empty();) {
      const size_t feed = rest.size() > kPartBytes ? rest.find('\n', kPartBytes) : std::string_view::npos;
      const std::string_view part = rest.substr(0, feed == std::string_view::npos ? feed : feed + 1);
      rest.remove_prefix(part.size());
      invalid += trainer.add(part);
      done += static_cast<int64_t>(part.size());
      percentage.update("reading", static_cast<double>(done) / static_cast<double>(bytes));
    }
    check_share_of_invalid(names[i], files[i]->view(), invalid - invalid_before);
  }
  return invalid;
}

}  // namespace

int vocab_command(int argc, char** argv) {
  std::vector<std::string> inputs;
  std::string output;
  bool cased = false;
  WordPieceTrainerConfig config;
  CLI::App app{"Learns a WordPiece vocabulary from UTF-8 text.", "bert vocab"};
  app.add_option("--input", inputs, "text files")->required();
  app.add_option("--size", config.vocab_size, "number of tokens, [PAD] [UNK] [CLS] [SEP] [MASK] included")
      ->required()
      ->check(number_in<int64_t>(6, 1 << 24));
  app.add_option("--output", output, "vocabulary to write: one token per line")->required();
  app.add_flag("--allow-fewer", config.allow_fewer, "accept fewer tokens if the text does not yield --size");
  app.add_flag("--allow-fewer-characters", config.allow_fewer_characters,
               "leave out the rarest characters, below --character-coverage, if --size has no room for all");
  app.add_flag("--cased", cased, "keep case and accents");
  app.add_option("--character-coverage", config.character_coverage,
                 "share of the text whose characters get tokens; rarer characters become [UNK]")
      ->check(number_in(kLeastCharacterCoverage, 1.0))
      ->capture_default_str();
  app.footer("Example: bert vocab --input book.txt --size 8000 --output vocab.txt");
  if (!parse_command_line(app, argc, argv)) return kOk;
  config.tokenizer.do_lower_case = !cased;
  check_outputs({{"--output", output}}, named_paths("--input", inputs));

  const auto start = std::chrono::steady_clock::now();
  std::vector<std::unique_ptr<MappedFile>> files;  // all files are opened before the first is read
  int64_t bytes = 0;
  for (const std::string& input : inputs) {
    files.push_back(std::make_unique<MappedFile>(input));
    check_is_plain_text(input, files.back()->view());
    bytes += files.back()->size();
  }
  AtomicFile file(output);  // opened first: a directory that is not writable is reported at once
  fmt::print(stderr, "bert vocab: reading {:.1f} MB\n", 1e-6 * static_cast<double>(bytes));
  WordPieceTrainer trainer(config);
  const int64_t invalid = add_texts(inputs, files, bytes, trainer);
  if (trainer.words() == 0 && trainer.overlong_words() > 0) {
    throw DataError(fmt::format(
        "{}: no word to learn from: all {} are longer than {} characters. Words end at white space and punctuation.",
        inputs.front(), trainer.overlong_words(), config.tokenizer.max_input_chars_per_word));
  }
  if (trainer.words() == 0) throw_no_text({.paths = inputs, .bytes = bytes, .invalid_sequences = invalid});
  if (invalid > 0) fmt::print(stderr, "bert vocab: dropped {} invalid UTF-8 sequences\n", invalid);
  if (trainer.overlong_words() > 0) {
    fmt::print(stderr, "bert vocab: left out {} words of more than {} characters\n", trainer.overlong_words(),
               config.tokenizer.max_input_chars_per_word);
  }
  fmt::print(stderr, "bert vocab: learning {} tokens from {} different words\n", config.vocab_size, trainer.words());
  const std::vector<std::string> tokens = trainer.train();
  if (const CharacterStatistics characters = trainer.characters(); characters.in_vocabulary < characters.in_text) {
    fmt::print(
        stderr,
        "bert vocab: left out the {} rarest of {} characters, {:.2g} % of the text: words with them become [UNK]\n",
        characters.in_text - characters.in_vocabulary, characters.in_text, 100 * (1 - characters.coverage));
  }
  for (const std::string& token : tokens) file.write(token + "\n");
  file.commit();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  fmt::print(stderr, "bert vocab: wrote {}: {} tokens, in {:.1f} s\n", output, tokens.size(), took.count());
  return 0;
}

}  // namespace bert
