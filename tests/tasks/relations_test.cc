// Relations of two entities: markers, tables as BioBERT's, metrics against scikit-learn (golden/labels.py); and XNLI.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "app/tasks/task_scoring.h"
#include "app/tasks/text_metrics.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "data/io/text_parts.h"
#include "data/tasks/entity_markers.h"
#include "data/tasks/task_data.h"
#include "tests/support/small_vocabulary.h"
#include "tests/testing.h"

using namespace bert;
using namespace bert::testing;
using nlohmann::json;

namespace {

/// The small vocabulary with the markers at its end.
WordPieceTokenizer marker_tokenizer() {
  std::vector<std::string> tokens = small_vocabulary().tokens();
  std::vector<AddedToken> added;
  for (const char* marker : kEntityMarkers) {
    added.push_back({.id = static_cast<int32_t>(tokens.size()), .special = true});
    tokens.emplace_back(marker);
  }
  return WordPieceTokenizer(Vocabulary(tokens, "vocabulary", added));
}

/// The tokens of marked_sequence(), with [E1]'s and [E2]'s places before them.
std::string sequence_of(const std::string& text, int64_t max_seq_length, bool* was_cut = nullptr) {
  const WordPieceTokenizer tokenizer = marker_tokenizer();
  bool cut = false;
  const TaskSequence sequence =
      marked_sequence(tokenizer.encode(with_markers(text)), tokenizer.vocabulary(), max_seq_length, cut);
  if (was_cut != nullptr) *was_cut = cut;
  std::string result = std::to_string(sequence.start_position) + " " + std::to_string(sequence.end_position);
  for (const int32_t id : sequence.input_ids) result += " " + tokenizer.vocabulary().token(id);
  CHECK(sequence.token_type_ids == std::vector<int32_t>(sequence.input_ids.size(), 0));
  return result;
}

class RelationFiles {
 public:
  explicit RelationFiles(const std::string& task = kClassesTask) : name_(task) {}
  TaskExamples read(const std::string& name, const std::string& text, TaskSplit split = TaskSplit::kDev) {
    const std::string path = directory_.path(name);
    std::ofstream(path, std::ios::binary) << text;
    TaskDefinition task = task_definition(name_);
    apply_settings(task, config);
    find_labels(task, path, config);
    const auto file = std::ranges::find(task.files, split, &TaskFile::split);
    return read_task(task, *file, path, config);
  }
  std::string error(const std::string& name, const std::string& text) {
    return replaced(message_of<DataError>([&] { read(name, text); }), directory_.path(), "");
  }
  TaskDataConfig config;

 private:
  std::string name_;
  TemporaryDirectory directory_;
};

}  // namespace

TEST_CASE("Micro F1 without the negative class equals scikit-learn's", "[unit][tasks]") {
  const json cases = json::parse(read_file(golden("labels.json"))).at("relations");
  REQUIRE(cases.size() == 5);
  for (const json& at : cases) {
    CAPTURE(at.dump());
    const auto labels = at["labels"].get<std::vector<int32_t>>(),
               guesses = at["predictions"].get<std::vector<int32_t>>();
    const MicroScores scores = micro_scores(labels, guesses, 0);
    CHECK(scores.precision == Approx(at["precision"].get<double>()).margin(1e-12));
    CHECK(scores.recall == Approx(at["recall"].get<double>()).margin(1e-12));
    CHECK(scores.f1 == Approx(at["f1"].get<double>()).margin(1e-12));
  }
}

TEST_CASE("Markers are put around two spans, and SemEval's are theirs", "[unit][tasks]") {
  CHECK(marked_text("the caf\u00e9 cat", json::parse("[[9, 12], [4, 8]]")) == "the [E2]caf\u00e9[/E2] [E1]cat[/E1]");
  CHECK(marked_text("ab", json::parse(R"([{"start": 0, "end": 1}, {"start": 1, "end": 2}])")) ==
        "[E1]a[/E1][E2]b[/E2]");
  CHECK(with_markers("<e1>a</e1> and <e2>b</e2>") == "[E1]a[/E1] and [E2]b[/E2]");
  CHECK_THROWS_WITH(marked_text("ab", json::parse("[[0, 1]]")), Contains("want a list of two spans"));
  CHECK_THROWS_WITH(marked_text("ab", json::parse("[[0, 1], [1, 3]]")),
                    Contains("the span [1, 3] is empty or outside"));
}

TEST_CASE("A long text keeps both entities and their neighbourhood", "[unit][tasks]") {
  bool cut = true;
  CHECK(sequence_of("a <e2>b</e2> c [E1]cat[/E1]", 16, &cut) == "6 2 [CLS] a [E2] b [/E2] c [E1] cat [/E1] [SEP]");
  CHECK_FALSE(cut);
  // By hand: eight of twelve tokens; the entities take six, one more on each side.
  CHECK(sequence_of("a b c [E1]d[/E1] [E2]e[/E2] f g h", 10, &cut) == "2 5 [CLS] c [E1] d [/E1] [E2] e [/E2] f [SEP]");
  CHECK(cut);
  CHECK(sequence_of("[E1]d[/E1] [E2]e[/E2] f g h", 9) == "1 4 [CLS] [E1] d [/E1] [E2] e [/E2] f [SEP]");
  // Six tokens between: they are left out in the middle.
  CHECK(sequence_of("a [E1]d[/E1] b c d e f g [E2]e[/E2] h", 10) == "1 6 [CLS] [E1] d [/E1] b g [E2] e [/E2] [SEP]");
  CHECK_THROWS_WITH(sequence_of("[E1]a b c d e[/E1] x [E2]e[/E2]", 9), Contains("the entities have more tokens"));
  CHECK_THROWS_WITH(sequence_of("[E1]a[/E1] b", 9), Contains("want one [E2] in the text, got 0"));
  CHECK_THROWS_WITH(sequence_of("[E1]a[/E1] [E1] [E2]b[/E2]", 9), Contains("want one [E1] in the text, got 2"));
  CHECK_THROWS_WITH(sequence_of("[/E1]a[E1] [E2]b[/E2]", 9), Contains("an entity ends before it begins"));
}

