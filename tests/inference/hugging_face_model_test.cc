// Model directories of transformers that this program answers from, against transformers' answers.
#include <torch/script.h>
#include <torch/types.h>

#include <filesystem>
#include <fstream>

#include "app/checkpoint/checkpoint.h"
#include "app/inference/predictor.h"
#include "app/interop/bert_parameters.h"
#include "app/verbs/verbs.h"
#include "data/io/error.h"
#include "model/bert.h"
#include "model/state_dict.h"
#include "tests/support/command_testing.h"
#include "tests/support/hf_golden.h"
#include "tests/support/mismatch.h"
#include "tests/support/random_checkpoint.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::Contains;
using bert::testing::hf_directory;
using bert::testing::hf_golden;
using bert::testing::kFloat;
using bert::testing::mismatch;
using bert::testing::run_command;
using bert::testing::TemporaryDirectory;

namespace {

torch::Tensor tensor_of(const nlohmann::json& values) {
  return torch::tensor(values.get<std::vector<double>>(), torch::kDouble).to(torch::kFloat);
}

torch::Tensor ids_of(const nlohmann::json& rows) {
  std::vector<torch::Tensor> tensors;
  for (const nlohmann::json& row : rows) tensors.push_back(torch::tensor(row.get<std::vector<int64_t>>()));
  return torch::stack(tensors);
}

struct Inputs {
  nlohmann::json golden = hf_golden();
  torch::Tensor ids = ids_of(golden["input_ids"]), types = ids_of(golden["token_type_ids"]),
                mask = ids.ne(0).to(torch::kLong);

  [[nodiscard]] torch::Tensor real(const torch::Tensor& padded) const {
    return padded.index({mask.to(torch::kBool)}).flatten();
  }
};

}  // namespace

TEST_CASE("The parameters are those of BertForPreTraining", "[unit][interop]") {
  const BertConfig config{.vocab_size = 10,
                          .hidden_size = 4,
                          .num_hidden_layers = 2,
                          .num_attention_heads = 2,
                          .intermediate_size = 8,
                          .max_position_embeddings = 6,
                          .type_vocab_size = 3};
  BertForPreTraining model(config);
  const StateDict want = state_dict(*model);
  const std::vector<BertParameter> parameters = bert_parameters(config);
  CHECK(parameters.size() == want.size());
  for (const BertParameter& parameter : parameters) {
    INFO(parameter.name);
    REQUIRE(want.contains(parameter.name));
    CHECK(want[parameter.name].sizes() == torch::IntArrayRef(parameter.shape));
  }
}

TEST_CASE("A model of transformers gives its logits here, and exported", "[golden][interop]") {
  const TemporaryDirectory directory;
  const Inputs inputs;
  const std::string path = hf_directory(directory);
  std::string notes;
  const Pretrained pretrained =
      load_pretrained(path, WeightsKind::kAveraged, [&](const std::string& note) { notes += note; });
  CHECK(notes.empty());
  BertForPreTraining model(pretrained.model.config);
  load_state_dict(*model, pretrained.weights);
  model->eval();
  const torch::NoGradGuard no_grad;
  const PretrainingOutput output = model->forward(inputs.ids, inputs.types, inputs.mask);
  const torch::Tensor want_mlm = tensor_of(inputs.golden["prediction_logits"]),
                      want_nsp = tensor_of(inputs.golden["seq_relationship_logits"]);
  CHECK(mismatch(inputs.real(output.mlm_logits), want_mlm, kFloat) == "");
  CHECK(mismatch(output.nsp_logits.flatten(), want_nsp, kFloat) == "");
  // The negative twin: the other form of GELU is another model.
  BertConfig other = pretrained.model.config;
  other.hidden_act = Activation::kGeluNew;
  BertForPreTraining twin(other);
  load_state_dict(*twin, pretrained.weights);
  twin->eval();
  CHECK(mismatch(inputs.real(twin->forward(inputs.ids, inputs.types, inputs.mask).mlm_logits), want_mlm, kFloat) != "");

  const std::string script = directory.path("bert.pt");
  REQUIRE(bert::testing::run_export(path, script) == 0);
  torch::jit::Module traced = torch::jit::load(script);
  traced.eval();
  const auto logits = traced.forward({inputs.ids, inputs.types, inputs.mask}).toTuple();
  CHECK(mismatch(inputs.real(logits->elements()[0].toTensor()), want_mlm, kFloat) == "");
  CHECK(mismatch(logits->elements()[1].toTensor().flatten(), want_nsp, kFloat) == "");
  CHECK(Predictor(script).fill_mask("the [MASK] sat.", 3).masks[0][0].token_str ==
        Predictor(path).fill_mask("the [MASK] sat.", 3).masks[0][0].token_str);
}

TEST_CASE("A model with another vocabulary gives the logits of transformers with the same rows",
          "[golden][interop][vocabulary]") {
  const TemporaryDirectory directory;
  const nlohmann::json want = nlohmann::json::parse(std::ifstream(bert::testing::golden("vocabulary_change.json")));
  const std::string vocab = directory.path("v.txt"), output = directory.path("output");
  std::ofstream lines(vocab);
  for (const nlohmann::json& token : want["tokens"]) lines << token.get<std::string>() << "\n";
  lines.close();
  REQUIRE(run_command(convert_command, {"convert", "--from", "huggingface", "--input", hf_directory(directory),
                                        "--output", output, "--vocab", vocab})
              .code == 0);
  const Pretrained pretrained = load_pretrained(output);
  BertForPreTraining model(pretrained.model.config);
  load_state_dict(*model, pretrained.weights);
  model->eval();
  std::vector<int32_t> text = pretrained.tokenizer->encode(want["text"].get<std::string>());
  text.insert(text.begin(), pretrained.tokenizer->vocabulary().cls_id());
  text.push_back(pretrained.tokenizer->vocabulary().sep_id());
  CHECK(text == want["input_ids"].get<std::vector<int32_t>>());
  const torch::NoGradGuard no_grad;
  const torch::Tensor ids = torch::tensor(text).to(torch::kLong).unsqueeze(0);
  const PretrainingOutput logits = model->forward(ids, torch::zeros_like(ids), torch::ones_like(ids));
  CHECK(mismatch(logits.mlm_logits.flatten(), tensor_of(want["prediction_logits"]), kFloat) == "");
}

