// Tables of fine-tuning tasks in Parquet and Arrow files of pyarrow (golden/arrow_tables.py).
#include <filesystem>
#include <nlohmann/json.hpp>

#include "data/io/error.h"
#include "data/io/files.h"
#include "data/io/plugin.h"
#include "data/io/text_parts.h"
#include "data/tasks/embedding_data.h"
#include "data/tasks/table_reader.h"
#include "data/tasks/task_data.h"
#include "tests/support/example_golden.h"
#include "tests/testing.h"

using namespace bert;
using namespace bert::testing;
using nlohmann::json;

namespace {

/// The files of the golden in a temporary directory.
class ArrowTables {
 public:
  [[nodiscard]] std::string file(const std::string& name) const { return golden_.file(name); }
  [[nodiscard]] std::string error(const std::string& name, const std::string& column) const {
    const std::string path = file(name);
    return replaced(message_of<DataError>([&] {
                      TableReader table(path, {{column}}, {.format = table_format(path), .header = {}});
                      while (table.next()) {
                      }
                    }),
                    directory_.path() + "/", "");
  }
  static bool readable() { return std::filesystem::exists(plugin_path("libbert_arrow.so")); }

 private:
  TemporaryDirectory directory_;
  ExampleGolden golden_ = ExampleGolden(golden("arrow_tables.json"), directory_.path());
};

}  // namespace

TEST_CASE("Parquet and Arrow files are tables of tasks", "[unit][tasks]") {
  const ArrowTables tables;
  if (!ArrowTables::readable()) {
    const std::string path = tables.file("table.parquet");
    CHECK_THROWS_WITH(table_columns(path), Contains("app/setup.sh --arrow"));
    BERT_SKIP("needs libbert_arrow.so, which app/setup.sh --arrow builds");
  }
  const json rows = json::parse(read_file(golden("arrow_tables.json")))["rows"];
  for (const char* name : {"table.parquet", "stream.arrow", "file.arrow"}) {
    CAPTURE(name);
    const std::string path = tables.file(name);
    CHECK(table_columns(path) == std::vector<std::string>{"sentence1", "sentence2", "score", "label", "words"});
    TableReader table(path, {{"sentence1"}, {"sentence2"}, {"score"}, {"label"}, {"words", true, true}, {"id", false}},
                      {.format = table_format(path), .header = {}});
    for (const json& row : rows) {
      REQUIRE(table.next());
      CHECK(table.cell(0) == row["sentence1"]);
      CHECK(table.cell(1) == row["sentence2"]);
      CHECK(std::stod(table.cell(2)) == row["score"]);
      CHECK(table.cell(3) == std::to_string(row["label"].get<int64_t>()));
      REQUIRE(table.list(4) != nullptr);
      CHECK(*table.list(4) == row["words"].get<std::vector<std::string>>());
    }
    CHECK_FALSE(table.next());
  }
  const TaskExamples pairs =
      read_text_rows(tables.file("table.parquet"), {.texts = {"sentence1", "sentence2"}, .label = {}});
  REQUIRE(pairs.size() == 3);
  CHECK(pairs.has_labels);
  CHECK(pairs.texts[1].value == -1.5);
  CHECK(pairs.texts[0].text_pair == "Ünïted\nlines");
  CHECK(Contains("table.parquet:2: column \"words\": the list has 0 texts").match(message_of<DataError>([&] {
    read_text_rows(tables.file("table.parquet"), {.texts = {"sentence1", "words"}, .label = {}});
  })));

  TaskDefinition task = task_definition("text-classification");
  TaskDataConfig config;
  config.text_column = "sentence1";
  find_labels(task, tables.file("table.parquet"), config);
  CHECK(task.labels == std::vector<std::string>{"0", "3", "1099511627776"});
  CHECK(std::ranges::find(task.files[0].names, "train.parquet") != task.files[0].names.end());
  CHECK(read_task(task, task.files[0], tables.file("file.arrow"), config).texts[1].label == 2);
}

TEST_CASE("Parquet that is no table of a task is refused with its row", "[unit][tasks]") {
  const ArrowTables tables;
  if (!ArrowTables::readable()) BERT_SKIP("needs libbert_arrow.so, which app/setup.sh --arrow builds");
  CHECK(tables.error("holes.parquet", "score") ==
        "holes.parquet:2: no field \"score\"; the object has label, score, sentence1, sentence2, words");
  CHECK(tables.error("times.parquet", "sentence1").empty());  // a column of times that nothing reads
  CHECK(tables.error("times.parquet", "at") == "times.parquet:1: column \"at\": want a string or a number, got object");
  CHECK(tables.error("empty.parquet", "score") == "empty.parquet: the table has no rows");
  const std::string whole = tables.file("table.parquet");
  std::filesystem::resize_file(whole, std::filesystem::file_size(whole) - 9);
  CHECK_THROWS_AS(table_columns(whole), DataError);
}
