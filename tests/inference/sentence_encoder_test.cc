// Sentence encoders: directories of sentence-transformers, their vectors, and what `bert` does with these. The expected
// vectors are computed here from the hidden states, by the formulas of sentence-transformers' modules.
#include <torch/types.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "app/checkpoint/checkpoint.h"
#include "app/inference/predictor.h"
#include "app/inference/pretrained.h"
#include "app/system/exit_codes.h"
#include "app/verbs/model/predict_embedding.h"
#include "app/verbs/verbs.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "tests/support/command_testing.h"
#include "tests/support/onnx_evaluator.h"
#include "tests/support/onnx_file.h"
#include "tests/support/predict_command.h"
#include "tests/support/random_checkpoint.h"
#include "tests/support/text_file.h"
#include "tests/support/torchscript_file.h"
#include "tests/testing.h"

namespace bert {
namespace {

using nlohmann::json;
using testing::CommandResult;
using testing::Contains;
using testing::run_command;
using testing::TemporaryDirectory;
using torch::Tensor;

constexpr int64_t kHidden = 16;  // of write_random_checkpoint()
const std::vector<std::string> kTexts = {"the cat sat.", "cats", "the the cat sat sat.", "."};

json module(const std::string& path, const std::string& type) {
  return {{"idx", 0}, {"name", path}, {"path", path}, {"type", "sentence_transformers.models." + type}};
}

/// A directory of transformers with a small random model, which modules.json makes a sentence encoder.
struct Directory {
  explicit Directory(const json& pooling, std::vector<json> further = {}) {
    const std::string checkpoint = testing::write_random_checkpoint(directory);
    const CommandResult result =
        run_command(convert_command, {"convert", "--to", "huggingface", "--input", checkpoint, "--output", path});
    REQUIRE(result.code == kOk);
    further.insert(further.begin(), {module("", "Transformer"), module("1_Pooling", "Pooling")});
    write("modules.json", further);
    write("1_Pooling/config.json", pooling);
  }
  void write(const std::string& name, const json& content) const {
    std::filesystem::create_directories((std::filesystem::path(path) / name).parent_path());
    testing::write_text(path + "/" + name, content.dump());
  }
  /// A dense layer with random weights in `folder`.
  void write_dense(const std::string& folder, int64_t in, int64_t out, const char* activation) const {
    write(folder + "/config.json",
          {{"in_features", in}, {"out_features", out}, {"bias", true}, {"activation_function", activation}});
    StateDict weights;
    weights.insert("linear.weight", torch::randn({out, in}));
    weights.insert("linear.bias", torch::randn({out}));
    save_safetensors(path + "/" + folder + "/model.safetensors", weights);
  }

  Directory(const Directory&) = delete;

