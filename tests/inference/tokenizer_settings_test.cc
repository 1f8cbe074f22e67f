// The tokenizer's settings in the config.json of an export.
#include "app/inference/tokenizer_settings.h"

#include <nlohmann/json.hpp>

#include "data/io/error.h"
#include "tests/testing.h"

namespace bert {
namespace {

using testing::Contains;

TEST_CASE("An export's config.json has the tokenizer's settings after the model's, and gives them back", "[unit]") {
  nlohmann::ordered_json object = {{"model_type", "bert"}};
  write_tokenizer_settings({.do_lower_case = false, .max_input_chars_per_word = 100, .match_special_tokens = true},
                           object);
  CHECK(object.dump() == R"({"model_type":"bert","do_lower_case":false,"max_input_chars_per_word":100})");
  const TokenizerConfig settings = read_tokenizer_settings(nlohmann::json::parse(object.dump()), "config.json");
  CHECK_FALSE(settings.do_lower_case);
  CHECK(settings.max_input_chars_per_word == 100);
}

TEST_CASE("A setting that an export lacks keeps its default, and one of another type is refused", "[unit]") {
  const TokenizerConfig defaults, settings = read_tokenizer_settings(nlohmann::json::object(), "config.json");
  CHECK(settings.do_lower_case == defaults.do_lower_case);
  CHECK(settings.max_input_chars_per_word == defaults.max_input_chars_per_word);
  CHECK_THROWS_AS(read_tokenizer_settings({{"do_lower_case", 1}}, "config.json"), DataError);
  CHECK_THROWS_WITH(read_tokenizer_settings({{"do_lower_case", 1}}, "config.json"),
                    Contains("config.json: \"do_lower_case\": want boolean, got number"));
}

}  // namespace
}  // namespace bert
