#include "model/state_dict.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>

#include <algorithm>

#include "model/bert.h"
#include "tests/testing.h"

namespace bert {
namespace {

using testing::Contains;

const BertConfig kTiny{.vocab_size = 11,
                       .hidden_size = 8,
                       .num_hidden_layers = 1,
                       .num_attention_heads = 2,
                       .intermediate_size = 12,
                       .max_position_embeddings = 6};

std::vector<std::string> sorted_names(const torch::nn::Module& module) {
  std::vector<std::string> names = state_dict(module).keys();
  std::sort(names.begin(), names.end());
  return names;
}

// Names that save_pretrained of transformers 5.17.0 writes for one layer, below "bert.".
std::vector<std::string> encoder_names(const std::string& prefix) {
  std::vector<std::string> names;
  for (const char* name : {"embeddings.LayerNorm.bias",
                           "embeddings.LayerNorm.weight",
                           "embeddings.position_embeddings.weight",
                           "embeddings.token_type_embeddings.weight",
                           "embeddings.word_embeddings.weight",
                           "encoder.layer.0.attention.output.LayerNorm.bias",
                           "encoder.layer.0.attention.output.LayerNorm.weight",
                           "encoder.layer.0.attention.output.dense.bias",
                           "encoder.layer.0.attention.output.dense.weight",
                           "encoder.layer.0.attention.self.key.bias",
                           "encoder.layer.0.attention.self.key.weight",
                           "encoder.layer.0.attention.self.query.bias",
                           "encoder.layer.0.attention.self.query.weight",
                           "encoder.layer.0.attention.self.value.bias",
                           "encoder.layer.0.attention.self.value.weight",
                           "encoder.layer.0.intermediate.dense.bias",
                           "encoder.layer.0.intermediate.dense.weight",
                           "encoder.layer.0.output.LayerNorm.bias",
                           "encoder.layer.0.output.LayerNorm.weight",
                           "encoder.layer.0.output.dense.bias",
                           "encoder.layer.0.output.dense.weight"}) {
    names.push_back(prefix + name);
  }
  return names;
}

std::vector<std::string> names_with(const std::vector<std::string>& more) {
  std::vector<std::string> names = encoder_names("bert.");
  names.insert(names.end(), more.begin(), more.end());
  std::sort(names.begin(), names.end());
  return names;
}

TEST_CASE("Names are those that transformers saves", "[unit][model]") {
  CHECK(sorted_names(*BertForPreTraining(kTiny)) ==
        names_with({"bert.pooler.dense.bias", "bert.pooler.dense.weight", "cls.predictions.bias",
                    "cls.predictions.transform.LayerNorm.bias", "cls.predictions.transform.LayerNorm.weight",
                    "cls.predictions.transform.dense.bias", "cls.predictions.transform.dense.weight",
                    "cls.seq_relationship.bias", "cls.seq_relationship.weight"}));
  // BertForMaskedLM
  CHECK(sorted_names(*BertForPreTraining(kTiny, /*sentence_pair_head=*/false)) ==
        names_with({"cls.predictions.bias", "cls.predictions.transform.LayerNorm.bias",
                    "cls.predictions.transform.LayerNorm.weight", "cls.predictions.transform.dense.bias",
                    "cls.predictions.transform.dense.weight"}));
  CHECK(sorted_names(*BertForQuestionAnswering(kTiny)) == names_with({"qa_outputs.bias", "qa_outputs.weight"}));
  CHECK(sorted_names(*BertForTokenClassification(kTiny, 3)) == names_with({"classifier.bias", "classifier.weight"}));
  const std::vector<std::string> classifier =
      names_with({"bert.pooler.dense.bias", "bert.pooler.dense.weight", "classifier.bias", "classifier.weight"});
  CHECK(sorted_names(*BertForSequenceClassification(kTiny, 3)) == classifier);
  CHECK(sorted_names(*BertForMultipleChoice(kTiny)) == classifier);
  std::vector<std::string> base = encoder_names("");
  base.insert(base.end(), {"pooler.dense.bias", "pooler.dense.weight"});
  CHECK(sorted_names(*BertModel(kTiny)) == base);
}

struct Tied : torch::nn::Module {
  Tied() : weight(register_parameter("weight", at::full({2}, 1.0))) {
    register_parameter("again", weight);
    register_buffer("count", at::full({1}, 7.0));
  }
  torch::Tensor weight;
};

TEST_CASE("A tensor registered twice appears once, and shares its storage", "[unit][model]") {
  const Tied module;
  const StateDict dict = state_dict(module);
  CHECK(dict.keys() == std::vector<std::string>{"weight", "count"});
  CHECK(dict["weight"].is_same(module.weight));
}

TEST_CASE("load_state_dict copies, converts, and reports names", "[unit][model]") {
  BertModel from(kTiny), to(kTiny);
  init_weights(*from, kTiny, 1);
  init_weights(*to, kTiny, 2);
  StateDict source;
  for (const auto& item : state_dict(*from)) source.insert(item.key(), item.value().detach().to(torch::kDouble));
  const LoadReport report = load_state_dict(*to, source);
  CHECK(report.missing.empty());
  CHECK(report.unexpected.empty());
  for (const auto& item : state_dict(*from)) {
    CHECK(at::equal(item.value(), state_dict(*to)[item.key()]));
    CHECK(state_dict(*to)[item.key()].dtype() == torch::kFloat);
  }
}

TEST_CASE("load_state_dict refuses other names and shapes, and changes nothing then", "[unit][model]") {
  BertModel model(kTiny);
  init_weights(*model, kTiny, 1);
  StateDict source;
  for (const auto& item : state_dict(*model)) {
    if (item.key() != "pooler.dense.bias") source.insert(item.key(), at::full(item.value().sizes(), 5.0));
  }
  source.insert("decoder.weight", at::full({1}, 5.0));
  CHECK_THROWS_WITH(load_state_dict(*model, source),
                    Contains("missing (1):\n  pooler.dense.bias") && Contains("unexpected (1):\n  decoder.weight"));
  CHECK(state_dict(*model)["pooler.dense.weight"].max().item<double>() < 1.0);
  const LoadReport report = load_state_dict(*model, source, /*strict=*/false);
  CHECK(report.missing == std::vector<std::string>{"pooler.dense.bias"});
  CHECK(report.unexpected == std::vector<std::string>{"decoder.weight"});
  CHECK(state_dict(*model)["pooler.dense.weight"].min().item<double>() == 5.0);

  StateDict wrong;
  wrong.insert("embeddings.word_embeddings.weight", at::full({12, 8}, 6.0));
  wrong.insert("pooler.dense.bias", at::full({8}, 6.0));
  CHECK_THROWS_WITH(load_state_dict(*model, wrong, /*strict=*/false),
                    Contains("embeddings.word_embeddings.weight: expected [11, 8], got [12, 8]"));
  CHECK(state_dict(*model)["pooler.dense.bias"].max().item<double>() < 6.0);
}

}  // namespace
}  // namespace bert
