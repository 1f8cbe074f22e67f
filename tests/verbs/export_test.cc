// bert export --format onnx and triton.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/finetune/finetuning_run.h"
#include "app/inference/export_config.h"
#include "app/inference/pretrained.h"
#include "app/inference/task_model.h"
#include "app/inference/task_predictor.h"
#include "app/system/exit_codes.h"
#include "app/verbs/verbs.h"
#include "data/io/files.h"
#include "data/loader/task_loader.h"
#include "model/bert.h"
#include "model/state_dict.h"
#include "model/torchscript.h"
#include "tests/support/command_testing.h"
#include "tests/support/hf_golden.h"
#include "tests/support/mismatch.h"
#include "tests/support/onnx_evaluator.h"
#include "tests/support/onnx_file.h"
#include "tests/support/onnx_runtime.h"
#include "tests/support/random_checkpoint.h"
#include "tests/support/tiny_finetuning.h"
#include "tests/support/torchscript_file.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::Array;
using bert::testing::Contains;
using bert::testing::load_torchscript;
using bert::testing::mismatch;
using bert::testing::TemporaryDirectory;
using bert::testing::write_random_checkpoint;

namespace {

bert::testing::CommandResult run_export(const std::string& checkpoint, const std::string& output,
                                        std::vector<std::string> more) {
  more.insert(more.begin(), {"export", "--checkpoint", checkpoint, "--output", output});
  return bert::testing::run_command(export_command, more);
}

struct Batch {
  torch::Tensor input_ids, token_type_ids, attention_mask;  // [B, S]
};

/// Sequences of S, S - 1, ... tokens.
Batch batch_of(int64_t batch_size, int64_t length) {
  const torch::Tensor columns = at::arange(length).expand({batch_size, -1}), rows = at::arange(batch_size).unsqueeze(1);
  return {(columns * 3 + rows * 5).remainder(10), columns.gt(length / 2).to(torch::kLong),
          columns.lt(length - rows).to(torch::kLong)};
}

Array array_of(const torch::Tensor& tensor) {
  const torch::Tensor flat = tensor.to(torch::kDouble).contiguous();
  return {tensor.sizes().vec(), {flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel()}};
}

nlohmann::json json_of(const torch::Tensor& matrix) {
  nlohmann::json rows = nlohmann::json::array();
  for (int64_t i = 0; i < matrix.size(0); ++i) {
    const torch::Tensor row = matrix[i].contiguous();
    rows.push_back(std::vector<int64_t>(row.data_ptr<int64_t>(), row.data_ptr<int64_t>() + row.numel()));
  }
  return rows;
}

torch::Tensor tensor_of(const nlohmann::json& rows) {
  std::vector<torch::Tensor> tensors;
  for (const nlohmann::json& row : rows) tensors.push_back(at::tensor(row.get<std::vector<int64_t>>()));
  return at::stack(tensors);
}

constexpr bert::testing::Tolerance kLimit = {1e-5, 1e-5};  // for fp32

/// "" if `got`, an output [B, S, ...] or [B, ...], equals `want` at real tokens.
std::string difference(const Array& got, const torch::Tensor& want, const Batch& batch, bool per_token) {
  torch::Tensor values = at::tensor(got.values, torch::kDouble).view(got.shape), expected = want.detach();
  if (per_token) {
    const torch::Tensor real = batch.attention_mask.to(torch::kBool);
    values = values.index({real});
    expected = expected.index({real});
  }
  return mismatch(values, expected, kLimit);
}

BertForPreTraining module_of(const Pretrained& pretrained) {
  const NoInitWeights no_init;
  BertForPreTraining model(pretrained.model.config);
  load_state_dict(*model, pretrained.weights);
  model->eval();
  return model;
}

}  // namespace

