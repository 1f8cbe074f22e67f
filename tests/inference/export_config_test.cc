// The config.json of an export.
#include "app/inference/export_config.h"

#include "data/io/error.h"
#include "tests/testing.h"

namespace bert {
namespace {

using testing::Contains;

TEST_CASE("An export's config.json has the model's sizes and the tokenizer's settings, and gives them back", "[unit]") {
  const ExportConfig written = {
      .model = {.vocab_size = 10, .hidden_act = "gelu", .hidden_dropout_prob = 0.25, .layer_norm_eps = 1e-6},
      .tokenizer = {.do_lower_case = false, .max_input_chars_per_word = 100, .match_special_tokens = true},
      .objective = Objective::kMlm};
  const std::string text = write_export_config(written);
  CHECK_THAT(text, Contains("{\n  \"vocab_size\": 10,\n  \"hidden_size\": 768,\n"));
  CHECK_THAT(text, Contains("\"hidden_act\": \"gelu\""));
  CHECK_THAT(text, Contains("\"model_type\": \"bert\""));
  CHECK_THAT(text,
             Contains("\"architectures\": [\n    \"BertForMaskedLM\"\n  ]") && Contains("\"objective\": \"mlm\""));
  CHECK_THAT(text, Contains("  \"do_lower_case\": false,\n  \"max_input_chars_per_word\": 100\n}\n"));
  const ExportConfig read = read_export_config(text, "config.json");
  CHECK(write_export_config(read) == text);
  CHECK(read.model.layer_norm_eps == 1e-6);
  CHECK_FALSE(read.tokenizer.do_lower_case);
  CHECK(read.objective == Objective::kMlm);
  CHECK_THAT(write_export_config({.model = {}, .tokenizer = {}, .objective = Objective::kSop}),
             Contains("\"BertForPreTraining\""));
}

TEST_CASE("A key that an export lacks keeps its default, and a value of another type is refused", "[unit]") {
  CHECK(write_export_config(read_export_config("{}", "config.json")) == write_export_config({}));
  CHECK_THROWS_WITH(read_export_config(R"({"do_lower_case": 1})", "config.json"),
                    Contains("config.json: \"do_lower_case\": want boolean, got number"));
  CHECK_THROWS_WITH(read_export_config(R"({"layer_norm_eps": "1"})", "config.json"),
                    Contains("config.json: \"layer_norm_eps\": want a number, got string"));
  CHECK_THROWS_WITH(read_export_config(R"({"objective": "rtd"})", "config.json"),
                    Contains("config.json: \"objective\": want nsp, mlm or sop, got rtd"));
  CHECK_THROWS_AS(read_export_config("[]", "config.json"), DataError);
}

}  // namespace
}  // namespace bert
