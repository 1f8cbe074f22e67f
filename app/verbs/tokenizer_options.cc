#include "app/verbs/tokenizer_options.h"

#include <string>

namespace bert {

void add_tokenizer_options(CLI::App& app, TokenizerConfig& config, const char* cased) {
  app.add_flag_callback(
      "--cased", [&config] { config.do_lower_case = false; }, cased);
  app.add_flag_function(
      "--strip-accents", [&config](int64_t count) { config.strip_accents = count > 0; },
      "strip accents also with --cased; --strip-accents=false keeps accents in lower case");
  app.add_flag(
      "--tokenize-chinese-chars", config.tokenize_chinese_chars,
      "an ideograph is a word; --tokenize-chinese-chars=false: a letter of a word (some Japanese vocabularies)");
}

}  // namespace bert