TEST_CASE("An encoder of transformers has its features, and fills no masks", "[golden][interop]") {
  const TemporaryDirectory directory;
  const Inputs inputs;
  const std::string path = hf_directory(directory, "encoder");
  const Pretrained pretrained = load_pretrained(path);
  CHECK_FALSE(pretrained.model.masked_token_head);
  BertModel model(pretrained.model.config);
  StateDict encoder;
  for (const auto& item : pretrained.weights)
    encoder.insert(item.key().substr(std::string("bert.").size()), item.value());
  load_state_dict(*model, encoder);
  model->eval();
  const torch::NoGradGuard no_grad;
  const BertModelOutput output = model->forward(inputs.ids, inputs.types, inputs.mask);
  CHECK(mismatch(inputs.real(output.last_hidden_state), tensor_of(inputs.golden["last_hidden_state"]), kFloat) == "");
  CHECK(mismatch(output.pooler_output.flatten(), tensor_of(inputs.golden["pooler_output"]), kFloat) == "");

  const Predictor predictor(pretrained), whole(hf_directory(directory));
  const Features features = predictor.features("The unaffable cats."), want = whole.features("The unaffable cats.");
  CHECK(torch::equal(features.last_hidden_state, want.last_hidden_state));
  CHECK(torch::equal(features.pooler_output, want.pooler_output));
  CHECK_THROWS_WITH(predictor.fill_mask("the [MASK]"), Contains(path + ": is an encoder without cls.predictions"));
  const std::string script = directory.path("bert.pt"), tensors = directory.path("bert.safetensors");
  REQUIRE(bert::testing::run_export(path, script) == 0);
  torch::jit::Module traced = torch::jit::load(script);
  const auto exported = traced.forward({inputs.ids, inputs.types, inputs.mask}).toTuple();
  CHECK(mismatch(inputs.real(exported->elements()[0].toTensor()), tensor_of(inputs.golden["last_hidden_state"]),
                 kFloat) == "");
  CHECK(mismatch(exported->elements()[1].toTensor().flatten(), tensor_of(inputs.golden["pooler_output"]), kFloat) ==
        "");
  CHECK(torch::equal(Predictor(script).features("The unaffable cats.").pooler_output, want.pooler_output));
  CHECK_THROWS_AS(Predictor(script).fill_mask("the [MASK]"), DataError);
  REQUIRE(bert::testing::run_export(path, tensors, "safetensors") == 0);
  const StateDict written = read_safetensors(tensors);
  CHECK(written.size() == pretrained.weights.size());
  for (const auto& item : pretrained.weights) CHECK(torch::equal(written[item.key()], item.value()));
  // The same from a checkpoint that `bert convert` has made of it.
  const std::string ours = directory.path("ours");
  REQUIRE(run_command(convert_command, {"convert", "--from", "huggingface", "--input", path, "--output", ours}).code ==
          0);
  CHECK(torch::equal(Predictor(ours).features("The unaffable cats.").pooler_output, want.pooler_output));
  CHECK_THROWS_AS(Predictor(ours).fill_mask("the [MASK]"), DataError);
}

TEST_CASE("The report of a model of transformers names what is missing and what the task needs", "[unit][interop]") {
  const TemporaryDirectory directory;
  const std::string path = hf_directory(directory, "masked_lm");
  const auto said = [&](const std::string& model, const char* task) {
    const auto result =
        run_command(predict_command, {"predict", "--checkpoint", model, "--task", task, "the [MASK] sat."});
    CHECK(result.code == 0);
    return result.err;
  };
  CHECK(said(path, "fill-mask") == "");
  CHECK(said(path, "features") == "bert predict: " + path +
                                      ": 26 tensors loaded, 2 missing, 0 unexpected, 0 reshaped, 0 ignored\n"
                                      "  missing: bert.pooler.dense.weight\n  missing: bert.pooler.dense.bias\n");
  const std::string encoder = hf_directory(directory, "encoder");  // without heads of pre-training
  CHECK(said(encoder, "features") == "");
  CHECK_THAT(said(encoder, "embedding"), !Contains("missing"));
  const std::string script = directory.path("bert.pt");
  const auto exported = run_command(export_command, {"export", "--checkpoint", path, "--output", script});
  REQUIRE(exported.code == 0);
  CHECK_THAT(exported.err, Contains("bert export: " + path +
                                    ": 26 tensors loaded, 4 missing, 0 unexpected, 0 reshaped, 0 "
                                    "ignored\n  missing: bert.pooler.dense.weight\n"));
  CHECK(Predictor(script).fill_mask("the [MASK] sat.", 24).masks[0].size() == 24);
  std::filesystem::remove(path + "/tokenizer.json");
  CHECK_THROWS_WITH(load_pretrained(path), Contains("has no tokenizer: neither vocab.txt nor tokenizer.json"));
}
