#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
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
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/wordpiece_trainer.h"

namespace bert {
namespace {

constexpr size_t kBufferBytes = 1 << 20;

/// Calls handle(line) for each line of standard input, without its line feed; memory for the longest line.
template <class Handle>
void for_each_input_line(Handle&& handle) {
  std::string buffer(2 * kBufferBytes, '\0');
  size_t begin = 0, end = 0;  // what is read and not handled
  bool first = true;
  for (;;) {
    const ssize_t got = ::read(STDIN_FILENO, buffer.data() + end, buffer.size() - end);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw IoError(fmt::format("standard input: cannot read: {}", std::strerror(errno)));
    if (got == 0) break;
    if (first) check_is_plain_text("standard input", {buffer.data(), static_cast<size_t>(got)});
    first = false;
    size_t unseen = end;
    end += static_cast<size_t>(got);
    const std::string_view text(buffer.data(), end);
    for (size_t feed; (feed = text.find('\n', unseen)) != std::string_view::npos; unseen = begin = feed + 1) {
      handle(text.substr(begin, feed - begin));
    }
    if (buffer.size() - end >= kBufferBytes) continue;
    buffer.erase(0, begin);
    end -= begin;
    begin = 0;
    buffer.resize(std::max(2 * end, size_t{2 * kBufferBytes}));
  }
  if (end > begin) handle(std::string_view(buffer).substr(begin, end - begin));
}

/// Standard output in large writes. Call flush() at the end.
class Output {
 public:
  std::string& text() { return text_; }
  void flush_when_full() {
    if (text_.size() >= kBufferBytes) flush();
  }
  void flush() {
    for (std::string_view rest = text_; !rest.empty();) {
      const ssize_t written = ::write(STDOUT_FILENO, rest.data(), rest.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) throw IoError(fmt::format("standard output: cannot write: {}", std::strerror(errno)));
      rest.remove_prefix(static_cast<size_t>(written));
    }
    text_.clear();
  }

 private:
  std::string text_;
};

/// A JSON array of [token, first character, one past the last] per token.
std::string offsets_line(const Tokenizer& tokenizer, std::string_view line, const Encoding& encoding) {
  const std::vector<TextSpan> characters = character_spans(line, encoding.spans);
  nlohmann::json array = nlohmann::json::array();
  for (size_t i = 0; i < encoding.ids.size(); ++i) {
    array.push_back({tokenizer.vocabulary().token(encoding.ids[i]), characters[i].begin, characters[i].end});
  }
  return array.dump();
}

/// Writes one line per line of standard input; returns the number of invalid UTF-8 sequences.
class LineTokenizer {
 public:
  LineTokenizer(const Tokenizer& tokenizer, const std::string& format, bool special_tokens)
      : tokenizer_(tokenizer), offsets_(format == "offsets"), special_tokens_(special_tokens) {
    for (const std::string& token : tokenizer.vocabulary().tokens()) {
      printed_.push_back(format == "tokens" ? token : std::to_string(printed_.size()));
      printed_.back().push_back(' ');
    }
  }

  int64_t run() {
    Output output;
    int64_t invalid = 0;
    for_each_input_line([&](std::string_view line) {
      if (offsets_) {
        Encoding encoding = tokenizer_.encode_with_offsets(line);
        invalid += encoding.invalid_sequences;
        if (special_tokens_) frame(encoding, static_cast<int64_t>(line.size()));
        output.text() += offsets_line(tokenizer_, line, encoding);
      } else {
        ids_.clear();
        if (special_tokens_) ids_.push_back(tokenizer_.vocabulary().cls_id());
        invalid += tokenizer_.encode(line, ids_);
        if (special_tokens_) ids_.push_back(tokenizer_.vocabulary().sep_id());
        for (const int32_t id : ids_) output.text() += printed_[static_cast<size_t>(id)];
        if (!ids_.empty()) output.text().pop_back();
      }
      output.text().push_back('\n');
      output.flush_when_full();
    });
    output.flush();
    return invalid;
  }

 private:
  /// [CLS] before and [SEP] after, at no characters.
  void frame(Encoding& encoding, int64_t end) const {
    encoding.ids.insert(encoding.ids.begin(), tokenizer_.vocabulary().cls_id());
    encoding.ids.push_back(tokenizer_.vocabulary().sep_id());
    encoding.spans.insert(encoding.spans.begin(), TextSpan{0, 0});
    encoding.spans.push_back({end, end});
  }

  const Tokenizer& tokenizer_;
  const bool offsets_, special_tokens_;
  std::vector<std::string> printed_;  // each id or token as it is written, with the space after it
  std::vector<int32_t> ids_;
};

/// Gives the files to the trainer in parts that end with a line, and tells how far it is. Returns the number of invalid
/// UTF-8 sequences.
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

int tokenize_command(int argc, char** argv) {
  std::string vocab, format = "ids";
  bool cased = false, special_tokens = false;
  TokenizerConfig config;
  CLI::App app{"Tokenizes standard input to standard output, one line per line.", "bert tokenize"};
  app.add_option("--vocab", vocab, "vocab.txt (WordPiece), or a SentencePiece *.model or *.spm")->required();
  app.add_flag("--cased", cased, "keep case and accents; for a cased vocabulary");
  app.add_option(
         "--format", format,
         "ids: separated by spaces; tokens: the same as text;\noffsets: a JSON array of [token, begin, end] per "
         "line, in characters (code points) of the line, end excluded")
      ->check(CLI::IsMember({"ids", "tokens", "offsets"}))
      ->capture_default_str();
  app.add_flag("--special-tokens", special_tokens, "[CLS] before each line, [SEP] after it");
  app.add_flag("--match-special-tokens", config.match_special_tokens,
               "[MASK] and its like in the text are that token, as in Hugging Face");
  app.add_option("--max-input-chars-per-word", config.max_input_chars_per_word,
                 "longer words become [UNK]: 200 as Google, 100 as Hugging Face and NVIDIA")
      ->check(number_in<int64_t>(1, 10000))
      ->capture_default_str();
  app.footer(
      "Invalid UTF-8 is dropped and counted on standard error. A SentencePiece model has rules of its own: --cased, "
      "--match-special-tokens and --max-input-chars-per-word do not apply to it.\n\n"
      "Example: echo 'Hello, world!' | bert tokenize --vocab vocab.txt --format tokens");
  if (!parse_command_line(app, argc, argv)) return kOk;
  config.do_lower_case = !cased;

  const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(vocab, config);
  const int64_t invalid = LineTokenizer(*tokenizer, format, special_tokens).run();
  if (invalid > 0) std::cerr << fmt::format("bert tokenize: dropped {} invalid UTF-8 sequences\n", invalid);
  return 0;
}

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
  app.add_option("--output", output, "the vocabulary: one token per line")->required();
  app.add_flag("--allow-fewer", config.allow_fewer, "fewer tokens when the text cannot give so many");
  app.add_flag("--allow-fewer-characters", config.allow_fewer_characters,
               "less coverage, by leaving out the rarest characters, where --size has no room for all");
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
  std::vector<std::unique_ptr<MappedFile>> files;  // all are opened before the first is read
  int64_t bytes = 0;
  for (const std::string& input : inputs) {
    files.push_back(std::make_unique<MappedFile>(input));
    check_is_plain_text(input, files.back()->view());
    bytes += files.back()->size();
  }
  AtomicFile file(output);  // a directory that cannot be written to is told at once
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
