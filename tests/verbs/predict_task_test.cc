// bert predict with fine-tuned models: as runs, exports and directories of transformers.
#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "app/finetune/finetuning_run.h"
#include "app/inference/label_order.h"
#include "app/system/exit_codes.h"
#include "app/verbs/torch_verbs.h"
#include "app/verbs/verbs.h"
#include "data/io/files.h"
#include "tests/support/command_testing.h"
#include "tests/support/predict_command.h"
#include "tests/support/tiny_finetuning.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::Approx;
using bert::testing::Contains;
using bert::testing::lines_of;
using bert::testing::predict;
using bert::testing::run_command;
using bert::testing::TemporaryDirectory;
using nlohmann::json;

namespace {

/// The cells of a table without its first line.
std::vector<std::vector<std::string>> rows_of(const std::string& path) {
  std::vector<std::vector<std::string>> rows;
  std::istringstream in(read_file(path));
  std::string line;
  std::getline(in, line);
  while (std::getline(in, line)) {
    std::istringstream cells(line);
    rows.emplace_back();
    for (std::string cell; std::getline(cells, cell, '\t');) rows.back().push_back(cell);
  }
  return rows;
}

/// The answers of `bert predict` for the texts of a file, which must be the same from the run, from its TorchScript
/// export and, but for SQuAD 2.0's null threshold, from the directory that `bert convert` writes for transformers.
std::vector<json> answers_of_all(const TemporaryDirectory& directory, const FinetuneConfig& config,
                                 std::vector<std::string> options) {
  const std::string script = directory.path(config.task + ".pt"), converted = directory.path(config.task + "-hf");
  REQUIRE(run_command(export_command, {"export", "--checkpoint", config.run_directory, "--output", script}).code ==
          kOk);
  REQUIRE(run_command(convert_command,
                      {"convert", "--to", "huggingface", "--input", config.run_directory, "--output", converted})
              .code == kOk);
  std::vector<std::string> said;
  for (const std::string& checkpoint : {config.run_directory, script, converted}) {
    CAPTURE(checkpoint);
    const auto result = predict(checkpoint, options);
    CAPTURE(result.err);
    REQUIRE(result.code == kOk);
    said.push_back(result.out);
  }
  CHECK(said[1] == said[0]);
  if (config.task != "squad-v2") CHECK(said[2] == said[0]);
  return lines_of<json>(said[0]);
}

}  // namespace

TEST_CASE("bert predict labels texts as the evaluation of the run did", "[unit][predict][finetune]") {
  const TemporaryDirectory directory;
  FinetuneConfig config = bert::testing::tiny_task_of("text-classification", directory);
  config.max_steps = 40;  // both labels occur
  REQUIRE(finetune(config, false) == kOk);
  const auto rows = rows_of(config.run_directory + "/dev_predictions.tsv");
  REQUIRE(rows.size() == 10);
  std::ofstream texts(directory.path("texts"));
  for (int i = 5; i < 15; ++i) texts << i << " " << i + 1 << "\n";
  texts.close();
  const std::vector<std::string> options = {"--task", "text-classification", "--input", directory.path("texts")};
  const std::vector<json> answers = answers_of_all(directory, config, options);
  REQUIRE(answers.size() == rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    CHECK(answers[i]["label"] == rows[i].at(1));
    CHECK(answers[i]["score"] >= 0.5);
  }

  const std::vector<json> labels =
      lines_of<json>(predict(config.run_directory,
                             {"--task", "text-classification", "--top-k", "5", "--input", directory.path("texts")})
                         .out);
  for (size_t i = 0; i < rows.size(); ++i) {
    const json& list = labels.at(i)["labels"];
    REQUIRE(list.size() == 2);
    CHECK(list[0]["label"] == answers[i]["label"]);
    CHECK(list[1]["label"] == (list[0]["label"] == "odd" ? "even" : "odd"));
    CHECK(list[0]["score"].get<double>() + list[1]["score"].get<double>() == Approx(1));
  }
}