TEST_CASE("Relations are read from JSON lines with spans, and from BioBERT's tables", "[unit][tasks]") {
  RelationFiles files;
  files.config.entity_markers = EntityMarkers::kStartMarkers;
  const std::string marked = "the [E1]cat[/E1] [E2]a[/E2]";
  TaskExamples examples = files.read("dev.jsonl",
                                     "{\"text\": \"the cat a\", \"spans\": [[4, 7], [8, 9]], \"label\": "
                                     "\"X\"}\n{\"text\": \"the <e1>cat</e1> <e2>a</e2>\", \"spans\": null, "
                                     "\"label\": \"no\"}\n");
  CHECK(examples.texts[0].text == marked);
  const WordPieceTokenizer tokenizer = marker_tokenizer();
  const TaskFeatures features = make_features(examples, tokenizer, files.config, /*for_training=*/true);
  CHECK(features.start_markers);
  CHECK(features.sequences[0].input_ids == features.sequences[1].input_ids);
  CHECK(features.sequences[1].start_position == 2);
  CHECK(features.sequences[1].end_position == 5);
  files.config.entity_markers = EntityMarkers::kCls;
  CHECK_FALSE(make_features(examples, tokenizer, files.config, /*for_training=*/true).start_markers);
  files.config.labels = {"X", "no"};
  CHECK_THAT(files.error("dev.jsonl", "{\"text\": \"a\", \"spans\": [[0, 2], [0, 1]], \"label\": \"X\"}\n"),
             Contains("dev.jsonl:1: column \"spans\": the span [0, 2] is empty or outside"));
  examples = files.read("dev.csv", "text,label\na,X\nb,no\n");
  CHECK_THROWS_WITH(make_features(examples, tokenizer, files.config, true),
                    Contains("dev.csv: example 0: want one [E1] in the text, got 0"));

  RelationFiles bio;  // GAD: no header but in the test file
  bio.config.text_column = "sentence";
  bio.config.columns = {"sentence", "label"};
  bio.config.negative_label = "0";
  const std::string rows = "@GENE$ raises \"@DISEASE$.\t1\nno\t0\nb\t1\n";
  examples = bio.read("dev.tsv", rows);
  REQUIRE(examples.size() == 3);
  CHECK(examples.texts[0].text == "@GENE$ raises \"@DISEASE$.");
  CHECK(examples.task.labels == std::vector<std::string>{"0", "1"});
  CHECK(bio.read("test.tsv", "index\tsentence\tlabel\n0\ta\t1\n1\tb\t0\n", TaskSplit::kTest).size() == 2);
  CHECK(examples.task.main_metric() == "f1_micro");
  const WordPieceTokenizer small_tokenizer(small_vocabulary());
  const TaskFeatures plain = make_features(examples, small_tokenizer, bio.config, false);
  const TaskScores scores =
      score_task(examples, plain, std::vector<float>{0, 1, 0, 1, 1, 0}, small_tokenizer, bio.config);
  // By hand: one of two positives is found, and one other is wrong.
  REQUIRE(scores.metrics.size() == 6);
  for (size_t i = 0; i < 3; ++i) CHECK(scores.metrics[i].value == 0.5);
  CHECK(scores.metrics[3].name == "accuracy");
  CHECK(scores.metrics[3].value == Approx(1.0 / 3));
  bio.config.negative_label = "false";
  CHECK_THAT(bio.error("dev.tsv", rows), Contains("data.negative_label: false is none of the labels, which are 0, 1"));
}

TEST_CASE("XNLI is read as it is distributed", "[unit][tasks]") {
  RelationFiles xnli("xnli");
  xnli.config.language = "de";
  const std::string dev =
      "language\tgold_label\tsentence1_binary_parse\tsentence1\tsentence2\tpairID\n"
      "en\tneutral\t(x)\ta\tb\t1\nde\tentailment\t(x)\tc \"d\te\t1\nde\tcontradiction\t(x)\tf\tg\t2\n";
  TaskExamples examples = xnli.read("xnli.dev.tsv", dev);
  REQUIRE(examples.size() == 2);
  CHECK(examples.texts[0].text == "c \"d");
  CHECK(examples.texts[0].text_pair == "e");
  CHECK(examples.texts[0].label == 1);
  examples = xnli.read("xnli.test.tsv", dev, TaskSplit::kTest);
  CHECK(examples.texts[1].id == "2");
  CHECK(examples.has_labels);
  examples = xnli.read("multinli.train.de.tsv", "premise\thypo\tlabel\na\tb\tcontradictory\nc\td\tneutral\n",
                       TaskSplit::kTrain);
  CHECK(examples.texts[0].label == 0);
  CHECK(examples.texts[1].text_pair == "d");
  xnli.config.language = "sw";
  CHECK(xnli.error("xnli.dev.tsv", dev) == "xnli.dev.tsv: the table has no rows of data.language sw");
  const TemporaryDirectory directory;
  std::filesystem::create_directories(directory.path("XNLI-MT-1.0/multinli"));
  std::ofstream(directory.path("XNLI-MT-1.0/multinli/multinli.train.fr.tsv")) << "x";
  const TaskFile train = task_definition("xnli").files[0];
  CHECK(find_task_file(train, directory.path(), "fr").ends_with("multinli.train.fr.tsv"));
  CHECK(find_task_file(train, directory.path(), "de").empty());
}
