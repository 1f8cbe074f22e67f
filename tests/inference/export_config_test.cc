// The config.json of an export.
#include "app/inference/export_config.h"

#include "data/io/error.h"
#include "tests/testing.h"

namespace bert {
namespace {

using testing::Contains;

TEST_CASE("An export's config.json has the model's sizes and the tokenizer's settings, and gives them back", "[unit]") {
  const ModelDescription written = {.config = {.vocab_size = 10,
                                               .hidden_act = Activation::kGelu,
                                               .hidden_dropout_prob = 0.25,
                                               .layer_norm_eps = 1e-6},
                                    .objective = Objective::kMlm,
                                    .tokenizer = {.do_lower_case = false,
                                                  .strip_accents = true,
                                                  .tokenize_chinese_chars = false,
                                                  .max_input_chars_per_word = 100,
                                                  .match_special_tokens = true}};
  const std::string text = write_export_config(written, "");
  CHECK_THAT(text, Contains("{\n  \"vocab_size\": 10,\n  \"hidden_size\": 768,\n"));
  CHECK_THAT(text, Contains("\"hidden_act\": \"gelu\""));
  CHECK_THAT(text, Contains("\"model_type\": \"bert\""));
  CHECK_THAT(text,
             Contains("\"architectures\": [\n    \"BertForMaskedLM\"\n  ]") && Contains("\"objective\": \"mlm\""));
  CHECK_THAT(text, Contains("  \"do_lower_case\": false,\n  \"strip_accents\": true,\n  "
                            "\"tokenize_chinese_chars\": false,\n  \"max_input_chars_per_word\": 100\n}\n"));
  const ModelDescription read = read_export_config(text, "config.json").model;
  CHECK(write_export_config(read, "") == text);
  CHECK(read.config.layer_norm_eps == 1e-6);
  CHECK_FALSE(read.tokenizer.do_lower_case);
  CHECK(read.tokenizer.strip_accents == true);
  CHECK_FALSE(read.tokenizer.tokenize_chinese_chars);
  CHECK(read.objective == Objective::kMlm);
  CHECK_THAT(write_export_config({.objective = Objective::kSop}, ""), Contains("\"BertForPreTraining\""));
  CHECK_THAT(write_export_config({.task = "ner"}, ""),
             Contains("\"architectures\": [\n    \"BertForTokenClassification\"\n  ]"));
  const std::string encoder = write_export_config({.masked_token_head = false}, "");
  CHECK_THAT(encoder, Contains("\"architectures\": [\n    \"BertModel\"\n  ]"));
  CHECK(write_export_config(read_export_config(encoder, "config.json").model, "") == encoder);
  CHECK_THROWS_WITH(read_export_config(R"({"architectures": ["A", "B"]})", "config.json"),
                    Contains("config.json: \"architectures\": want one name, got [\"A\",\"B\"]"));
}

TEST_CASE("An export of a classifier has its labels, the longest input and the vocabulary's hash", "[unit]") {
  const std::vector<std::string> labels = {"negative", "neutral", "positive"};
  const std::string text = write_export_config({.labels = labels}, "ab12");
  // As transformers writes them.
  CHECK_THAT(
      text,
      Contains("\"id2label\": {\n    \"0\": \"negative\",\n    \"1\": \"neutral\",\n    \"2\": \"positive\"\n  }"));
  CHECK_THAT(text, Contains("\"label2id\": {\n    \"negative\": 0,\n    \"neutral\": 1,\n    \"positive\": 2\n  }"));
  const ExportConfig read = read_export_config(text, "config.json");
  CHECK(read.model.labels == labels);
  CHECK(read.vocabulary_hash == "ab12");
  CHECK_THAT(write_export_config({}, ""), Contains("\"model_max_length\": 512") && !Contains("id2label"));
  CHECK_THROWS_WITH(read_export_config(R"({"id2label": {"0": "a", "2": "b"}})", "config.json"),
                    Contains("config.json: \"id2label\": want the ids from 0 to 1, 1 is missing"));
  CHECK_FALSE(read.model.task_data);
  CHECK_THROWS_WITH(read_export_config(R"({"id2label": ["a"]})", "config.json"), Contains("\"id2label\": want object"));
}

TEST_CASE("A key that an export lacks keeps its default, and a value of another type is refused", "[unit]") {
  CHECK(write_export_config(read_export_config("{}", "config.json").model, "") == write_export_config({}, ""));
  CHECK_FALSE(
      read_export_config(R"({"strip_accents": null})", "config.json").model.tokenizer.strip_accents.has_value());
  CHECK_THROWS_WITH(read_export_config(R"({"do_lower_case": 1})", "config.json"),
                    Contains("config.json: \"do_lower_case\": want boolean, got number"));
  CHECK_THROWS_WITH(read_export_config(R"({"layer_norm_eps": "1"})", "config.json"),
                    Contains("config.json: \"layer_norm_eps\": want a number, got string"));
  CHECK_THROWS_WITH(read_export_config(R"({"objective": "rtd"})", "config.json"),
                    Contains("config.json: \"objective\": want nsp, mlm or sop, got rtd"));
  CHECK_THROWS_AS(read_export_config("[]", "config.json"), DataError);
}

TEST_CASE("An export of a fine-tuned model has the settings with which its run read texts", "[unit]") {
  ModelDescription written;
  written.task = "squad-v2";
  written.task_data.emplace();
  written.task_data->max_seq_length = 48;
  written.task_data->null_score_diff_threshold = -1.0 / 3;
  written.task_data->text_column = "body";
  const std::string text = write_export_config(written, "");
  const ModelDescription read = read_export_config(text, "config.json").model;
  REQUIRE(read.task_data);
  CHECK(read.task_data->max_seq_length == 48);
  CHECK(read.task_data->null_score_diff_threshold == -1.0 / 3);
  CHECK(read.task_data->text_column == "body");
  CHECK(write_export_config(read, "") == text);
  CHECK_THROWS_WITH(read_export_config(R"({"task_data": {"doc_stride": 0}})", "config.json"),
                    Contains("config.json: \"task_data\": \"doc_stride\": 0 is out of range"));
  CHECK_THROWS_WITH(read_export_config(R"({"task_data": {"doc_stride": "8"}})", "config.json"),
                    Contains("\"doc_stride\""));
}

}  // namespace
}  // namespace bert