TEST_CASE("Outputs are labels that exclude each other, labels by themselves, or numbers, as problem_type says",
          "[unit][predict][finetune]") {
  const TemporaryDirectory directory;
  const FinetuneConfig config = bert::testing::tiny_task_of("text-classification", directory);
  REQUIRE(finetune(config, false) == kOk);
  const std::string model = directory.path("converted");
  REQUIRE(run_command(convert_command,
                      {"convert", "--to", "huggingface", "--input", config.run_directory, "--output", model})
              .code == kOk);
  const auto answer = [&](const char* problem, std::vector<std::string> options = {}) {
    json file = json::parse(read_file(model + "/config.json"));
    file["problem_type"] = problem == nullptr ? json() : json(problem);
    file["finetuning_task"] = json();
    std::ofstream(model + "/config.json") << file;
    options.insert(options.begin(), {"--task", "text-classification"});
    options.emplace_back("5 6");
    const auto result = predict(model, options);
    CAPTURE(result.err);
    REQUIRE(result.code == kOk);
    return json::parse(result.out);
  };
  std::map<std::string, double> shares, alone;
  const json exclusive = answer(nullptr, {"--top-k", "2"});
  for (const json& label : exclusive["labels"]) shares[label["label"]] = label["score"];
  const json independent = answer("multi_label_classification");
  REQUIRE(independent["labels"].size() == 2);  // all of them
  for (const json& label : independent["labels"]) alone[label["label"]] = label["score"];
  const auto logit = [&](const std::string& name) { return std::log(alone.at(name) / (1 - alone.at(name))); };
  const double difference = std::log(shares.at("even") / shares.at("odd"));  // of the two logits
  CHECK(logit("even") - logit("odd") == Approx(difference).margin(1e-4));
  CHECK(answer("multi_label_classification", {"--top-k", "1"})["labels"].size() == 1);
  const json numbers = answer("regression")["values"];
  REQUIRE(numbers.size() == 2);
  CHECK(std::abs(numbers[0].get<double>() - numbers[1].get<double>()) == Approx(std::abs(difference)).margin(1e-4));
}

TEST_CASE("A text that is too long is cut and counted, or refused", "[unit][predict][finetune]") {
  const TemporaryDirectory directory;
  const FinetuneConfig config = bert::testing::tiny_task_of("text-classification", directory);
  REQUIRE(finetune(config, false) == kOk);
  std::string text;
  for (int i = 0; i < 100; ++i) text += "5 ";
  const std::vector<std::string> options = {"--task", "text-classification", text, "5 6"};
  const auto cut = predict(config.run_directory, options);
  CHECK(cut.code == kOk);
  CHECK_THAT(cut.err, Contains("1 of 2 texts have more than ") && Contains("were cut; --long refuse refuses them"));
  std::vector<std::string> strict = options;
  strict.insert(strict.end(), {"--long", "refuse"});
  const auto refused = predict(config.run_directory, strict);
  CHECK(refused.code == kBadData);
  CHECK_THAT(refused.err, Contains("TEXT 1: the text has more than "));
}

TEST_CASE("A question that is too long is cut and counted, or refused", "[unit][predict][finetune]") {
  const TemporaryDirectory directory;
  FinetuneConfig config = bert::testing::tiny_task_of("squad-v1", directory);
  config.data.task.max_query_length = 6;
  REQUIRE(finetune(config, false) == kOk);
  std::string question;
  for (int i = 0; i < 100; ++i) question += "5 ";
  std::vector<std::string> options = {"--task", "question-answering", "--question", question, "5 6"};
  const auto cut = predict(config.run_directory, options);
  CHECK(cut.code == kOk);
  CHECK_THAT(cut.err, Contains("1 of 1 texts have more than ") && Contains(" in the question, which the model reads"));
  options.insert(options.end(), {"--long", "refuse"});
  const auto refused = predict(config.run_directory, options);
  CHECK(refused.code == kBadData);
  CHECK_THAT(refused.err, Contains("TEXT 1: the question has more than "));
}

TEST_CASE("A head gets the order of the wanted labels by their names", "[unit][predict]") {
  Pretrained model{.name = "m"};
  model.model.labels = {"neutral", "Entailment", "contradiction"};
  model.weights.insert("classifier.weight", torch::tensor({{1.0F}, {2.0F}, {3.0F}}));
  model.weights.insert("classifier.bias", torch::tensor({4.0F, 5.0F, 6.0F}));
  model.weights.insert("bert.x", torch::tensor({7.0F, 8.0F, 9.0F}));
  const std::vector<std::string> wanted = {"contradiction", "entailment", "neutral"};
  CHECK(order_labels(model, wanted) == LabelMatch::kByName);
  CHECK(model.model.labels == wanted);
  CHECK(torch::equal(model.weights["classifier.weight"], torch::tensor({{3.0F}, {2.0F}, {1.0F}})));
  CHECK(torch::equal(model.weights["classifier.bias"], torch::tensor({6.0F, 5.0F, 4.0F})));
  CHECK(torch::equal(model.weights["bert.x"], torch::tensor({7.0F, 8.0F, 9.0F})));
  CHECK(order_labels(model, wanted) == LabelMatch::kSame);
  CHECK(order_labels(model, {"LABEL_0", "LABEL_1", "LABEL_2"}) == LabelMatch::kByPosition);
  CHECK(torch::equal(model.weights["classifier.bias"], torch::tensor({6.0F, 5.0F, 4.0F})));
  CHECK_THROWS_WITH(order_labels(model, {"LABEL_0", "LABEL_1", "other"}), Contains("m: has the 3 classes LABEL_0"));
  CHECK_THROWS_WITH(order_labels(model, {"a", "b"}), Contains("expected the 2 classes a, b"));
}

