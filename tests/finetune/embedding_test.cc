// Sentence embeddings: the losses beside those of sentence-transformers, and runs with a tiny model.
#include <torch/types.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "app/checkpoint/files.h"
#include "app/finetune/embedding_losses.h"
#include "app/finetune/embedding_scoring.h"
#include "app/inference/predictor.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "app/verbs/verbs.h"
#include "tests/support/command_testing.h"
#include "tests/support/lines.h"
#include "tests/support/load_checkpoint.h"
#include "tests/support/pretrain_process.h"
#include "tests/support/tiny_finetuning.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::Approx;
using bert::testing::Contains;
using bert::testing::finetuning_refusal;
using bert::testing::load_checkpoint;
using bert::testing::metrics_of;
using bert::testing::result_of;
using bert::testing::run_command;
using bert::testing::start;
using bert::testing::TemporaryDirectory;
using bert::testing::tiny_task_of;
using nlohmann::json;
using torch::Tensor;

namespace {

Tensor doubles(const json& numbers, at::IntArrayRef sizes) {
  return torch::tensor(numbers.get<std::vector<double>>(), torch::kDouble).view(sizes);
}

/// A set with the settings of a case.
EmbeddingSetConfig set_of(const json& golden_case) {
  EmbeddingSetConfig set;
  set.loss = value_named<EmbeddingLoss>(golden_case["loss"].get<std::string>()).value();
  const json& settings = golden_case["settings"];
  set.scale = settings.value("scale", set.scale);
  set.margin = settings.value("margin", set.margin);
  set.symmetric = settings.value("symmetric", set.symmetric);
  set.distance = value_named<VectorDistance>(settings.value("distance", std::string("default"))).value();
  return set;
}

/// Sixteen pairs; texts of a pair share a number.
FinetuneConfig tiny_pairs(const TemporaryDirectory& directory, const std::string& run) {
  FinetuneConfig config = tiny_task_of("embedding", directory);
  config.run_directory = directory.path(run);
  for (const std::string& path : {config.data.train_file, config.data.dev_file}) {
    std::ofstream table(path);
    table << "anchor,positive\n";
    for (int i = 0; i < 16; ++i) table << fmt::format("{} {} 60,{} {}\n", 5 + i, 21 + i, 5 + i, 61 + i % 3);
  }
  config.embedding.sets = {{}};
  config.embedding.sampling = SetSampling::kProportional;
  config.global_batch_size = config.micro_batch_size = 8;
  return config;
}

/// The largest difference of the gradients of the first step, in relation to the norm of all: the first moments of Adam
/// are a tenth of them.
double gradient_gap(const FinetuneConfig& one, const FinetuneConfig& other) {
  const StateDict of_one = load_checkpoint(checkpoint_directory(one.run_directory, 1)).optimizer,
                  of_other = load_checkpoint(checkpoint_directory(other.run_directory, 1)).optimizer;
  double largest = 0, squares = 0;
  for (const auto& item : of_one) {
    if (item.key().find("exp_avg") == std::string::npos || item.key().find("exp_avg_sq") != std::string::npos) continue;
    const Tensor a = item.value().to(torch::kDouble), b = of_other[item.key()].to(torch::kDouble);
    largest = std::max(largest, (a - b).abs().max().item<double>());
    squares += a.square().sum().item<double>();
  }
  REQUIRE(squares > 0);
  return largest / std::sqrt(squares);
}

std::vector<double> losses_of(const FinetuneConfig& config) {
  std::vector<double> losses;
  for (const json& line : metrics_of(config.run_directory)) {
    if (line.contains("loss") && !line.contains("evaluation")) losses.push_back(line["loss"]);
  }
  return losses;
}

}  // namespace

TEST_CASE("Losses and gradients of embeddings are those of sentence-transformers", "[unit][finetune]") {
  const json golden = json::parse(std::ifstream(bert::testing::golden("embedding_losses.json")));
  const int64_t rows = golden["rows"], texts = golden["texts"], size = golden["size"];
  const Tensor vectors = doubles(golden["vectors"], {rows, texts, size});
  const Tensor teacher = doubles(golden["teacher"], {rows, texts, size});
  for (const json& each : golden["cases"]) {
    CAPTURE(each["loss"], each["settings"].dump(), each["columns"], each["dimensions"].dump());
    const int64_t columns = each["columns"];
    const Tensor leaf = vectors.narrow(1, 0, columns).clone().set_requires_grad(true);
    EmbeddingTargets targets{.teacher = teacher.narrow(1, 0, columns),
                             .classifier_weight = doubles(golden["classifier_weight"], {3, 3 * size}),
                             .classifier_bias = doubles(golden["classifier_bias"], {3})};
    if (!each["labels"].empty()) targets.labels = doubles(each["labels"], {rows});
    const auto dimensions = matryoshka_of(each["dimensions"].get<std::vector<std::string>>(), size);
    const Tensor loss = embedding_loss(set_of(each), leaf, targets, dimensions);
    loss.backward();
    CHECK(loss.item<double>() == Approx(each["value"].get<double>()).epsilon(1e-9));
    const Tensor expected = doubles(each["gradient"], leaf.sizes());
    CHECK((leaf.grad() - expected).abs().max().item<double>() < 1e-9 * expected.abs().max().item<double>());
  }
}

