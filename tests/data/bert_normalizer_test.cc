// The words of texts with every combination of lower case, strip_accents and tokenize_chinese_chars.
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/io/files.h"
#include "data/tokenizer/tokenizer.h"
#include "tests/testing.h"

namespace bert {
namespace {

using nlohmann::json;

const json& golden_data() {
  static const json data = json::parse(read_file(testing::golden("bert_normalizer.json")));
  return data;
}

TokenizerConfig config_of(const json& options) {
  TokenizerConfig config{.do_lower_case = options.at("lowercase"),
                         .tokenize_chinese_chars = options.at("handle_chinese_chars")};
  if (const json& strip = options.at("strip_accents"); !strip.is_null()) config.strip_accents = strip.get<bool>();
  return config;
}

/// The words of `text`, and the first and the last character of each, the latter excluded, as the golden has them.
json words_of(const BasicTokenizer& tokenizer, const std::string& text) {
  json words = json::array(), places = json::array();
  std::vector<TextSpan> spans;
  tokenizer.for_each_word<true>(text, [&](const Word& word) {
    words.push_back(std::string(word.text));
    spans.push_back(word.span);
  });
  for (const TextSpan& span : character_spans(text, spans)) {
    places.push_back(span.begin);
    places.push_back(span.end);
  }
  return {words, places};
}

/// Number of texts with other words or places than the golden has for them.
int64_t differences(const TokenizerConfig& config, const json& wanted) {
  const BasicTokenizer tokenizer(config);
  int64_t different = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (words_of(tokenizer, golden_data().at("texts").at(i)) != wanted[i]) ++different;
  }
  return different;
}

TEST_CASE("Words equal those of BertNormalizer in every combination of its options", "[golden][tokenizer]") {
  for (const json& options : golden_data().at("cases")) {
    const TokenizerConfig config = config_of(options);
    const BasicTokenizer tokenizer(config);
    INFO("lowercase " << options["lowercase"] << ", strip_accents " << options["strip_accents"]
                      << ", handle_chinese_chars " << options["handle_chinese_chars"]);
    const json& wanted = options.at("words");
    for (size_t i = 0; i < wanted.size(); ++i) {
      const std::string text = golden_data().at("texts").at(i);
      INFO("text " << i << ": " << text);
      CHECK(words_of(tokenizer, text) == wanted[i]);
    }
    // The twins: one option differs.
    TokenizerConfig twin = config;
    twin.do_lower_case = !twin.do_lower_case;
    CHECK(differences(twin, wanted) > 0);
    twin = config;
    twin.strip_accents = !config.strips_accents();
    CHECK(differences(twin, wanted) > 0);
    twin = config;
    twin.tokenize_chinese_chars = !twin.tokenize_chinese_chars;
    CHECK(differences(twin, wanted) > 0);
  }
}

TEST_CASE("The context of a capital sigma ends at no ideograph that is a letter", "[unit][tokenizer]") {
  const auto words = [](const TokenizerConfig& config, const std::string& text) {
    return words_of(BasicTokenizer(config), text)[0];
  };
  // Python's str.lower has the final sigma: no cased letter follows, and the ideograph is none.
  const std::string text = "\u0391\u03A3\u4E2D\u0391\u0301\u03A3";
  CHECK(words({}, text) == json{"\u03B1\u03C2", "\u4E2D", "\u03B1\u03C2"});
  CHECK(words({.tokenize_chinese_chars = false}, text) == json{"\u03B1\u03C2\u4E2D\u03B1\u03C2"});
  CHECK(words({.strip_accents = false}, text) == json{"\u03B1\u03C2", "\u4E2D", "\u03B1\u0301\u03C2"});
  CHECK(words({.do_lower_case = false, .strip_accents = true}, text) == json{"\u0391\u03A3", "\u4E2D", "\u0391\u03A3"});
  // The Greek question mark decomposes to a semicolon, which splits words.
  CHECK(words({.do_lower_case = false, .strip_accents = true}, "A\u037EB") == json{"A", ";", "B"});
  CHECK(words({.strip_accents = false}, "A\u037EB") == json{"a", "\u037E", "b"});
}

}  // namespace
}  // namespace bert