TEST_CASE("bert predict gives the numbers of a regression", "[unit][predict][finetune]") {
  const TemporaryDirectory directory;
  const FinetuneConfig config = bert::testing::tiny_task_of("text-regression", directory);
  REQUIRE(finetune(config, false) == kOk);
  const auto rows = rows_of(config.run_directory + "/dev_predictions.tsv");
  const std::vector<json> answers = answers_of_all(directory, config, {"--task", "text-classification", "5 6", "6 7"});
  REQUIRE(answers.size() == 2);
  for (size_t i = 0; i < 2; ++i) CHECK(answers[i]["value"] == Approx(std::stod(rows.at(i).at(1))).margin(1e-3));
}

TEST_CASE("bert predict labels words as the evaluation of the run did", "[unit][predict][finetune]") {
  const TemporaryDirectory directory;
  const FinetuneConfig config = bert::testing::tiny_task_of("ner", directory);
  REQUIRE(finetune(config, false) == kOk);
  const std::vector<json> answers =
      answers_of_all(directory, config, {"--task", "token-classification", "5 6", "5 7", "5 8"});
  std::string lines;
  for (const json& answer : answers) {
    for (size_t i = 0; i < 2; ++i) {
      const json& word = answer["words"].at(i);
      lines += fmt::format("{} {} {}\n", word["word"].get<std::string>(), i == 0 ? "O" : "B-X",
                           word["label"].get<std::string>());
    }
    lines += "\n";
  }
  CHECK(read_file(config.run_directory + "/dev_predictions.txt").substr(0, lines.size()) == lines);
}

TEST_CASE("bert predict answers as the evaluation of the run did, and gives the n best", "[unit][predict][finetune]") {
  const TemporaryDirectory directory;
  for (const char* task : {"squad-v1", "squad-v2"}) {
    CAPTURE(task);
    const FinetuneConfig config = bert::testing::tiny_task_of(task, directory);
    REQUIRE(finetune(config, false) == kOk);
    // With --handle-impossible-answer a model of SQuAD 1.1 has "" among its answers, too.
    const std::vector<json> with_none =
        lines_of<json>(predict(config.run_directory, {"--task", "question-answering", "--question", "20 21", "--top-k",
                                                      "1000", "--handle-impossible-answer", "5 6 7"})
                           .out);
    const json& found = with_none.at(0)["answers"];
    CHECK(std::count_if(found.begin(), found.end(), [](const json& each) { return each["answer"] == ""; }) == 1);
    const json predictions = json::parse(read_file(config.run_directory + "/predictions.json")),
               n_best = json::parse(read_file(config.run_directory + "/nbest_predictions.json"));
    std::vector<std::string> options = {"--task", "question-answering", "--question", "20 21",
                                        "5 6 7 8 9 10 11 12 13 14 15 16"};
    const std::vector<json> answers = answers_of_all(directory, config, options);
    REQUIRE(answers.size() == 1);
    const bool no_answers = std::string(task) == "squad-v2";
    CHECK(answers[0]["answer"] == predictions["a"]);
    options.insert(options.end(), {"--top-k", "3"});
    const std::vector<json> several = lines_of<json>(predict(config.run_directory, options).out);
    REQUIRE(several.at(0)["answers"].size() == 3);
    CHECK(several[0]["answers"][0]["answer"] == answers[0]["answer"]);
    if (no_answers) continue;
    for (size_t i = 0; i < 3; ++i) {
      CHECK(several[0]["answers"][i]["answer"] == n_best["a"][i]["text"]);
      CHECK(several[0]["answers"][i]["score"] == Approx(n_best["a"][i]["probability"].get<double>()).epsilon(1e-3));
    }
  }
}

