// Entities in the schemes of labels against seqeval's strict mode (golden/labels.py), and as spans in JSON lines.
#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "app/tasks/entity_groups.h"
#include "app/tasks/entity_metrics.h"
#include "data/config.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "data/io/text_parts.h"
#include "data/tasks/label_schemes.h"
#include "data/tasks/task_data.h"
#include "tests/testing.h"

using namespace bert;
using namespace bert::testing;
using nlohmann::json;

namespace {

using Tags = std::vector<std::string>;
using Sentences = std::vector<Tags>;

const json& strict_cases() {
  static const json kCases = json::parse(read_file(golden("labels.json"))).at("entities");
  return kCases;
}

LabelScheme scheme_of(const json& at) { return value_named<LabelScheme>(at["scheme"].get<std::string>()).value(); }

json as_json(const std::vector<EntitySpan>& entities) {
  json list = json::array();
  for (const EntitySpan& entity : entities) list.push_back({entity.type, entity.first, entity.last});
  std::sort(list.begin(), list.end());
  return list;
}

/// The entities that bert predict makes of words with these labels.
json grouped_entities(const Tags& tags, const Tags& labels) {
  std::vector<TaggedToken> tokens;
  for (size_t i = 0; i < tags.size(); ++i) {
    const auto place = static_cast<int64_t>(i);
    TaggedToken& token = tokens.emplace_back();
    token.begin = place;
    token.end = place + 1;
    for (const std::string& label : labels) token.scores.push_back(label == tags[i]);
  }
  json list = json::array();
  for (const Entity& entity : group_entities(tokens, labels, Aggregation::kFirst, {"O"}))
    list.push_back({entity.label, entity.begin, entity.end - 1});
  std::sort(list.begin(), list.end());
  return list;
}

class EntityFiles {
 public:
  TaskExamples read(const std::string& text, TaskSplit split = TaskSplit::kTrain) {
    const std::string path = directory_.path("train.jsonl");
    std::ofstream(path, std::ios::binary) << text;
    TaskDefinition task = task_definition("ner");
    apply_settings(task, config);
    find_labels(task, path, config);
    return read_task(task, {.split = split, .part = {}, .names = {}, .output = {}}, path, config);
  }
  std::string error(const std::string& text) {
    return replaced(message_of<DataError>([&] { read(text); }), directory_.path(), "");
  }
  TaskDataConfig config;

 private:
  TemporaryDirectory directory_;
};

/// The words of the first sentence with their labels: "the/O cat/B-X".
std::string tagged(const TaskExamples& examples) {
  std::string text;
  const TaggedSentence& sentence = examples.sentences.front();
  for (size_t i = 0; i < sentence.words.size(); ++i) {
    text += (i == 0 ? "" : " ") + sentence.words[i] + "/";
    text += examples.task.labels[static_cast<size_t>(sentence.tags[i])];
  }
  return text;
}

}  // namespace

TEST_CASE("Entities of a scheme are those of seqeval's strict mode", "[unit][tasks]") {
  REQUIRE(strict_cases().size() == 4);
  for (const json& at : strict_cases()) {
    const auto labels = at["labels"].get<Sentences>(), predictions = at["predictions"].get<Sentences>();
    CAPTURE(at["scheme"]);
    for (size_t i = 0; i < labels.size(); ++i) {
      CAPTURE(labels[i]);
      json wanted = at["entities"][i];
      std::sort(wanted.begin(), wanted.end());
      CHECK(as_json(strict_entities_of(labels[i], scheme_of(at))) == wanted);
    }
    const EntityScores scores = entity_scores(labels, predictions, scheme_of(at));
    CHECK(scores.precision == Approx(at["precision"].get<double>()));
    CHECK(scores.recall == Approx(at["recall"].get<double>()));
    CHECK(scores.f1 == Approx(at["f1"].get<double>()));
    CHECK(scores.f1 != Approx(entity_scores(labels, predictions).f1));  // the default mode takes more for entities
  }
  CHECK_THROWS_WITH(strict_entities_of({"O", "S-PER"}, LabelScheme::kIob2),
                    Contains("the label \"S-PER\" is none of the scheme data.label_scheme IOB2"));
  CHECK_THROWS_AS(check_label(LabelScheme::kIobes, "PER"), DataError);
}