TEST_CASE("bert export --format onnx computes the module's logits, and says what the model is", "[unit][predict]") {
  const torch::NoGradGuard no_grad;
  const TemporaryDirectory directory;
  const std::string checkpoint = write_random_checkpoint(directory), path = directory.path("bert.onnx");
  const auto result = run_export(checkpoint, path, {"--format", "onnx"});
  REQUIRE(result.code == kOk);
  CHECK(result.err == "verifying: done\nwriting: done\nwrote " + path + "\n");

  const Pretrained pretrained = load_pretrained(checkpoint);
  const bert::testing::OnnxFile file = bert::testing::read_onnx(path);
  CHECK(file.metadata.at("vocabulary_hash") == pretrained.tokenizer->vocabulary().hash());
  CHECK(file.metadata.at("model_max_length") == "12");
  CHECK_FALSE(file.metadata.contains("id2label"));
  const ExportConfig config = read_export_config(file.metadata.at("config.json"), "config.json");
  CHECK_THAT(file.metadata.at("config.json"), Contains("\"BertForPreTraining\""));
  CHECK(config.model.config.hidden_size == 16);

  BertForPreTraining model = module_of(pretrained);
  nlohmann::json calls = nlohmann::json::array();
  const std::vector<Batch> batches = {batch_of(3, 12), batch_of(2, 5)};
  const auto check = [&](size_t i, const std::map<std::string, Array>& outputs) {
    const Batch& batch = batches[i];
    const PretrainingOutput want = model->forward(batch.input_ids, batch.token_type_ids, batch.attention_mask);
    CHECK(difference(outputs.at("prediction_logits"), want.mlm_logits, batch, true) == "");
    CHECK(difference(outputs.at("seq_relationship_logits"), want.nsp_logits, batch, false) == "");
  };
  for (size_t i = 0; i < batches.size(); ++i) {
    const auto& [input_ids, token_type_ids, attention_mask] = batches[i];
    calls.push_back({{"input_ids", json_of(input_ids)},
                     {"token_type_ids", json_of(token_type_ids)},
                     {"attention_mask", json_of(attention_mask)}});
    check(i, bert::testing::evaluate(file, {{"input_ids", array_of(input_ids)},
                                            {"token_type_ids", array_of(token_type_ids)},
                                            {"attention_mask", array_of(attention_mask)}}));
  }
  if (bert::testing::onnx_python().empty())
    BERT_SKIP("ONNX Runtime: BERT_ONNX_PYTHON does not name a Python with onnx and onnxruntime");
  const auto outputs = bert::testing::run_onnx_runtime(path, calls);
  for (size_t i = 0; i < batches.size(); ++i) check(i, outputs.at(i));
}

TEST_CASE("bert export --format onnx takes an encoder, and gives transformers' features", "[golden][predict]") {
  const torch::NoGradGuard no_grad;
  const TemporaryDirectory directory;
  const std::string encoder = bert::testing::hf_directory(directory, "encoder"), path = directory.path("bert.onnx");
  REQUIRE(run_export(encoder, path, {"--format", "onnx"}).code == kOk);
  const bert::testing::OnnxFile file = bert::testing::read_onnx(path);
  REQUIRE(file.outputs.size() == 2);
  CHECK(file.outputs[0].name == "last_hidden_state");
  CHECK(file.outputs[1].name == "pooler_output");
  CHECK_THAT(file.metadata.at("config.json"), Contains("\"BertModel\""));
  const nlohmann::json golden = bert::testing::hf_golden();
  const torch::Tensor ids = tensor_of(golden["input_ids"]);
  const Batch batch = {ids, tensor_of(golden["token_type_ids"]), ids.ne(0).to(torch::kLong)};
  const auto got = bert::testing::evaluate(file, {{"input_ids", array_of(batch.input_ids)},
                                                  {"token_type_ids", array_of(batch.token_type_ids)},
                                                  {"attention_mask", array_of(batch.attention_mask)}});
  const auto numbers = [&](const char* key) { return at::tensor(golden[key].get<std::vector<double>>()); };
  const torch::Tensor states = at::tensor(got.at("last_hidden_state").values, torch::kDouble)
                                   .view(got.at("last_hidden_state").shape)
                                   .index({batch.attention_mask.to(torch::kBool)});
  CHECK(mismatch(states.flatten(), numbers("last_hidden_state").to(torch::kDouble), kLimit) == "");
  CHECK(mismatch(at::tensor(got.at("pooler_output").values, torch::kDouble),
                 numbers("pooler_output").to(torch::kDouble), kLimit) == "");
}

