// Rerankers: losses over the passages of a query beside those of sentence-transformers, and runs with a tiny model.
#include <torch/types.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "app/finetune/rerank_losses.h"
#include "app/inference/task_predictor.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "tests/support/lines.h"
#include "tests/support/tiny_finetuning.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::Approx;
using bert::testing::Contains;
using bert::testing::finetuning_refusal;
using bert::testing::TemporaryDirectory;
using bert::testing::tiny_task_of;
using nlohmann::json;
using torch::Tensor;

namespace {

/// A query and a passage share a number where the passage is right.
FinetuneConfig tiny_passages(const TemporaryDirectory& directory, RerankLoss loss) {
  FinetuneConfig config = tiny_task_of("text-regression", directory);
  config.task = "rerank";
  config.run_directory = directory.path(name_of_value(loss));
  config.rerank.loss = loss;
  config.data.task.text_column = "query";
  config.data.task.text_pair_column = "passage";
  std::ofstream train(config.data.train_file), dev(config.data.dev_file);
  const bool margins = loss == RerankLoss::kMarginMse;
  train << "query,positive,negative" << (margins ? ",margin" : ",second") << "\n";
  dev << "query,passage,label\n";
  for (int i = 0; i < 16; ++i) {
    const int query = 10 + i % 8, other = 10 + (i + 3) % 8;
    train << fmt::format("{},{} 30,{} 31,{}\n", query, query, other,
                         margins ? std::string("4") : std::to_string(other + 30));
    dev << fmt::format("{0},{0} 30,1\n{0},{1} 31,0\n", query, other);
  }
  if (margins) config.rerank.label_column = "margin";
  config.max_steps = 80;
  config.global_batch_size = config.micro_batch_size = 8;
  config.optimizer.lr = 2e-3;
  config.log_every = 1;
  return config;
}

std::vector<double> rerank_losses_of(const FinetuneConfig& config) {
  std::vector<double> losses;
  for (const json& line : bert::testing::metrics_of(config.run_directory)) {
    if (line.contains("loss") && !line.contains("evaluation")) losses.push_back(line["loss"]);
  }
  return losses;
}

}  // namespace

TEST_CASE("Losses and gradients of rerankers are those of sentence-transformers", "[unit][finetune]") {
  const json golden = json::parse(std::ifstream(bert::testing::golden("cross_encoder_losses.json")));
  const auto doubles = [](const json& numbers) {
    return torch::tensor(numbers.get<std::vector<double>>(), torch::kDouble);
  };
  REQUIRE(golden["cases"].size() == 3);
  for (const json& each : golden["cases"]) {
    CAPTURE(each["loss"], each["passages"]);
    const Tensor logits = doubles(each["logits"])
                              .view({golden["rows"].get<int64_t>(), each["passages"].get<int64_t>()})
                              .set_requires_grad(true);
    const Tensor loss =
        rerank_loss(value_named<RerankLoss>(each["loss"].get<std::string>()).value(), logits, doubles(each["labels"]));
    loss.backward();
    CHECK(loss.item<double>() == Approx(each["value"].get<double>()).epsilon(1e-9));
    CHECK((logits.grad().flatten() - doubles(each["gradient"])).abs().max().item<double>() < 1e-10);
  }
}

TEST_CASE("A tiny model learns to rank the passages of its queries", "[unit][finetune]") {
  const TemporaryDirectory directory;
  for (const RerankLoss loss : {RerankLoss::kCrossEntropy, RerankLoss::kMarginMse}) {
    CAPTURE(name_of_value(loss));
    const FinetuneConfig config = tiny_passages(directory, loss);
    REQUIRE(finetune(config, false) == kOk);
    const std::vector<double> losses = rerank_losses_of(config);
    CHECK(losses.back() < 0.3 * losses.front());
    const TaskPredictor predictor(load_pretrained(config.run_directory), PredictorOptions());
    const auto best = predictor.rerank("12", {"15 31", "12 30"});
    CHECK(best.front().index == 1);
    const auto ids = [&](const TaskInput& input, const AnswerOptions& wishes = {}) {
      return predictor.encode(input, wishes).features.sequences.front().input_ids;
    };
    CHECK(ids({.text = "12", .second = "", .pair = true}) == std::vector<int32_t>{2, 12, 3, 3});
    CHECK(ids({.text = "12", .second = "15 31 7", .pair = true}, {.max_second_tokens = 2}) ==
          std::vector<int32_t>{2, 12, 3, 15, 31, 3});
    std::string text = "13";
    for (int i = 0; i < 30; ++i) text += " 12";
    CHECK(ids({.text = text, .second = ""})[1] == 13);
    CHECK(ids({.text = text, .second = ""}, {.cut_at_begin = true})[1] == 12);
    CHECK(predictor.rerank("12", {"", "12 30"}).front().index == 1);
  }
}

