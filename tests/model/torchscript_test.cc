#include "model/torchscript.h"

#include <ATen/ops/equal.h>

#include <algorithm>
#include <sstream>

#include "tests/support/bert_golden.h"
#include "tests/support/torchscript_file.h"
#include "tests/testing.h"

namespace bert {
namespace {

using testing::BertGolden;
using testing::Contains;
using testing::load_torchscript;
using testing::mismatch;

std::vector<torch::Tensor> run(torch::jit::Module& model, const BertGolden& golden) {
  std::vector<torch::Tensor> outputs;
  const auto tuple = model.forward({golden.input_ids, golden.token_type_ids, golden.attention_mask}).toTuple();
  for (const c10::IValue& value : tuple->elements()) outputs.push_back(value.toTensor());
  return outputs;
}

torch::jit::Module round_trip(const torch::jit::Module& model, ExtraFiles extra_files, ExtraFiles& read) {
  std::string bytes;
  save_torchscript(model, extra_files, [&](const void* data, size_t size) {
    bytes.append(static_cast<const char*>(data), size);
    return size;
  });
  std::istringstream in(bytes);
  return load_torchscript(in, read);
}

/// Outputs of a `model` with golden weights that was exported and loaded.
template <class Model>
std::vector<torch::Tensor> exported(const BertGolden& golden, Model model, const std::string& head = "") {
  golden.load(*model, head);
  ExtraFiles none;
  torch::jit::Module loaded = round_trip(export_torchscript(*model), {}, none);
  return run(loaded, golden);
}

TEST_CASE("An export of BertForPreTraining loads and equals Hugging Face", "[golden][model]") {
  const BertGolden golden;
  const torch::Tensor real = golden.attention_mask.to(torch::kBool);
  for (const char* act : {"gelu_new", "gelu"}) {
    const auto got = exported(golden, BertForPreTraining(golden.config(act)));
    REQUIRE(got.size() == 2);
    CHECK(got[0].sizes() == torch::IntArrayRef{4, 9, 29});
    CHECK(BertGolden::mismatch(got[0].index({real}), golden.want(act).at("mlm_logits")) == "");
    CHECK(BertGolden::mismatch(got[1], golden.want(act).at("nsp_logits")) == "");
  }
}

TEST_CASE("An export without the sentence-pair head has the logits of the masked tokens alone", "[golden][model]") {
  const BertGolden golden;
  const auto got = exported(golden, BertForPreTraining(golden.config(), /*sentence_pair_head=*/false));
  REQUIRE(got.size() == 1);
  const torch::Tensor real = golden.attention_mask.to(torch::kBool);
  CHECK(BertGolden::mismatch(got[0].index({real}), golden.want("gelu_new").at("mlm_logits")) == "");
}

TEST_CASE("Exports of the other models have the shapes and values of theirs", "[golden][model]") {
  const BertGolden golden;
  const BertConfig config = golden.config();
  const nlohmann::json& want = golden.want("gelu_new");
  const torch::Tensor real = golden.attention_mask.to(torch::kBool);

  const auto span = exported(golden, BertForQuestionAnswering(config), "BertForQuestionAnswering");
  REQUIRE(span.size() == 2);
  CHECK(span[0].sizes() == torch::IntArrayRef{4, 9});
  CHECK(BertGolden::mismatch(at::cat({span[0].index({real}), span[1].index({real})}),
                             want.at("BertForQuestionAnswering")) == "");

  const auto sequence = exported(golden, BertForSequenceClassification(config, 3), "BertForSequenceClassification");
  REQUIRE(sequence.size() == 1);
  CHECK(sequence[0].sizes() == torch::IntArrayRef{4, 3});
  CHECK(BertGolden::mismatch(sequence[0], want.at("BertForSequenceClassification")) == "");

  const auto tokens = exported(golden, BertForTokenClassification(config, 3), "BertForTokenClassification");
  REQUIRE(tokens.size() == 1);
  CHECK(tokens[0].sizes() == torch::IntArrayRef{4, 9, 3});
  CHECK(BertGolden::mismatch(tokens[0].index({real}), want.at("BertForTokenClassification")) == "");

  const auto choices = exported(golden, BertForMultipleChoice(config), "BertForMultipleChoice");
  REQUIRE(choices.size() == 1);
  CHECK(choices[0].sizes() == torch::IntArrayRef{4, 1});
  CHECK(BertGolden::mismatch(choices[0], want.at("BertForMultipleChoice")) == "");

  BertForPreTraining model(config);
  golden.load(*model);
  BertForQuestionAnswering span_model(config);
  golden.load(*span_model, "BertForQuestionAnswering");
  const BertModelOutput features = model->bert->forward(golden.input_ids, golden.token_type_ids, golden.attention_mask);
  torch::jit::Module script = export_torchscript(*model->bert);
  const auto got = run(script, golden);
  REQUIRE(got.size() == 2);
  CHECK(mismatch(got[0].index({real}), features.last_hidden_state.index({real})) == "");
  CHECK(mismatch(got[1], features.pooler_output) == "");
  torch::jit::Module without_pooler = export_torchscript(*span_model->bert);
  const auto states = run(without_pooler, golden);
  REQUIRE(states.size() == 1);
  CHECK(mismatch(states[0].index({real}),
                 span_model->bert->forward(golden.input_ids, golden.token_type_ids, golden.attention_mask)
                     .last_hidden_state.index({real})) == "");
}

TEST_CASE("The exports' golden notices another eps and the other GELU", "[golden][model]") {
  const BertGolden golden;
  const torch::Tensor real = golden.attention_mask.to(torch::kBool);
  BertConfig eps = golden.config();
  eps.layer_norm_eps = 1e-5;
  for (const BertConfig& other : {eps, golden.config("gelu")}) {
    const nlohmann::json& want = golden.want("gelu_new");
    const auto pretraining = exported(golden, BertForPreTraining(other));
    CHECK(BertGolden::mismatch(pretraining[0].index({real}), want.at("mlm_logits")) != "");
    const auto tokens = exported(golden, BertForTokenClassification(other, 3), "BertForTokenClassification");
    CHECK(BertGolden::mismatch(tokens[0].index({real}), want.at("BertForTokenClassification")) != "");
  }
}

TEST_CASE("An export has the state dict's names, ATen operators only, and carries files", "[unit][model]") {
  const BertGolden golden;
  BertForPreTraining model(golden.config());
  golden.load(*model);
  model->train();
  const torch::jit::Module script = export_torchscript(*model);
  CHECK(model->is_training());

  ExtraFiles read = {{"vocab.txt", ""}, {"absent", "as it was"}};
  const torch::jit::Module loaded = round_trip(script, {{"vocab.txt", "[PAD]\n[UNK]\n"}, {"config.json", "{}"}}, read);
  CHECK(read == ExtraFiles{{"vocab.txt", "[PAD]\n[UNK]\n"}, {"absent", "as it was"}});

  const StateDict want = state_dict(*model);
  std::vector<std::string> names;
  for (const auto& item : loaded.named_parameters()) {
    names.push_back(item.name);
    CHECK(at::equal(item.value, want[item.name]));
  }
  std::vector<std::string> want_names = want.keys();
  std::sort(names.begin(), names.end());
  std::sort(want_names.begin(), want_names.end());
  CHECK(names == want_names);
  CHECK(loaded.attr("training").toBool() == false);
  CHECK(loaded.get_method("forward").graph()->toString().find("bert::") == std::string::npos);
  std::vector<std::string> arguments;
  for (const c10::Argument& argument : loaded.get_method("forward").function().getSchema().arguments()) {
    arguments.push_back(argument.name());
  }
  CHECK(arguments == std::vector<std::string>{"self", "input_ids", "token_type_ids", "attention_mask"});
}

TEST_CASE("An export with plain attention has the same logits, and no operator of PyTorch 2", "[golden][model]") {
  const BertGolden golden;
  BertForPreTraining model(golden.config());
  golden.load(*model);
  const torch::Tensor real = golden.attention_mask.to(torch::kBool);
  const auto operators = [](const torch::jit::Module& script) {
    return script.get_method("forward").graph()->toString();
  };
  const std::string fused = "aten::scaled_dot_product_attention";
  CHECK(operators(export_torchscript(*model)).find(fused) != std::string::npos);
  for (const auto dtype : {torch::kFloat, torch::kHalf}) {
    torch::jit::Module script = export_torchscript(*model, dtype, ExportedAttention::kPlain);
    CHECK(operators(script).find(fused) == std::string::npos);
    if (dtype != torch::kFloat) continue;
    ExtraFiles none;
    torch::jit::Module loaded = round_trip(script, {}, none);
    const auto got = run(loaded, golden);
    CHECK(BertGolden::mismatch(got[0].index({real}), golden.want("gelu_new").at("mlm_logits")) == "");
    CHECK(BertGolden::mismatch(got[1], golden.want("gelu_new").at("nsp_logits")) == "");
  }
}

TEST_CASE("Exports in fp16 and bf16 compute in it and return fp32", "[unit][model]") {
  const BertGolden golden;
  BertForPreTraining model(golden.config());
  golden.load(*model);
  const torch::Tensor real = golden.attention_mask.to(torch::kBool);
  const nlohmann::json& want = golden.want("gelu_new").at("mlm_logits");
  for (const auto dtype : {torch::kHalf, torch::kBFloat16}) {
    torch::jit::Module script = export_torchscript(*model, dtype);
    for (const torch::Tensor& parameter : script.parameters()) CHECK(parameter.dtype() == dtype);
    const auto got = run(script, golden);
    CHECK(got[0].dtype() == torch::kFloat);
    const torch::Tensor logits = got[0].index({real}).flatten();
    const double roundings = 3.0;  // the table is for one operator; here operators of two layers follow one another
    CHECK(mismatch(logits.to(dtype), BertGolden::numbers(want), roundings) == "");
    CHECK(BertGolden::mismatch(logits, want) != "");
  }
  CHECK(model->parameters().front().dtype() == torch::kFloat);
}

TEST_CASE("What cannot be exported is refused", "[unit][model]") {
  const BertGolden golden;
  BertForQuestionAnswering model(golden.config());
  golden.load(*model, "BertForQuestionAnswering");
  CHECK_THROWS_WITH(export_torchscript(*model->bert->embeddings),
                    Contains("BertEmbeddingsImpl is not exported; give a BertModel or one of"));
  CHECK_THROWS_WITH(export_torchscript(*model, torch::kDouble), Contains("dtype must be fp32, fp16 or bf16"));
  model->to(torch::kDouble);
  CHECK_THROWS_WITH(export_torchscript(*model), Contains("the module must have fp32 parameters"));
}

}  // namespace
}  // namespace bert