TEST_CASE("An answer's place is in characters of its context, and lines without an answer are told first",
          "[unit][predict][finetune]") {
  const TemporaryDirectory directory;
  const FinetuneConfig config = bert::testing::tiny_task_of("squad-v1", directory);
  REQUIRE(finetune(config, false) == kOk);
  const std::string lines = directory.path("lines.jsonl");
  std::ofstream(lines) << R"({"context": "\u00e9\u00e9  5 6 \t 7 8", "question": "20"})"
                       << "\n"
                       << R"({"context": "5 6"})"
                       << "\n"
                       << R"({"context": " ", "question": "20"})"
                       << "\n"
                       << R"({"context": "5 6", "question": "20"})"
                       << "\n";
  std::vector<std::string> options = {"--task",  "question-answering", "--input", lines, "--text-field",
                                      "context", "--pair-field",       "question"};
  const auto refused = predict(config.run_directory, options);
  CHECK(refused.code == kBadData);
  CHECK(refused.out.empty());
  CHECK_THAT(refused.err, Contains("lines.jsonl: line 2: no text in the field \"question\" (--pair-field)") &&
                              Contains("(and 2 of 4 in all)") && Contains("--skip-bad"));
  options.emplace_back("--skip-bad");
  const auto skipped = predict(config.run_directory, options);
  CHECK(skipped.code == kOk);
  CHECK_THAT(skipped.err, Contains("left out 2 of 4 texts without an answer"));
  const std::vector<json> answers = lines_of<json>(skipped.out);
  REQUIRE(answers.size() == 2);
  for (size_t i = 0; i < 2; ++i) {
    CAPTURE(answers[i].dump());
    // One byte for each character: the places count characters.
    const std::string context = i == 0 ? "##  5 6 \t 7 8" : "5 6";
    const auto start = answers[i]["start"].get<size_t>(), end = answers[i]["end"].get<size_t>();
    std::string want, got = answers[i]["answer"].get<std::string>();
    std::istringstream words(context.substr(start, end - start));
    for (std::string word; words >> word;) want += (want.empty() ? "" : " ") + word;
    std::erase(got, '\xC3');  // the first byte of an accented e
    std::replace(got.begin(), got.end(), '\xA9', '#');
    CHECK(got == want);
    CHECK(end > start);
  }
}

TEST_CASE("An empty line is a text as in transformers' pipelines: it has a class, no words, and no answers",
          "[unit][predict][finetune]") {
  const TemporaryDirectory directory;
  const auto answers_to = [&](const char* task, const char* run, const std::vector<std::string>& more) {
    const FinetuneConfig config = bert::testing::tiny_task_of(run, directory);
    REQUIRE(finetune(config, false) == kOk);
    std::vector<std::string> options = {"--task", task, "--input", "-"};
    options.insert(options.end(), more.begin(), more.end());
    return predict(config.run_directory, options, "5 6\n\n");
  };
  const std::vector<json> classes = lines_of<json>(answers_to("text-classification", "text-classification", {}).out);
  REQUIRE(classes.size() == 2);
  CHECK(classes[1]["text"] == "");
  CHECK(classes[1]["label"].is_string());
  const std::vector<json> words = lines_of<json>(answers_to("token-classification", "ner", {}).out);
  REQUIRE(words.size() == 2);
  CHECK(words[1]["words"] == json::array());
  const auto refused = answers_to("question-answering", "squad-v1", {"--question", "20"});
  CHECK(refused.code == kBadData);
  CHECK_THAT(refused.err, Contains("standard input: line 2: question-answering: a context has no words"));
}

TEST_CASE("Fine-tuned models answer with int8 about as with fp32", "[unit][predict][finetune]") {
  const TemporaryDirectory directory;
  FinetuneConfig config = bert::testing::tiny_task_of("text-classification", directory);
  config.max_steps = 40;
  REQUIRE(finetune(config, false) == kOk);
  const auto probability_of = [&](const std::string& precision) {
    const auto result =
        predict(config.run_directory, {"--task", "text-classification", "--precision", precision, "5 6"});
    CAPTURE(result.err);
    REQUIRE(result.code == kOk);
    return lines_of<json>(result.out).at(0);
  };
  const json exact = probability_of("fp32"), bytes = probability_of("int8");
  CHECK(bytes["label"] == exact["label"]);
  CHECK(bytes["score"].get<double>() == Approx(exact["score"].get<double>()).margin(0.1));
  CHECK(bytes["score"] != exact["score"]);
  CHECK(run_command(evaluate_torch_command, {"evaluate", "text-classification", "--dataset", config.data.dev_file,
                                             "--checkpoint", config.run_directory, "--precision", "int8"})
            .code == kOk);
}