TEST_CASE("The loss of passages does not depend on the micro-batch", "[unit][finetune]") {
  const TemporaryDirectory directory;
  FinetuneConfig config = tiny_passages(directory, RerankLoss::kCrossEntropy);
  config.max_steps = 5;
  REQUIRE(finetune(config, false) == kOk);
  const std::vector<double> expected = rerank_losses_of(config);
  config.micro_batch_size = 2;
  config.run_directory += "-2";
  REQUIRE(finetune(config, false) == kOk);
  const std::vector<double> got = rerank_losses_of(config);
  REQUIRE(got.size() == 5);
  for (size_t i = 0; i < got.size(); ++i) CHECK(got[i] == Approx(expected[i]).epsilon(1e-5));
}

TEST_CASE("A list of negatives trains a reranker as columns do", "[unit][finetune]") {
  const TemporaryDirectory directory;
  FinetuneConfig config = tiny_passages(directory, RerankLoss::kCrossEntropy);
  config.max_steps = 4;
  REQUIRE(finetune(config, false) == kOk);
  const std::string lists = directory.path("lists.jsonl");
  std::ifstream table(config.data.train_file);
  std::ofstream lines(lists);
  std::string row;
  std::getline(table, row);  // the header
  while (std::getline(table, row)) {
    std::vector<std::string> cells;
    std::istringstream stream(row);
    for (std::string cell; std::getline(stream, cell, ',');) cells.push_back(cell);
    lines << json{{"query", cells.at(0)},
                  {"positive", cells.at(1)},
                  {"negatives", json::array({cells.at(2), cells.at(3)})}}
          << "\n";
  }
  lines.close();
  const std::vector<double> expected = rerank_losses_of(config);
  config.data.train_file = lists;
  config.rerank.text_columns = {"query", "positive", "negatives"};
  config.run_directory += "-lists";
  REQUIRE(finetune(config, false) == kOk);
  CHECK(rerank_losses_of(config) == expected);
}

TEST_CASE("Two scores of a row train a reranker as their difference does", "[unit][finetune]") {
  const TemporaryDirectory directory;
  FinetuneConfig config = tiny_passages(directory, RerankLoss::kMarginMse);  // of margins 4
  config.max_steps = 4;
  REQUIRE(finetune(config, false) == kOk);
  const std::vector<double> expected = rerank_losses_of(config);
  std::ifstream table(config.data.train_file);
  config.data.train_file = directory.path("scores.jsonl");
  std::ofstream lines(config.data.train_file);
  std::string query, positive, negative, rest;
  std::getline(table, rest);  // the header
  while (std::getline(table, query, ',') && std::getline(table, positive, ',') && std::getline(table, negative, ',')) {
    std::getline(table, rest);
    lines << json{{"query", query}, {"positive", positive}, {"negative", negative}, {"scores", {6.5, 2.5}}} << "\n";
  }
  lines.close();
  config.rerank.text_columns = {"query", "positive", "negative"};
  config.rerank.label_column = "scores";
  config.run_directory += "-scores";
  REQUIRE(finetune(config, false) == kOk);
  CHECK(rerank_losses_of(config) == expected);
  std::ofstream(config.data.train_file) << json{
      {"query", "10"}, {"positive", "10 30"}, {"negative", "11 31"}, {"scores", {6.5, 2.5, 1}}};
  config.run_directory += "-three";
  CHECK_THAT(finetuning_refusal<DataError>(config), Contains("the list has 3 scores for 3 texts"));
}

TEST_CASE("Rows and settings that do not fit a reranker's loss are refused", "[unit][finetune]") {
  const TemporaryDirectory directory;
  FinetuneConfig config = tiny_passages(directory, RerankLoss::kMarginMse);
  config.rerank.text_columns = {"query", "positive"};
  CHECK_THAT(finetuning_refusal<DataError>(config),
             Contains("a row has 2 texts and a label, and the loss margin_mse takes query, positive, negative"));
  config = tiny_passages(directory, RerankLoss::kCrossEntropy);
  config.rerank.text_columns = {"query", "positive"};
  CHECK_THAT(finetuning_refusal<DataError>(config), Contains("takes query, positive and one negative or more"));
  const auto refusal = [&](FinetuneConfig bad) {
    return bert::testing::message_of<ConfigError>([&] { parse_finetune_config(to_json(bad), "config"); });
  };
  config.task = "text-regression";
  CHECK_THAT(refusal(config), Contains("want task rerank with it"));
  config.task = "rerank";
  config.rerank.loss = RerankLoss::kBinaryCrossEntropy;
  CHECK_THAT(refusal(config), Contains("want none with binary_cross_entropy"));
}