TEST_CASE("Spans become labels of a scheme, from which their entities are found again", "[unit][tasks]") {
  EntityFiles files;
  const std::string text =
      R"({"text": "Ann Lee met Bo, Cy Day Oslo.", "entities": [[0, 7, "PER"], [12, 14, "PER"], [16, 22, "PER"], )"
      R"([23, 27, "LOC"]]})";
  const std::vector<std::pair<LabelScheme, std::string>> cases = {
      {LabelScheme::kAny, "Ann/B-PER Lee/I-PER met/O Bo/B-PER ,/O Cy/B-PER Day/I-PER Oslo/B-LOC ./O"},
      {LabelScheme::kIob2, "Ann/B-PER Lee/I-PER met/O Bo/B-PER ,/O Cy/B-PER Day/I-PER Oslo/B-LOC ./O"},
      {LabelScheme::kIob1, "Ann/I-PER Lee/I-PER met/O Bo/I-PER ,/O Cy/I-PER Day/I-PER Oslo/I-LOC ./O"},
      {LabelScheme::kIobes, "Ann/B-PER Lee/E-PER met/O Bo/S-PER ,/O Cy/B-PER Day/E-PER Oslo/S-LOC ./O"},
      {LabelScheme::kBilou, "Ann/B-PER Lee/L-PER met/O Bo/U-PER ,/O Cy/B-PER Day/L-PER Oslo/U-LOC ./O"}};
  const json wanted = {{"LOC", 7, 7}, {"PER", 0, 1}, {"PER", 3, 3}, {"PER", 5, 6}};
  for (const auto& [scheme, tags] : cases) {
    files.config.label_scheme = scheme;
    const TaskExamples examples = files.read(text);
    CHECK(tagged(examples) == tags);
    CHECK(examples.has_labels);
    CHECK(examples.remark.empty());
    const Tags& labels = examples.task.labels;
    CHECK(labels.size() == 1 + 2 * letters_of(scheme).size());
    Tags of_words;
    for (const int32_t tag : examples.sentences[0].tags) of_words.push_back(labels[static_cast<size_t>(tag)]);
    CHECK(grouped_entities(of_words, labels) == wanted);
    if (scheme != LabelScheme::kAny) CHECK(as_json(strict_entities_of(of_words, scheme)) == wanted);
  }
  files.config.label_scheme = LabelScheme::kAny;  // the labels say the scheme
  files.config.labels = {"O", "B-PER", "I-PER", "L-PER", "U-PER", "B-LOC", "I-LOC", "L-LOC", "U-LOC"};
  CHECK(tagged(files.read(text)) == cases.back().second);
  files.config.labels = {};
  CHECK(scheme_of_labels({"O", "S-X", "U-X"}) == LabelScheme::kAny);
  CHECK(scheme_of_labels({"O", "B-X", "I-X"}) == LabelScheme::kAny);
  CHECK(scheme_of_labels({"B", "E", "I", "O", "S"}) == LabelScheme::kIobes);
  files.config.label_scheme = LabelScheme::kIob1;  // neighbours of one kind are told apart
  const TaskExamples neighbours = files.read(R"({"text": "Ann Bo", "spans": [[0, 3, "P"], [4, 6, "P"]]})");
  CHECK(tagged(neighbours) == "Ann/I-P Bo/B-P");
}

