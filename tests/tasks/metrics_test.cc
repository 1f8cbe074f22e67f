// Metrics of fine-tuning tasks against scikit-learn, scipy, seqeval and SQuAD's scorers (golden/task_metrics.py).
#include <nlohmann/json.hpp>

#include "app/tasks/entity_metrics.h"
#include "app/tasks/flat_json.h"
#include "app/tasks/squad_metrics.h"
#include "app/tasks/text_metrics.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "tests/testing.h"

using namespace bert;
using namespace bert::testing;
using nlohmann::ordered_json;

namespace {

constexpr double kExact = 1e-9;  // of official scores

const ordered_json& official_scores() {
  static const auto data = ordered_json::parse(read_file(golden("task_metrics.json")));
  return data;
}

auto close_to(const ordered_json& value) { return Approx(value.get<double>()).margin(kExact).epsilon(kExact); }

}  // namespace

TEST_CASE("Metrics of classes equal scikit-learn's", "[unit][tasks]") {
  for (const auto& at : official_scores()["classes"]) {
    const auto labels = at["labels"].get<std::vector<int32_t>>(),
               guesses = at["predictions"].get<std::vector<int32_t>>();
    INFO(at.dump());
    CHECK(accuracy(labels, guesses) == close_to(at["accuracy"]));
    CHECK(f1_of_class(labels, guesses, 1) == close_to(at["f1"]));
    CHECK(macro_f1(labels, guesses, 5) == close_to(at["macro_f1"]));
    CHECK(matthews_correlation(labels, guesses, 5) == close_to(at["matthews_correlation"]));
  }
}

TEST_CASE("Correlations equal scipy's", "[unit][tasks]") {
  for (const auto& at : official_scores()["correlations"]) {
    const auto x = at["x"].get<std::vector<double>>(), y = at["y"].get<std::vector<double>>();
    CHECK(pearson(x, y) == close_to(at["pearson"]));
    CHECK(spearman(x, y) == close_to(at["spearman"]));
  }
  const std::vector<double> constant = {2, 2, 2}, other = {1, 2, 3};
  CHECK(pearson(constant, other) == 0);  // scipy: nan, with a warning
  CHECK(spearman(other, constant) == 0);
}

TEST_CASE("Entities are counted as seqeval does", "[unit][tasks]") {
  using Sentences = std::vector<std::vector<std::string>>;
  for (const auto& at : official_scores()["entities"]) {
    const EntityScores scores = entity_scores(at["labels"].get<Sentences>(), at["predictions"].get<Sentences>());
    CHECK(scores.precision == close_to(at["precision"]));
    CHECK(scores.recall == close_to(at["recall"]));
    CHECK(scores.f1 == close_to(at["f1"]));
    CHECK(scores.accuracy == close_to(at["accuracy"]));
  }
  const std::vector<EntitySpan> wanted = {{"LOC", 3, 3}, {"PER", 0, 1}};  // the example in seqeval's documentation
  CHECK(entities_of({"B-PER", "I-PER", "O", "B-LOC"}) == wanted);
}

TEST_CASE("Answers are normalized as by SQuAD's scorers", "[unit][tasks]") {
  for (const auto& row : official_scores()["squad"]["normalized"]) CHECK(normalize_answer(row[0]) == row[1]);
}

TEST_CASE("Scores of SQuAD 2.0 equal those of evaluate-v2.0.py", "[unit][tasks]") {
  const ordered_json& at = official_scores()["squad"];
  SquadDataset data;
  SquadPredictions predictions;
  NullScores nulls;
  for (const auto& [id, answers] : at["answers"].items()) {
    SquadQuestion question;
    question.id = id;
    for (const auto& text : answers) question.answers.push_back({text, 0});
    data.questions.push_back(question);
  }
  for (const auto& [id, text] : at["predictions"].items()) predictions[id] = text;
  for (const auto& [id, score] : at["null_scores"].items()) nulls.emplace_back(id, score);
  const auto check = [&](const SquadEvaluation& evaluation, const ordered_json& wanted, size_t count) {
    CHECK(evaluation.metrics.size() == count);
    for (const auto& [name, value] : evaluation.metrics) {
      INFO(name);
      CHECK(value == close_to(wanted[name == "exact_match" ? "exact" : name]));
    }
  };
  check(evaluate_squad(data, predictions, true), at["scores"], 10);
  check(evaluate_squad(data, predictions, true, nulls), at["scores_with_nulls"], 14);

  predictions.erase("q5");
  CHECK_THROWS_WITH(evaluate_squad(data, predictions, true), Contains("no prediction for the question q5"));
  const SquadEvaluation first = evaluate_squad(data, predictions, false);
  CHECK(first.unanswered == 1);
  CHECK(first.metrics.size() == 2);
  nulls.pop_back();
  predictions["q5"] = "";
  CHECK_THROWS_WITH(evaluate_squad(data, predictions, true, nulls), Contains("no null score for the question q59"));
  CHECK_THROWS_WITH(evaluate_squad(data, {{"other", "x"}}, false), Contains("different data sets"));
}

TEST_CASE("The best answer of SQuAD 1.1 counts", "[unit][tasks]") {
  SquadQuestion question;
  question.answers = {{"New York", 0}, {"the city of New York", 0}};
  // By hand: "new york town" shares 2 of its 3 words with both; F1 2 * 1 * 2/3 / (1 + 2/3) = 0.8 beats 2 * 2 / (3 + 4).
  const AnswerScore score = score_answer(question, "New York town", false);
  CHECK(score.exact_match == 0);
  CHECK(score.f1 == Approx(0.8));
  CHECK(score_answer(question, "new york!", false).exact_match == 1);
  question.answers = {{"the", 0}};
  CHECK(score_answer(question, "a", false).exact_match == 1);  // nothing is left of either, and 1.1 has no F1 for that
  CHECK(score_answer(question, "a", false).f1 == 0);
}

TEST_CASE("Flat JSON keeps the order and names what is wrong", "[unit][tasks]") {
  const TemporaryDirectory directory;
  const std::string path = directory.path("x.json");
  const auto texts = [&](const std::string& content) {
    AtomicFile file(path);
    file.write(content);
    file.commit();
    return read_json_texts(path);
  };
  CHECK(texts(R"({"b": "1", "a": ""})") == std::vector<std::pair<std::string, std::string>>{{"b", "1"}, {"a", ""}});
  CHECK_THROWS_WITH(texts(R"({"b": "1", "b": "2"})"), Contains("the id \"b\" is there twice"));
  CHECK_THROWS_WITH(texts(R"({"b": 1})"), Contains("\"b\": want a string, got a number"));
  CHECK_THROWS_WITH(texts(R"({"b": {"c": "d"}})"), Contains("\"b\": want a string, got an object"));
  CHECK_THROWS_WITH(texts(R"(["b"])"), Contains("want an object with the ids as keys, got an array"));
  CHECK_THROWS_WITH(texts("7"), Contains("want an object"));
  CHECK_THROWS_WITH(texts("{"), Contains("not JSON"));
  texts("{}");
  CHECK_THROWS_WITH(read_json_numbers(directory.path("none")), Contains("none"));
}