TEST_CASE("bert predict refuses models of another task and options that do not fit", "[unit][predict][finetune]") {
  const TemporaryDirectory directory;
  const FinetuneConfig config = bert::testing::tiny_task_of("swag", directory);
  REQUIRE(finetune(config, false) == kOk);
  const auto error_of = [&](const std::string& checkpoint, const std::vector<std::string>& more) {
    const auto result = predict(checkpoint, more);
    CHECK(result.out.empty());
    return fmt::format("{} {}", result.code, result.err);
  };
  CHECK_THAT(error_of(config.run_directory, {"--task", "text-classification", "5"}),
             Contains("65 ") && Contains("was fine-tuned on swag, for which bert predict has no task"));
  CHECK_THAT(error_of(directory.path("model"), {"--task", "text-classification", "5"}),
             Contains("65 ") && Contains("was not fine-tuned"));
  CHECK_THAT(error_of(config.run_directory, {"--task", "token-classification", "--top-k", "2", "5"}),
             Contains("2 ") && Contains("--top-k is an option of"));
  CHECK_THAT(error_of(config.run_directory, {"--task", "question-answering", "5"}),
             Contains("2 ") && Contains("needs --question"));
  CHECK_THAT(error_of(config.run_directory, {"--task", "text-classification", "--handle-impossible-answer", "5"}),
             Contains("2 ") && Contains("is an option of --task question-answering"));
}

TEST_CASE("bert evaluate of a checkpoint gives the figures and the files of the run", "[unit][predict][finetune]") {
  const TemporaryDirectory directory;
  for (const char* task : {"text-classification", "multi-label-classification", "text-regression", "ner", "squad-v1",
                           "squad-v2", "swag"}) {
    CAPTURE(task);
    FinetuneConfig config = bert::testing::tiny_task_of(task, directory);
    config.data.task.max_seq_length = 12;  // contexts have several windows
    REQUIRE(finetune(config, false) == kOk);
    const json summary = json::parse(read_file(config.run_directory + "/summary.json"));
    const std::string out = directory.path(std::string(task) + "-out"),
                      converted = directory.path(std::string(task) + "-hf");
    REQUIRE(run_command(convert_command,
                        {"convert", "--to", "huggingface", "--input", config.run_directory, "--output", converted})
                .code == kOk);
    for (const std::string& checkpoint : {config.run_directory, converted}) {
      CAPTURE(checkpoint);
      std::vector<std::string> arguments = {"evaluate",     task,       "--dataset",          config.data.dev_file,
                                            "--checkpoint", checkpoint, "--output-directory", out};
      if (checkpoint == converted) arguments.insert(arguments.end(), {"data.max_seq_length=12", "data.doc_stride=4"});
      const auto result = run_command(evaluate_torch_command, arguments);
      CAPTURE(result.err);
      REQUIRE(result.code == kOk);
      const json figures = json::parse(result.out);
      CHECK_FALSE(figures.empty());
      for (const auto& [name, value] : figures.items())
        CHECK(value.get<double>() == Approx(summary.at(name).get<double>()));
      for (const auto& file : std::filesystem::directory_iterator(out)) {
        const std::string name = file.path().filename();
        if (name.find("nbest") != std::string::npos || name.find("odds") != std::string::npos)
          continue;  // digits of sums
        CHECK(read_file(file.path()) == read_file(config.run_directory + "/" + name));
      }
      CHECK_FALSE(std::filesystem::is_empty(out));
      std::filesystem::remove_all(out);
    }
  }
  const auto error_of = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "evaluate");
    const auto result = run_command(evaluate_torch_command, arguments);
    CHECK(result.out.empty());
    return fmt::format("{} {}", result.code, result.err);
  };
  const std::string tags = directory.path("ner"), table = directory.path("text-classification-dev.csv");
  CHECK_THAT(error_of({"text-classification", "--dataset", table, "--checkpoint", tags}),
             Contains("65 ") && Contains("was fine-tuned on ner; expected a model for text-classification"));
  CHECK_THAT(error_of({"text-classification", "--dataset", table, "--checkpoint", directory.path("model")}),
             Contains("65 ") && Contains("was not fine-tuned"));
  CHECK_THAT(error_of({"text-classification", "--dataset", table, "--checkpoint", directory.path("text-classification"),
                       "data.max_seq_length=500"}),
             Contains("65 ") && Contains("has 24 positions"));
  std::ofstream(directory.path("other.csv")) << "text,label\n5 6,blue\n";
  CHECK_THAT(error_of({"text-classification", "--dataset", directory.path("other.csv"), "--checkpoint",
                       directory.path("text-classification")}),
             Contains("65 ") && Contains("other.csv") && Contains("blue"));
  CHECK_THAT(
      error_of({"mnli", "--dataset", table, "--checkpoint", directory.path("text-classification")}),
      Contains("65 ") && Contains("has the 2 classes even, odd; expected the 3 classes contradiction, entailment"));
}