  const TemporaryDirectory directory;
  const std::string path = directory.path("encoder");
};

Tensor states_of(const Predictor& predictor, const std::string& text) {
  return predictor.features(text).last_hidden_state;
}

bool close(const Tensor& a, const Tensor& b) { return torch::allclose(a, b, 1e-5, 1e-6); }

/// The batch of the exports' tests: [CLS] the cat sat . [SEP], and [CLS] cat ##s [SEP] padded to its length.
const std::vector<int64_t> kIds = {2, 5, 6, 7, 9, 3, 2, 6, 8, 3, 0, 0}, kMask = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0};

/// The outputs that a TorchScript export computes of them.
std::vector<Tensor> outputs_of(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  ExtraFiles none;
  torch::jit::Module module = testing::load_torchscript(in, none);
  const Tensor ids = torch::tensor(kIds).view({2, 6}), mask = torch::tensor(kMask).view({2, 6});
  std::vector<Tensor> outputs;
  const auto tuple = module.forward({ids, torch::zeros_like(ids), mask}).toTuple();
  for (const c10::IValue& value : tuple->elements()) outputs.push_back(value.toTensor());
  return outputs;
}

/// The vectors of them by an ONNX export.
Tensor sentences_in_onnx(const std::string& file) {
  const testing::Array ids{{2, 6}, {kIds.begin(), kIds.end()}}, mask{{2, 6}, {kMask.begin(), kMask.end()}};
  const auto outputs = testing::evaluate(
      testing::read_onnx(file),
      {{"input_ids", ids}, {"attention_mask", mask}, {"token_type_ids", {{2, 6}, std::vector<double>(12, 0.0)}}});
  const testing::Array& got = outputs.at("sentence_embedding");
  REQUIRE(got.shape.size() == 2);
  return torch::tensor(got.values).view(got.shape).to(torch::kFloat);
}

CommandResult evaluate(const std::vector<std::string>& arguments) {
  std::vector<std::string> all = {"evaluate", "embedding"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return run_command(evaluate_torch_command, all);
}

}  // namespace

TEST_CASE("Each pooling of sentence-transformers gives its vector, here and in ONNX", "[predict][interop]") {
  const auto places = [](const Tensor& x) { return torch::arange(1, x.size(0) + 1).to(torch::kFloat); };
  const std::pair<const char*, std::function<Tensor(const Tensor&)>> kPoolings[] = {
      {"cls", [](const Tensor& x) { return x[0]; }},
      {"max", [](const Tensor& x) { return std::get<0>(x.max(0)); }},
      {"mean", [](const Tensor& x) { return x.mean(0); }},
      {"mean_sqrt_len_tokens", [](const Tensor& x) { return x.sum(0) / std::sqrt(static_cast<double>(x.size(0))); }},
      {"weightedmean", [&](const Tensor& x) { return torch::mv(x.t(), places(x)) / places(x).sum(); }},
      {"lasttoken", [](const Tensor& x) { return x[-1]; }}};
  for (const auto& [name, formula] : kPoolings) {
    CAPTURE(name);
    const Directory place(json{{"embedding_dimension", kHidden}, {"pooling_mode", name}});
    const Predictor predictor(place.path);
    const Tensor vectors = predictor.encode(kTexts);
    REQUIRE(vectors.sizes() == std::vector<int64_t>{4, kHidden});
    for (size_t i = 0; i < kTexts.size(); ++i) {
      const Tensor row = vectors[static_cast<int64_t>(i)];
      CHECK(close(row, formula(states_of(predictor, kTexts[i]))));
      CHECK(close(predictor.encode({kTexts[i]})[0], row));  // whatever the other texts are
    }
    const std::string file = place.directory.path("model.onnx");
    REQUIRE(testing::run_export(place.path, file, "onnx") == kOk);
    CHECK(torch::allclose(sentences_in_onnx(file), vectors.slice(0, 0, 2), 1e-4, 1e-5));
    const std::string script = place.directory.path("model.pt");
    REQUIRE(testing::run_export(place.path, script) == kOk);
    CHECK(torch::allclose(outputs_of(script).front(), vectors.slice(0, 0, 2), 1e-5, 1e-5));
  }
}

TEST_CASE("Poolings side by side, dense layers, normalisation and prompts follow one another", "[predict][interop]") {
  torch::manual_seed(1);
  const json pooling = {{"word_embedding_dimension", kHidden},
                        {"pooling_mode_mean_tokens", true},
                        {"pooling_mode_cls_token", true},
                        {"pooling_mode_max_tokens", false},
                        {"include_prompt", false}};
  const Directory place(pooling,
                        {module("2_Dense", "Dense"), module("3_Dense", "Dense"), module("4_Normalize", "Normalize")});
  place.write_dense("2_Dense", 2 * kHidden, 7, "torch.nn.modules.activation.Tanh");
  place.write_dense("3_Dense", 7, 5, "torch.nn.modules.linear.Identity");
  place.write("config_sentence_transformers.json", {{"prompts", {{"query", "the cat "}, {"passage", ""}}},
                                                    {"default_prompt_name", "query"},
                                                    {"similarity_fn_name", "dot"}});
  const auto expected = [](const Predictor& predictor, const StateDict& weights, const std::string& text,
                           int64_t skipped) {
    const Tensor x = states_of(predictor, text).slice(0, skipped);
    const auto dense = [&](const Tensor& y, const std::string& layer) {
      return torch::linear(y, weights["sentence.dense." + layer + ".weight"],
                           weights["sentence.dense." + layer + ".bias"]);
    };
    const Tensor y = dense(dense(torch::cat({x[0], x.mean(0)}), "0").tanh(), "1");
    return y / y.norm();
  };
  const std::string own = place.directory.path("own"), back = place.directory.path("back");
  for (const auto& [from, to, direction] : {std::tuple{place.path, own, "--from"}, std::tuple{own, back, "--to"}}) {
    REQUIRE(run_command(convert_command, {"convert", direction, "huggingface", "--input", from, "--output", to}).code ==
            kOk);
  }
  for (const std::string& path : {place.path, own, back}) {
    CAPTURE(path);
    const Pretrained pretrained = load_pretrained(path);
    const Predictor predictor(pretrained);
    CHECK(predictor.sentence_encoder().similarity == Similarity::kDot);
    CHECK(predictor.sentence_encoder().prompts ==
          std::map<std::string, std::string>{{"passage", ""}, {"query", "the cat "}});
    const StateDict& weights = pretrained.sentence_weights;
    CHECK(close(predictor.encode({"sat."})[0], expected(predictor, weights, "the cat sat.", 3)));
    CHECK(close(predictor.encode({"sat."}, {.prompt_name = "passage"})[0], expected(predictor, weights, "sat.", 0)));
    CHECK(close(predictor.encode({"sat."}, {.prompt = "cats "})[0], expected(predictor, weights, "cats sat.", 3)));
    const Tensor whole = expected(predictor, weights, "sat.", 0), part = whole.slice(0, 0, 3);
    CHECK(close(predictor.encode({"sat."}, {.dimensions = 3, .prompt = ""})[0], part));
    CHECK(close(predictor.encode({"sat."}, {.normalize = true, .dimensions = 3, .prompt = ""})[0], part / part.norm()));
    CHECK_THROWS_WITH(predictor.encode({"sat."}, {.prompt_name = "answer"}),
                      Contains("the model has no prompt answer; it has passage, query"));
  }
  CHECK(read_file(back + "/modules.json") != "");

  // Exports have all of it inside, or the encoder alone.
  const Pretrained pretrained = load_pretrained(own);
  const Predictor predictor(pretrained);
  const Tensor want = expected(predictor, pretrained.sentence_weights, "the cat sat.", 0);
  const std::string file = place.directory.path("all.pt"), alone = place.directory.path("alone.pt"),
                    triton = place.directory.path("triton");
  REQUIRE(testing::run_export(own, file) == kOk);
  const std::vector<Tensor> got = outputs_of(file);
  REQUIRE(got.size() == 2);
  CHECK(close(got[0][0], want));
  CHECK(close(got[1][0], states_of(predictor, "the cat sat.")));
  CHECK(close(Predictor(file).encode({"sat."})[0], predictor.encode({"sat."})[0]));
  REQUIRE(run_command(export_command, {"export", "--checkpoint", own, "--output", alone, "--no-pooling"}).code == kOk);
  CHECK(close(outputs_of(alone).front()[0], states_of(predictor, "the cat sat.")));
  CHECK(close(Predictor(alone).encode({"sat."})[0], states_of(predictor, "sat.").mean(0)));
  const std::string graph = place.directory.path("alone.onnx");
  REQUIRE(run_command(export_command,
                      {"export", "--checkpoint", own, "--format", "onnx", "--output", graph, "--no-pooling"})
              .code == kOk);
  CHECK_THAT(read_file(graph), Contains("last_hidden_state") && !Contains("sentence_embedding"));
  REQUIRE(testing::run_export(own, triton, "triton") == kOk);
  CHECK(close(outputs_of(triton + "/1/model.pt").front()[0], want));
  const std::string settings = read_file(triton + "/config.pbtxt");
  CHECK_THAT(settings, Contains("name: \"output__0\"\n    data_type: TYPE_FP32\n    dims: [ 5 ]"));
  CHECK_THAT(settings, Contains("name: \"output__1\"\n    data_type: TYPE_FP32\n    dims: [ -1, 16 ]"));
}

TEST_CASE("Each activation of a dense layer has its values, here and in exports", "[predict][interop]") {
  // Source: the pages of torch.nn's classes.
  const auto logistic = [](double x) { return 1 / (1 + std::exp(-x)); };
  const std::pair<const char*, std::function<double(double)>> kActivations[] = {
      {"activation.Tanh", [](double x) { return std::tanh(x); }},
      {"linear.Identity", [](double x) { return x; }},
      {"activation.GELU", [](double x) { return x * (1 + std::erf(x / std::sqrt(2.0))) / 2; }},
      {"activation.ReLU", [](double x) { return x > 0 ? x : 0; }},
      {"activation.Sigmoid", logistic},
      {"activation.SiLU", [&](double x) { return x * logistic(x); }}};
  for (const auto& [name, formula] : kActivations) {
    CAPTURE(name);
    torch::manual_seed(2);
    const Directory place(json{{"pooling_mode", "mean"}}, {module("2_Dense", "Dense")});
    const std::string activation = std::string("torch.nn.modules.") + name, own = place.directory.path("own"),
                      back = place.directory.path("back"), script = place.directory.path("model.pt"),
                      graph = place.directory.path("model.onnx");
    place.write_dense("2_Dense", kHidden, 5, activation.c_str());
    for (const auto& [from, to, direction] : {std::tuple{place.path, own, "--from"}, std::tuple{own, back, "--to"}}) {
      REQUIRE(
          run_command(convert_command, {"convert", direction, "huggingface", "--input", from, "--output", to}).code ==
          kOk);
    }
    CHECK(json::parse(read_file(back + "/2_Dense/config.json"))["activation_function"] == activation);
    const Pretrained pretrained = load_pretrained(own);
    const Predictor predictor(pretrained);
    const StateDict& weights = pretrained.sentence_weights;
    Tensor want = torch::linear(states_of(predictor, "the cat sat.").mean(0), weights["sentence.dense.0.weight"],
                                weights["sentence.dense.0.bias"])
                      .to(torch::kDouble);
    REQUIRE(want.min().item<double>() < -0.1);  // where the activations differ
    for (int64_t i = 0; i < 5; ++i) want[i] = formula(want[i].item<double>());
    want = want.to(torch::kFloat);
    CHECK(close(predictor.encode({"the cat sat."})[0], want));
    REQUIRE(testing::run_export(own, script) == kOk);
    CHECK(close(outputs_of(script).front()[0], want));
    REQUIRE(testing::run_export(own, graph, "onnx") == kOk);
    CHECK(torch::allclose(sentences_in_onnx(graph)[0], want, 1e-4, 1e-5));
  }
}

TEST_CASE("A text that is too long is refused, cut or read in windows", "[predict]") {
  const Directory place(json{{"pooling_mode", "mean"}});
  const std::string text =
      "the cat sat. the cat sat. the cat sat. cats";  // 14 tokens of 10 at most, with [CLS] and [SEP] 16
  const Predictor predictor(place.path);
  CHECK_THROWS_WITH(predictor.encode({text}, {.long_texts = LongTexts::kRefuse}), Contains("text of 16 tokens"));
  CHECK(close(predictor.encode({text})[0], predictor.encode({"the cat sat. the cat sat. the cat"})[0]));
  const Tensor first = states_of(predictor, "the cat sat. the cat sat"),
               second = states_of(predictor, ". the cat sat. cats");
  CHECK(close(predictor.encode({text}, {.long_texts = LongTexts::kWindows})[0], torch::cat({first, second}).mean(0)));
  const AnswerOptions tokens{.long_texts = LongTexts::kWindows, .of_tokens = true};
  CHECK(predictor.encode(Task::kEmbedding, text, tokens).ids.size() == 12);  // cut: tokens of windows have no place
}

TEST_CASE("A text may come as the ids of its tokens, with or without [CLS] and [SEP]", "[predict]") {
  const Directory place(json{{"pooling_mode", "mean"}});
  const Predictor predictor(place.path);
  const std::vector<int32_t> whole = predictor.encode(Task::kEmbedding, std::string("the cat sat.")).ids;
  REQUIRE(whole.size() == 6);
  const std::vector<int32_t> inside(whole.begin() + 1, whole.end() - 1);
  for (const std::vector<int32_t>& ids :
       {whole, inside, {whole.begin(), whole.end() - 1}, {whole.begin() + 1, whole.end()}})
    CHECK(predictor.encode(Task::kEmbedding, ids).ids == whole);
  const EncodedText text = predictor.encode(Task::kEmbedding, inside);
  CHECK(close(predictor.sentence_embeddings({&text, 1})[0], predictor.encode({"the cat sat."})[0]));
  CHECK(predictor.encode(Task::kEmbedding, std::vector<int32_t>(100, 5)).ids.size() == 12);  // the longest text
  CHECK_THROWS_WITH(predictor.encode(Task::kEmbedding, std::vector<int32_t>{5, 1000000}),
                    Contains("id 1000000: the vocabulary has those from 0 to "));
  CHECK_THROWS_WITH(predictor.encode(Task::kEmbedding, std::vector<int32_t>{-1}), Contains("id -1: the vocabulary"));
  CHECK_THROWS_WITH(predictor.encode(Task::kEmbedding, std::vector<int32_t>()), Contains("the text has no ids"));
}

TEST_CASE("An empty line is a text as in sentence-transformers, so rows are lines", "[predict][process]") {
  const Directory place(json{{"pooling_mode", "mean"}});
  const std::string output = place.directory.path("vectors.safetensors");
  REQUIRE(testing::predict(place.path,
                           {"--task", "embedding", "--format", "safetensors", "--output", output, "--input", "-"},
                           "the cat sat.\n\ncats\r\n\r\n")
              .code == kOk);
  const Predictor predictor(place.path);
  const Tensor rows = read_safetensors(output)["embeddings"];
  REQUIRE(rows.size(0) == 4);
  const std::vector<std::string> texts = {"the cat sat.", "", "cats", ""};
  for (size_t i = 0; i < texts.size(); ++i)
    CHECK(close(rows[static_cast<int64_t>(i)], states_of(predictor, texts[i]).mean(0)));
  CHECK(states_of(predictor, "").size(0) == 2);  // [CLS] [SEP]
}

TEST_CASE("What is no sentence encoder of BERT is refused with its reason", "[interop]") {
  const json mean = {{"pooling_mode", "mean"}};
  const auto message = [](const Directory& place) {
    try {
      load_pretrained(place.path);
    } catch (const DataError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK_THAT(message(Directory(json{{"pooling_mode", "median"}})),
             Contains("\"pooling_mode\" is \"median\"; expected cls, max"));
  CHECK_THAT(message(Directory(json{{"pooling_mode_cls_token", false}})), Contains("names no pooling"));
  CHECK_THAT(message(Directory(mean, {module("2_CNN", "CNN")})),
             Contains("module CNN after Pooling; expected Transformer"));
  CHECK_THAT(message(Directory(mean, {module("2_Normalize", "Normalize"), module("3_Dense", "Dense")})),
             Contains("module Dense after Normalize"));
  CHECK_THAT(message(Directory(mean, {module("../x", "Normalize")})), Contains("expected a folder of this directory"));
  const Directory wide(mean, {module("2_Dense", "Dense")});
  wide.write_dense("2_Dense", 3, 5, "torch.nn.modules.activation.Tanh");
  CHECK_THAT(message(wide), Contains("a dense layer takes 3 numbers, and what is before it gives 16"));
  wide.write_dense("2_Dense", kHidden, 5, "torch.nn.modules.activation.Mish");
  CHECK_THAT(message(wide), Contains("activation.Mish; expected one of torch.nn: Tanh, Identity, GELU"));
  wide.write_dense("2_Dense", kHidden, 5, "mine.Tanh");  // sentence-transformers runs no code of others unasked
  CHECK_THAT(message(wide), Contains("mine.Tanh; expected one of torch.nn"));
  wide.write("2_Dense/config.json", {{"in_features", kHidden}, {"out_features", 5}, {"module_input_name", "tokens"}});
  CHECK_THAT(message(wide), Contains("\"module_input_name\" is \"tokens\"; expected sentence_embedding"));
  const Directory prompt(mean);
  prompt.write("config_sentence_transformers.json", {{"default_prompt_name", "query"}});
  CHECK_THAT(message(prompt), Contains("\"default_prompt_name\" is query, which \"prompts\" does not have"));
}

TEST_CASE("predict writes vectors and compares texts, evaluate and benchmark read them", "[predict][process]") {
  const Directory place(json{{"pooling_mode", "mean"}}, {module("2_Normalize", "Normalize")});
  const Predictor predictor(place.path);
  const Tensor vectors = predictor.encode(kTexts);
  std::string lines;
  for (const std::string& text : kTexts) lines += text + "\n";
  const CommandResult answers = testing::predict(place.path, {"--task", "embedding", "--input", "-"}, lines);
  REQUIRE(answers.code == kOk);
  const auto objects = testing::lines_of(answers.out);
  REQUIRE(objects.size() == kTexts.size());
  for (size_t i = 0; i < objects.size(); ++i) {
    CHECK(objects[i]["text"] == kTexts[i]);
    CHECK(close(torch::tensor(objects[i]["embedding"].get<std::vector<float>>()), vectors[static_cast<int64_t>(i)]));
  }
  const CommandResult pairs = testing::predict(place.path, {"--task", "similarity", kTexts[0], kTexts[1], kTexts[0]});
  REQUIRE(pairs.code == kOk);
  const auto compared = testing::lines_of(pairs.out);
  REQUIRE(compared.size() == 2);
  CHECK(compared[0]["similarity"] == testing::Approx(vectors[0].dot(vectors[1]).item<double>()).epsilon(1e-5));
  CHECK(compared[1]["similarity"] == testing::Approx(1.0).epsilon(1e-5));

  const std::string output = place.directory.path("vectors.npy");
  REQUIRE(testing::predict(place.path, {"--task", "embedding", "--format", "npy", "--quantize", "ubinary", "--output",
                                        output, kTexts[0]})
              .code == kOk);
  const std::string npy = read_file(output);
  CHECK_THAT(npy, Contains("'descr': '|u1', 'fortran_order': False, 'shape': (1, 2, )"));
  int first_byte = 0;
  for (int64_t i = 0; i < 8; ++i) first_byte = 2 * first_byte + (vectors[0][i].item<float>() > 0 ? 1 : 0);
  CHECK(static_cast<unsigned char>(npy[npy.size() - 2]) == first_byte);

  for (const std::vector<std::string>& bad :
       std::vector<std::vector<std::string>>{{"--task", "features", "--prompt", "x", "the"},
                                             {"--task", "embedding", "--quantize", "int8", "the"},
                                             {"--task", "embedding", "--dimensions", "17", "the"},
                                             {"--task", "embedding", "--prompt-name", "query", "the"},
                                             {"--task", "fill-mask", "--long", "windows", "[MASK]"},
                                             {"--task", "similarity", "the"}}) {
    CAPTURE(bad);
    CHECK(testing::predict(place.path, bad).code == kUsage);
  }

  const std::string table = testing::write_text(
      place.directory.path("sts.tsv"), "sentence1\tsentence2\tscore\nthe cat sat.\tcats\t1\n.\t.\t5\ncats\tthe\t2\n");
  const CommandResult scores = evaluate({"--checkpoint", place.path, "--dataset", table});
  REQUIRE(scores.code == kOk);
  const json metrics = json::parse(scores.out);
  CHECK(metrics.size() == 8);
  const double unequal = vectors[0].dot(vectors[1]).item<double>(),
               third = predictor.encode({"cats"})[0].dot(predictor.encode({"the"})[0]).item<double>();
  CHECK(metrics["cosine_spearman"] == testing::Approx(unequal < third ? 1.0 : 0.5));
  CHECK(evaluate({"--dataset", table}).code == kUsage);
  const CommandResult timed = run_command(
      benchmark_command, {"benchmark", "inference", "--checkpoint", place.path, "--task", "embedding", "--input",
                          testing::write_text(place.directory.path("texts"), lines), "--device", "cpu", "--json"});
  REQUIRE(timed.code == kOk);
  CHECK(json::parse(timed.out.substr(timed.out.rfind('{', timed.out.find("\"benchmark\""))))["texts"] == 4);
}

TEST_CASE("Numbers of vectors become bytes and bits as quantize_embeddings() does it", "[unit][predict]") {
  const Tensor vectors = torch::tensor({{0.0F, -255.0F, 0.5F}, {255.0F, 255.0F, 0.5F}, {127.5F, 0.0F, 0.5F}});
  // By hand: floor((x - least) / ((most - least) / 255)), and 0 in a column of one number.
  const auto bytes = [](std::vector<int64_t> values, int64_t columns) {
    return torch::tensor(values).view({3, columns});
  };
  const auto formed = [&](VectorForm form) { return in_form(vectors, form).to(torch::kLong); };
  CHECK(formed(VectorForm::kUint8).equal(bytes({0, 0, 0, 255, 255, 0, 127, 127, 0}, 3)));
  CHECK(formed(VectorForm::kInt8).equal(bytes({-128, -128, -128, 127, 127, -128, -1, -1, -128}, 3)));
  CHECK(formed(VectorForm::kUbinary).equal(bytes({0b00100000, 0b11100000, 0b10100000}, 1)));
  CHECK(formed(VectorForm::kBinary).equal(bytes({32 - 128, 224 - 128, 160 - 128}, 1)));
  CHECK(in_form(vectors, VectorForm::kInt8).scalar_type() == torch::kChar);
  CHECK(in_form(vectors, VectorForm::kUbinary).scalar_type() == torch::kByte);
}

}  // namespace bert
