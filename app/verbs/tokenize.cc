#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "app/cli/command_line.h"
#include "app/interop/open_tokenizer.h"
#include "app/system/exit_codes.h"
#include "app/verbs/tokenizer_options.h"
#include "app/verbs/verbs.h"
#include "data/io/error.h"
#include "data/text/text_input.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/vocabulary_warnings.h"

namespace bert {
namespace {

constexpr size_t kBufferBytes = 1 << 20;

/// Calls handle(line) for each line of standard input, without the line feed. Holds the longest line in memory.
template <class Handle>
void for_each_input_line(Handle&& handle) {
  std::string buffer(2 * kBufferBytes, '\0');
  size_t begin = 0, end = 0;  // bytes of `buffer` that are read but not handled yet
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

/// Buffers standard output and writes it in large parts. Call flush() at the end.
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

/// A JSON array with [token, first character, one past the last character] for each token.
std::string offsets_line(const Tokenizer& tokenizer, std::string_view line, const Encoding& encoding) {
  const std::vector<TextSpan> characters = character_spans(line, encoding.spans);
  nlohmann::json array = nlohmann::json::array();
  for (size_t i = 0; i < encoding.ids.size(); ++i) {
    array.push_back({tokenizer.vocabulary().token(encoding.ids[i]), characters[i].begin, characters[i].end});
  }
  return array.dump();
}

/// Tokenizes standard input to standard output, line by line. run() returns the number of invalid UTF-8 sequences.
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
  /// Adds [CLS] before and [SEP] after the tokens, with empty spans.
  void frame(Encoding& encoding, int64_t end) const {
    encoding.ids.insert(encoding.ids.begin(), tokenizer_.vocabulary().cls_id());
    encoding.ids.push_back(tokenizer_.vocabulary().sep_id());
    encoding.spans.insert(encoding.spans.begin(), TextSpan{0, 0});
    encoding.spans.push_back({end, end});
  }

  const Tokenizer& tokenizer_;
  const bool offsets_, special_tokens_;
  std::vector<std::string> printed_;  // text of each id in the output, with a space after it
  std::vector<int32_t> ids_;
};

}  // namespace

int tokenize_command(int argc, char** argv) {
  std::string vocab, format = "ids";
  bool special_tokens = false;
  TokenizerConfig config;
  CLI::App app{"Tokenizes each line of standard input to a line of standard output.", "bert tokenize"};
  app.add_option("--vocab", vocab, kTokenizerFiles)->required();
  add_tokenizer_options(app, config, "keep case and accents; for a cased vocabulary");
  app.add_option("--format", format,
                 "ids: numbers separated by spaces; tokens: text separated by spaces;\n"
                 "offsets: a JSON array of [token, begin, end] per line, in characters (code points) of the line, end "
                 "excluded")
      ->check(CLI::IsMember({"ids", "tokens", "offsets"}))
      ->capture_default_str();
  app.add_flag("--special-tokens", special_tokens, "[CLS] before each line, [SEP] after it");
  app.add_flag("--match-special-tokens", config.match_special_tokens,
               "a special token such as [MASK] in the text is that token, as in Hugging Face");
  app.add_option("--max-input-chars-per-word", config.max_input_chars_per_word,
                 "longer words become [UNK]: 200 as Google, 100 as Hugging Face and NVIDIA")
      ->check(number_in<int64_t>(1, 10000))
      ->capture_default_str();
  app.footer(
      "Invalid UTF-8 is dropped; standard error has its count. --cased, --strip-accents, --tokenize-chinese-chars, "
      "--match-special-tokens and --max-input-chars-per-word do not apply to a SentencePiece model, which has its own "
      "rules inside.\n\n"
      "Example: echo 'Hello, world!' | bert tokenize --vocab vocab.txt --format tokens");
  if (!parse_command_line(app, argc, argv)) return kOk;

  const std::unique_ptr<Tokenizer> tokenizer = open_tokenizer(vocab, config);
  for (const std::string& warning : vocabulary_warnings(*tokenizer, vocab))
    say_in("bert tokenize")("warning: " + warning);
  const int64_t invalid = LineTokenizer(*tokenizer, format, special_tokens).run();
  if (invalid > 0) std::cerr << fmt::format("bert tokenize: dropped {} invalid UTF-8 sequences\n", invalid);
  return 0;
}

}  // namespace bert