TEST_CASE("A negative that is nearer than the positive by the margin is left out", "[unit][finetune]") {
  // Anchor and positive at 60 degrees; the other row's positive is the anchor itself, with a cosine of 1.
  const Tensor vectors =
      torch::tensor({1.0, 0.0, 0.5, std::sqrt(0.75), 0.0, 1.0, 1.0, 0.0}, torch::kDouble).view({2, 2, 2});
  EmbeddingSetConfig set{.scale = 1};
  const double whole = embedding_loss(set, vectors, {}, {}).item<double>();
  set.false_negative_margin = 0.4;  // 1 > 0.5 + 0.4 in the first row; cos(60) < 0 + 0.9 in the second: 0.866 > 0.4
  const double masked = embedding_loss(set, vectors, {}, {}).item<double>();
  const double first = std::log(std::exp(0.5) + std::exp(1.0)) - 0.5;
  const double second = std::log(std::exp(std::sqrt(0.75)) + std::exp(0.0));
  CHECK(whole == Approx((first + second) / 2).epsilon(1e-12));
  CHECK(masked == Approx(0.0).margin(1e-12));
  set.false_negative_margin = 0.6;  // the first negative stays
  CHECK(embedding_loss(set, vectors, {}, {}).item<double>() == Approx(first / 2).epsilon(1e-12));
}

TEST_CASE("Neither micro-batches nor ranks change the loss and the gradients of a step", "[distributed][finetune]") {
  const TemporaryDirectory directory;
  std::vector<FinetuneConfig> configs;
  for (const int64_t micro_batch : {8, 2, 4}) {
    FinetuneConfig& config = configs.emplace_back(tiny_pairs(directory, fmt::format("micro-{}", micro_batch)));
    config.micro_batch_size = micro_batch;
    config.max_steps = 20;
    config.log_every = config.checkpoint_every = 1;
    config.keep_checkpoints = 20;
    config.optimizer.max_grad_norm = 0;
    REQUIRE(result_of(start(config, "", micro_batch == 4 ? 2 : 1)) == kOk);
  }
  for (size_t i = 1; i < configs.size(); ++i) {
    CAPTURE(i);
    CHECK(gradient_gap(configs[0], configs[i]) < 1e-6);
    const std::vector<double> expected = losses_of(configs[0]), got = losses_of(configs[i]);
    REQUIRE(expected.size() == 20);
    REQUIRE(got.size() == 20);
    for (size_t step = 0; step < got.size(); ++step) CHECK(got[step] == Approx(expected[step]).epsilon(1e-5));
  }
}

TEST_CASE("A tiny model learns pairs, and its run is a sentence encoder", "[unit][finetune]") {
  const TemporaryDirectory directory;
  FinetuneConfig config = tiny_pairs(directory, "run");
  config.micro_batch_size = 4;
  config.max_steps = 60;
  config.embedding.pooling = TrainedPooling::kMax;
  config.embedding.normalize = true;
  REQUIRE(finetune(config, false) == kOk);
  const json summary = json::parse(read_file(config.run_directory + "/summary.json"));
  CHECK(summary["cosine_accuracy@1"].get<double>() > 0.9);  // the number that both texts of a pair have is learnt
  CHECK(summary["cosine_ndcg@10"].get<double>() >= summary["cosine_mrr@10"].get<double>());

  const Pretrained trained = load_pretrained(config.run_directory);
  REQUIRE(trained.model.sentence);
  CHECK(trained.model.task.empty());
  CHECK((trained.model.sentence->pooling == std::vector{SentencePooling::kMax}));
  CHECK(trained.model.max_tokens == config.data.task.max_seq_length);
  const Predictor predictor(trained, {});
  const std::vector<EncodedText> texts = {predictor.encode(Task::kEmbedding, "5 21 60")};
  const std::vector<Tensor> vectors = predictor.sentence_embeddings(texts);
  CHECK(vectors[0].norm().item<double>() == Approx(1.0).epsilon(1e-6));
  const json model = json::parse(read_file(config.run_directory + "/latest/config.json"));
  CHECK(model["architectures"] == json({"BertModel"}));

  const std::string converted = directory.path("hf");  // as sentence-transformers opens it
  REQUIRE(run_command(convert_command,
                      {"convert", "--to", "huggingface", "--input", config.run_directory, "--output", converted})
              .code == kOk);
  CHECK(read_file(converted + "/modules.json").find("2_Normalize") != std::string::npos);
  const Predictor other(load_pretrained(converted), {});
  const std::vector<EncodedText> same = {other.encode(Task::kEmbedding, "5 21 60")};
  CHECK(torch::equal(other.sentence_embeddings(same)[0], vectors[0]));

  FinetuneConfig next = tiny_pairs(directory, "next");  // a run of embeddings can begin with another one
  next.initial_checkpoint = config.run_directory;
  REQUIRE(finetune(next, false) == kOk);
  CHECK((load_pretrained(next.run_directory).model.sentence->pooling == std::vector{SentencePooling::kMax}));
}