TEST_CASE("Spans are read in the shapes of spaCy, Prodigy and doccano", "[unit][tasks]") {
  EntityFiles files;
  const std::string wanted = "the/O caf\u00e9/B-X 中/I-X cat/O";
  for (const char* entities :
       {R"("label": [[4, 9, "X"]])", R"("entities": [[4, 9, "X"]])", R"("labels": [[4, 9, "X"]])",
        R"("spans": [{"start": 4, "end": 9, "label": "X", "token_start": 1}])",
        R"("label": null, "entities": [{"id": 5, "label": "X", "start_offset": 4, "end_offset": 9}])"}) {
    CAPTURE(entities);
    CHECK(tagged(files.read(std::string("{\"text\": \"the caf\\u00e9中 cat\", ") + entities + "}\n\n")) == wanted);
  }
  // Half a word, and white space beside one.
  const TaskExamples widened = files.read(
      "{\"text\": \"the uncat cat\", \"label\": [[6, 9, \"X\"], [9, 13, \"X\"]]}\n{\"text\": \"a\", \"label\": []}\n");
  CHECK(tagged(widened) == "the/O uncat/B-X cat/B-X");
  CHECK_THAT(widened.remark, Contains("train.jsonl: 1 of 2 entities begin or end inside a word, and were widened"));
  files.config.labels = {"O", "B-X", "I-X"};
  CHECK_FALSE(files.read("{\"text\": \"a\"}\n", TaskSplit::kTest).has_labels);
}

TEST_CASE("Wrong spans are refused with file, line and span", "[unit][tasks]") {
  EntityFiles files;
  const auto row = [](const std::string& entities) {
    return "{\"text\": \"ab\", \"label\": []}\n{\"text\": \"the uncat cat\", \"label\": " + entities + "}\n";
  };
  CHECK(files.error(row(R"([[4, 9, "X"], [0, 7, "Y"]])")) ==
        "train.jsonl:2: the entities [0, 7] Y and [4, 9] X overlap; want each word in one entity at most");
  CHECK_THAT(files.error(row(R"([[4, 6, "X"], [6, 9, "Y"]])")),
             Contains("train.jsonl:2: the entities [4, 6] X and [6, 9] Y share a word"));
  CHECK_THAT(files.error(row(R"([[4, 14, "X"]])")),
             Contains("train.jsonl:2: the span [4, 14] is empty or outside of the text, which has 13 characters"));
  CHECK_THAT(files.error(row(R"([[4, 4, "X"]])")), Contains("the span [4, 4] is empty"));
  CHECK_THAT(files.error(row(R"([[-1, 4, "X"]])")), Contains("the span [-1, 4] is empty or outside"));
  CHECK_THAT(files.error(row(R"([[3, 4, "X"]])")), Contains("the entity [3, 4] X has no word"));
  CHECK_THAT(files.error(row(R"([[3, 4]])")), Contains("train.jsonl:2: want a label in [3,4]"));
  CHECK_THAT(files.error(row(R"([["a", 4, "X"]])")), Contains("want a span [start, end]"));
  CHECK_THAT(files.error(row(R"([{"start": 1, "label": "X"}])")), Contains("want a number \"end\" in"));
  CHECK_THAT(files.error(row(R"("X")")), Contains("want a list of entities, got string"));
  CHECK_THAT(files.error("{\"text\": \"a\"}\n{\"text\": \"b\", \"label\": [[0, 1, \"X\"]]}\n"),
             Contains("train.jsonl:1: no list of entities in the field \"label\""));
  CHECK_THAT(files.error("{\"text\": \" \", \"label\": []}\n"), Contains("train.jsonl:1: the text has no words"));
  CHECK_THAT(files.error("{\"label\": []}\n"), Contains("train.jsonl:1: want a text in the field \"text\""));
  CHECK_THAT(files.error("[]\n"), Contains("train.jsonl:1: want an object, got array"));
  CHECK_THAT(files.error("\n"), Contains("the file has no rows"));
  files.config.labels = {"O", "B-Y", "I-Y"};
  CHECK_THAT(files.error(row(R"([[4, 9, "X"]])")), Contains("train.jsonl:2: unknown label \"B-X\""));
  files.config.label_scheme = LabelScheme::kIobes;
  files.config.labels = {"O", "L-Y"};
  CHECK_THAT(files.error(row("[]")), Contains("the label \"L-Y\" is none of the scheme data.label_scheme IOBES"));
}