TEST_CASE("bert export --format onnx --precision fp16 has the weights in fp16", "[unit][predict]") {
  const TemporaryDirectory directory;
  const std::string path = directory.path("bert.onnx");
  const std::string checkpoint = write_random_checkpoint(directory);
  REQUIRE(run_export(checkpoint, path, {"--format", "onnx", "--precision", "fp16"}).code == kOk);
  const bert::testing::OnnxFile file = bert::testing::read_onnx(path);
  const torch::Tensor want = load_pretrained(checkpoint).weights["bert.embeddings.word_embeddings.weight"];
  const auto& got = file.initializers.at("bert.embeddings.word_embeddings.weight");
  CHECK(got.type == 10);
  CHECK(at::equal(at::tensor(got.values, torch::kDouble).view(got.shape), want.to(torch::kHalf).to(torch::kDouble)));
}

TEST_CASE("bert export --format triton writes a directory that the LibTorch backend serves", "[unit][predict]") {
  const torch::NoGradGuard no_grad;
  const TemporaryDirectory directory;
  const std::string checkpoint = write_random_checkpoint(directory), output = directory.path("models/bert");
  const auto result = run_export(checkpoint, output, {"--format", "triton", "--max-batch-size", "4"});
  REQUIRE(result.code == kOk);
  CHECK_THAT(result.err,
             Contains("wrote " + output + "; needs PyTorch or LibTorch >= 2.0 (1.13 with --plain-attention)\n"));
  const std::string config = read_file(output + "/config.pbtxt");
  CHECK_THAT(config, Contains("max_batch_size: 4\n") && Contains("dims: [ -1, 10 ]") && Contains("dims: [ 2 ]"));

  // The backend passes the inputs by their numbers, in the types of config.pbtxt.
  std::ifstream in(output + "/1/model.pt", std::ios::binary);
  ExtraFiles inside = {{kExportConfigFile, ""}};
  torch::jit::Module script = load_torchscript(in, inside);
  CHECK_THAT(inside[kExportConfigFile], Contains("vocabulary_hash"));
  BertForPreTraining model = module_of(load_pretrained(checkpoint));
  for (const Batch& batch : {batch_of(3, 12), batch_of(2, 5)}) {
    const auto tuple = script
                           .forward({batch.input_ids.to(torch::kInt), batch.token_type_ids.to(torch::kInt),
                                     batch.attention_mask.to(torch::kInt)})
                           .toTuple();
    const PretrainingOutput want = model->forward(batch.input_ids, batch.token_type_ids, batch.attention_mask);
    const torch::Tensor real = batch.attention_mask.to(torch::kBool);
    REQUIRE(tuple->elements().size() == 2);
    CHECK(mismatch(tuple->elements()[0].toTensor().index({real}), want.mlm_logits.index({real})) == "");
    CHECK(mismatch(tuple->elements()[1].toTensor(), want.nsp_logits) == "");
    CHECK(tuple->elements()[0].toTensor().dtype() == torch::kFloat);
  }
}