TEST_CASE("A model learns the vectors of its teacher, and classes of pairs", "[unit][finetune]") {
  const TemporaryDirectory directory;
  FinetuneConfig teacher = tiny_pairs(directory, "teacher");
  REQUIRE(finetune(teacher, false) == kOk);
  FinetuneConfig config = tiny_pairs(directory, "run");
  config.embedding.sets = {{.loss = EmbeddingLoss::kMse}};
  config.distillation.teacher = teacher.run_directory;
  config.max_steps = 30;
  config.log_every = 1;
  for (const int64_t micro_batch : {8, 4}) {
    config.micro_batch_size = micro_batch;
    config.run_directory = directory.path(fmt::format("student-{}", micro_batch));
    REQUIRE(finetune(config, false) == kOk);
    const std::vector<double> losses = losses_of(config);
    CHECK(losses.back() < 0.5 * losses.front());
  }
  FinetuneConfig classes = tiny_pairs(directory, "classes");
  std::ofstream table(classes.data.train_file);
  table << "premise,hypothesis,label\n";
  for (int i = 0; i < 16; ++i) table << fmt::format("{},{},{}\n", 5 + i, 5 + i + i % 2, i % 2 == 0 ? "same" : "other");
  table.close();
  classes.embedding.sets = {{.loss = EmbeddingLoss::kSoftmax}};
  classes.max_steps = 60;
  classes.log_every = 1;
  for (const int64_t micro_batch : {8, 4}) {
    classes.micro_batch_size = micro_batch;
    classes.run_directory = directory.path(fmt::format("classes-{}", micro_batch));
    REQUIRE(finetune(classes, false) == kOk);
    CHECK(losses_of(classes).back() < 0.8 * losses_of(classes).front());
    CHECK_FALSE(load_pretrained(classes.run_directory).weights.contains("classifier.weight"));
  }
  classes.run_directory += "-refused";
  classes.data.dev_file = classes.data.train_file;
  CHECK(Contains("want a number").match(finetuning_refusal<DataError>(classes)));  // development scores similarity
}

TEST_CASE("Development rows have two texts and a score that is no class; long texts are refused where asked",
          "[unit][finetune]") {
  const TemporaryDirectory directory;
  FinetuneConfig config = tiny_pairs(directory, "run");
  config.embedding.sets = {{}};
  config.data.task.long_texts = LongTexts::kRefuse;
  config.data.task.max_seq_length = 8;
  config.given.insert("/data/max_seq_length");
  std::ofstream rows(config.data.train_file);
  rows << "a,b\n";
  for (int i = 5; i < 21; ++i) rows << fmt::format("{} 6 7 8 9 10 11 12,{} 7\n", i, i);
  rows.close();
  CHECK_THAT(finetuning_refusal<DataError>(config), Contains("data.long_texts=truncate cuts them"));
  config.data.task.long_texts = LongTexts::kTruncate;
  config.data.dev_file = directory.path("alone.csv");
  std::ofstream(config.data.dev_file) << "text\n5\n6\n";
  CHECK_THAT(finetuning_refusal<DataError>(config), Contains("alone.csv: a row has one text; expected two"));
  rows.open(config.data.train_file);
  rows << "a,b,label\n";
  for (int i = 5; i < 21; ++i) rows << fmt::format("{},{},{}\n", i, i + 1, i % 2);
  rows.close();
  std::filesystem::copy_file(config.data.train_file, config.data.dev_file,
                             std::filesystem::copy_options::overwrite_existing);
  config.embedding.sets = {{.loss = EmbeddingLoss::kSoftmax}};
  CHECK_THAT(finetuning_refusal<DataError>(config), Contains("alone.csv: its labels are classes"));
}

TEST_CASE("Sets that do not fit their loss are refused", "[unit][finetune]") {
  const TemporaryDirectory directory;
  FinetuneConfig config = tiny_pairs(directory, "run");
  config.embedding.sets = {{.loss = EmbeddingLoss::kTriplet}};
  CHECK(Contains("a row has 2 texts, and the loss triplet takes 3").match(finetuning_refusal<DataError>(config)));
  config.embedding.sets = {{.loss = EmbeddingLoss::kCoSent}};
  CHECK(Contains("the loss cosent reads a score").match(finetuning_refusal<DataError>(config)));
  config.embedding.sets = {{}};
  config.embedding.matryoshka_dimensions = {"8", "1024"};
  CHECK(Contains("\"1024\", and the vectors have 32").match(finetuning_refusal<ConfigError>(config)));
  config.embedding.matryoshka_dimensions = {"8:x"};
  CHECK(Contains("\"8:x\"; want a number").match(finetuning_refusal<ConfigError>(config)));
}
