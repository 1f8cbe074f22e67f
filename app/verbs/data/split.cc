#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <string>
#include <string_view>

#include "app/cli/command_line.h"
#include "app/cli/standard_input.h"
#include "app/system/exit_codes.h"
#include "app/verbs/data/actions.h"
#include "app/verbs/text_options.h"
#include "data/text/sentence_splitter.h"
#include "data/text/text_input.h"
#include "data/text/unicode.h"

namespace bert {

int data_split(int argc, char** argv) {
  CLI::App app(
      "Splits prose on standard input into sentences: one per line on standard output, an empty line after each "
      "document.\n"
      "Example: bert data split <book.txt >sentences.txt",
      "bert data split");
  std::string language;
  add_language_option(app, language);
  if (!parse_command_line(app, argc, argv)) return kOk;
  std::string text = read_standard_input([](std::string_view start) { check_is_plain_text("standard input", start); });
  check_share_of_invalid("standard input", text, count_invalid_utf8(text));
  const int64_t invalid = drop_invalid_utf8(text);
  if (invalid > 0) fmt::print(stderr, "bert data split: dropped {} invalid UTF-8 sequences\n", invalid);
  split_prose(
      text, [](std::string_view line) { std::cout << line << '\n'; }, language);
  return kOk;
}

}  // namespace bert