TEST_CASE("bert export writes every task's head as ONNX and for Triton, with the same outputs", "[unit][predict]") {
  struct Head {
    const char *task, *dims, *labels;
    std::vector<std::string> outputs;
    bool per_token;
  };
  const std::vector<Head> heads = {
      {"text-classification", "dims: [ 2 ]", R"({"0":"even","1":"odd"})", {"logits"}, false},
      {"text-regression", "dims: [ 1 ]", "", {"logits"}, false},
      {"ner", "dims: [ -1, 2 ]", R"({"0":"B-X","1":"O"})", {"logits"}, true},
      {"squad-v1", "dims: [ -1 ]", "", {"start_logits", "end_logits"}, true},
      {"swag", "dims: [ 1 ]", "", {"logits"}, false}};
  const TemporaryDirectory directory;
  for (const Head& head : heads) {
    CAPTURE(head.task);
    const FinetuneConfig config = bert::testing::tiny_task_of(head.task, directory);
    REQUIRE(finetune(config, false) == kOk);
    const torch::NoGradGuard no_grad;
    const std::string onnx = directory.path(std::string(head.task) + ".onnx"),
                      triton = directory.path(std::string(head.task) + "-triton");
    REQUIRE(run_export(config.run_directory, onnx, {"--format", "onnx"}).code == kOk);
    REQUIRE(run_export(config.run_directory, triton, {"--format", "triton"}).code == kOk);
    const std::string settings = read_file(triton + "/config.pbtxt");
    CHECK_THAT(settings, Contains(head.dims));
    const bert::testing::OnnxFile file = bert::testing::read_onnx(onnx);
    CHECK((file.metadata.contains("id2label") ? file.metadata.at("id2label") : "") == head.labels);

    // `bert export` has compared the TorchScript file with the module.
    std::ifstream in(triton + "/1/model.pt", std::ios::binary);
    ExtraFiles inside = {{kExportConfigFile, ""}};
    torch::jit::Module script = load_torchscript(in, inside);
    for (const Batch& batch : {batch_of(4, 12), batch_of(2, 5)}) {
      const auto want = script
                            .forward({batch.input_ids.to(torch::kInt), batch.token_type_ids.to(torch::kInt),
                                      batch.attention_mask.to(torch::kInt)})
                            .toTuple()
                            ->elements();
      REQUIRE(want.size() == head.outputs.size());
      const bool choices = std::string(head.task) == "swag";  // two of each question
      const auto shaped = [&](const torch::Tensor& tensor) {
        return array_of(choices ? tensor.view({-1, 2, tensor.size(1)}) : tensor);
      };
      const auto got = bert::testing::evaluate(file, {{"input_ids", shaped(batch.input_ids)},
                                                      {"token_type_ids", shaped(batch.token_type_ids)},
                                                      {"attention_mask", shaped(batch.attention_mask)}});
      for (size_t i = 0; i < want.size(); ++i) {
        const torch::Tensor logits = want[i].toTensor();
        CHECK(difference(got.at(head.outputs[i]), choices ? logits.view({-1, 2}) : logits, batch, head.per_token) ==
              "");
      }
    }
  }
}

TEST_CASE("An export of start markers finds the markers, and gives the logits of predictions", "[unit][predict]") {
  const TemporaryDirectory directory;
  FinetuneConfig config = bert::testing::tiny_task_of("text-classification", directory);
  config.data.task.entity_markers = EntityMarkers::kStartMarkers;
  config.data.dev_file = config.data.train_file = directory.path("relations.jsonl");
  std::ofstream rows(config.data.train_file);
  for (int i = 10; i < 18; ++i) {
    const std::string text = fmt::format("5 [E1]{}[/E1] 6 [E2]{} 8[/E2]", i, 30 - i);
    rows << nlohmann::json({{"text", text}, {"label", i % 2 == 0 ? "even" : "odd"}}) << "\n";
  }
  rows.close();
  REQUIRE(finetune(config, false) == kOk);
  const torch::NoGradGuard no_grad;
  const Pretrained trained = load_pretrained(config.run_directory);
  const TaskPredictor predictor(trained, {});
  TaskFeatures features = predictor.encode({.text = "7 8 9 [E2]11[/E2] 40 [E1]12 13[/E1] 9", .second = ""}).features;
  features.sequences.push_back(
      predictor.encode({.text = "[E1]20[/E1] [E2]21[/E2]", .second = ""}).features.sequences.front());
  const std::vector<int64_t> both = {0, 1};
  const torch::Tensor want = TaskInference(trained, {}).forward(pack_task_sequences(features, 1, both, both));
  REQUIRE(want.sizes() == at::IntArrayRef({2, 2}));

  const auto length = std::ssize(features.sequences.front().input_ids);
  Batch batch{at::zeros({2, length}, at::kLong), at::zeros({2, length}, at::kLong), at::zeros({2, length}, at::kLong)};
  for (int64_t i : both) {
    const std::vector<int32_t>& ids = features.sequences[static_cast<size_t>(i)].input_ids;
    batch.input_ids[i].narrow(0, 0, std::ssize(ids)).copy_(at::tensor(ids));
    batch.attention_mask[i].narrow(0, 0, std::ssize(ids)).fill_(1);
  }
  const std::string onnx = directory.path("x.onnx"), triton = directory.path("triton");
  REQUIRE(run_export(config.run_directory, triton, {"--format", "triton"}).code == kOk);
  CHECK_THAT(read_file(triton + "/config.pbtxt"), Contains("dims: [ 2 ]"));
  std::ifstream in(triton + "/1/model.pt", std::ios::binary);
  ExtraFiles inside;
  const auto got = load_torchscript(in, inside).forward({batch.input_ids, batch.token_type_ids, batch.attention_mask});
  CHECK(mismatch(got.toTuple()->elements()[0].toTensor(), want, kLimit) == "");

  REQUIRE(run_export(config.run_directory, onnx, {"--format", "onnx"}).code == kOk);
  const auto computed =
      bert::testing::evaluate(bert::testing::read_onnx(onnx), {{"input_ids", array_of(batch.input_ids)},
                                                               {"token_type_ids", array_of(batch.token_type_ids)},
                                                               {"attention_mask", array_of(batch.attention_mask)}});
  CHECK(difference(computed.at("logits"), want, batch, false) == "");
  if (bert::testing::onnx_python().empty())
    BERT_SKIP("ONNX Runtime: BERT_ONNX_PYTHON does not name a Python with onnx and onnxruntime");
  const nlohmann::json call = {{"input_ids", json_of(batch.input_ids)},
                               {"token_type_ids", json_of(batch.token_type_ids)},
                               {"attention_mask", json_of(batch.attention_mask)}};
  const auto run = bert::testing::run_onnx_runtime(onnx, nlohmann::json::array({call}));
  CHECK(difference(run.at(0).at("logits"), want, batch, false) == "");
}

TEST_CASE("bert export refuses options that do not go together, before it reads", "[unit][predict]") {
  const TemporaryDirectory directory;
  const std::string checkpoint = write_random_checkpoint(directory), output = directory.path("out");
  auto result = run_export(checkpoint, output, {"--format", "onnx", "--precision", "bf16"});
  CHECK(result.code == kUsage);
  CHECK_THAT(result.err, Contains("expected fp32 or fp16 with --format onnx"));
  result = run_export(checkpoint, output, {"--max-batch-size", "4"});
  CHECK(result.code == kUsage);
  CHECK_THAT(result.err, Contains("--max-batch-size: belongs to --format triton"));
  result = run_export(checkpoint, output, {"--plain-attention", "--format", "safetensors"});
  CHECK(result.code == kUsage);
  CHECK_THAT(result.err, Contains("--plain-attention: belongs to --format torchscript and triton"));
  CHECK_THAT(run_export(checkpoint, output, {"--plain-attention", "--precision", "fp16"}).err,
             Contains("; needs PyTorch or LibTorch >= 1.13, on a CPU a recent one, which computes in fp16; 1.13 does "
                      "not\n"));
  std::filesystem::remove(output);
  std::filesystem::create_directory(output);
  std::ofstream(output + "/file") << "kept";
  result = run_export(checkpoint, output, {"--format", "triton"});
  CHECK(result.code == kUsage);
  CHECK_THAT(result.err, Contains("is there and has files; remove it, or write elsewhere"));
  CHECK(read_file(output + "/file") == "kept");
  CHECK(run_export(checkpoint, checkpoint + "/bert", {"--format", "triton"}).code == kUsage);
  CHECK(run_export(checkpoint, output, {"--format", "onnxx"}).code == kUsage);
}
