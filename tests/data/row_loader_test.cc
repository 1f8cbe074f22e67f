// The loader of sentence embeddings: rows without repeated texts, data sets in turn, and positions to go on from; and the
// tables that rows come from.
#include "data/loader/row_loader.h"

#include <ATen/ATen.h>

#include <fstream>
#include <set>

#include "data/io/error.h"
#include "data/tasks/embedding_data.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::Contains;
using bert::testing::message_of;
using bert::testing::TemporaryDirectory;

namespace {

/// Rows of two texts: the anchor has the id of its row, and `groups` positives stand in turn.
RowSet set_of(int32_t rows, int32_t groups) {
  auto features = std::make_shared<TaskFeatures>();
  features->kind = TaskKind::kEmbedding;
  for (int32_t row = 0; row < rows; ++row) {
    for (const int32_t id : {1000 + row, row % groups}) {
      TaskSequence& sequence = features->sequences.emplace_back();
      sequence.input_ids = {2, id, 3};
      sequence.token_type_ids = {0, 0, 0};
      sequence.value = static_cast<float>(row);
    }
  }
  return {.features = features, .columns = 2};
}

RowLoaderConfig config_of(bool no_duplicates) {
  return {.batches = {.micro_batch_size = 4, .global_batch_size = 8, .seed = 7}, .no_duplicates = no_duplicates};
}

/// The second ids of the sequences of a step.
std::vector<int64_t> ids_of(const GlobalStep& step) {
  std::vector<int64_t> ids;
  for (const PackedBatch& batch : step.micro_batches) {
    for (int64_t i = 1; i < batch.num_tokens(); i += 3) ids.push_back(batch.input_ids.const_data_ptr<int64_t>()[i]);
  }
  return ids;
}

std::string written(const TemporaryDirectory& directory, const std::string& name, const std::string& text) {
  std::ofstream(directory.path(name)) << text;
  return directory.path(name);
}

}  // namespace

TEST_CASE("No text stands twice in a step, and every row comes once in an epoch", "[unit][data]") {
  RowLoader loader({set_of(64, 16)}, config_of(true));
  std::multiset<int64_t> seen;
  for (int i = 0; i < 16; ++i) {  // two epochs
    const std::vector<int64_t> ids = ids_of(loader.next_step());
    CHECK(std::set<int64_t>(ids.begin(), ids.end()).size() == 16);
    for (const int64_t id : ids) seen.insert(id);
  }
  // A row that waits at the end of an epoch comes in the next one: at most the rows of a step.
  for (int64_t row = 0; row < 64; ++row) CHECK((seen.count(1000 + row) >= 1 && seen.count(1000 + row) <= 3));

  RowLoader repeats({set_of(64, 2)}, config_of(false));
  const std::vector<int64_t> ids = ids_of(repeats.next_step());
  CHECK(std::set<int64_t>(ids.begin(), ids.end()).size() == 10);  // eight anchors, two positives

  RowLoader impossible({set_of(64, 5)}, config_of(true));
  CHECK(Contains("texts for 5 rows").match(message_of<DataError>([&] { impossible.next_step(); })));
}

TEST_CASE("Data sets take steps in proportion to their rows, or in turn", "[unit][data]") {
  const std::vector<RowSet> sets = {set_of(96, 96), set_of(32, 32)};
  for (const bool round_robin : {false, true}) {
    RowLoaderConfig config = config_of(true);
    config.round_robin = round_robin;
    RowLoader loader(sets, config);
    int64_t of_second = 0;
    for (int i = 0; i < 16; ++i) {
      const GlobalStep step = loader.next_step();
      for (const PackedBatch& batch : step.micro_batches) CHECK(batch.source == step.places.front().source);
      of_second += step.places.front().source;
    }
    CHECK(of_second == (round_robin ? 8 : 4));
  }
}

TEST_CASE("A loader of rows goes on from a state, and numbers its sequences", "[unit][data]") {
  RowLoader straight({set_of(64, 16), set_of(40, 40)}, config_of(true));
  RowLoader resumed({set_of(64, 16), set_of(40, 40)}, config_of(true));
  for (int i = 0; i < 11; ++i) straight.next_step();
  resumed.restore(straight.state());
  for (int i = 0; i < 11; ++i) {
    const GlobalStep expected = straight.next_step(), got = resumed.next_step();
    CHECK(ids_of(got) == ids_of(expected));
    std::set<int64_t> numbers;
    for (const PackedBatch& batch : got.micro_batches) {
      for (const int64_t number : sequence_numbers(batch)) numbers.insert(number);
      CHECK(batch.labels.numel() == 4);
    }
    CHECK(numbers.size() == 16);
    CHECK(*numbers.begin() == (11 + i) * 16);
    CHECK(*numbers.rbegin() == (11 + i) * 16 + 15);
  }
}

TEST_CASE("Columns of rows are found by their order and by the names of labels", "[unit][data]") {
  const TemporaryDirectory directory;
  const std::string triplets = written(directory, "triplets.tsv", "query\tgood\tbad\na\tb\tc\nd\te\tf\n");
  TaskExamples rows = read_text_rows(triplets, {});
  CHECK(texts_in_row(rows) == 3);
  CHECK_FALSE(rows.has_labels);
  CHECK(rows.texts[1].text == "d");
  CHECK(rows.texts[1].text_pair == "e");
  CHECK(rows.texts[1].choices == std::vector<std::string>{"f"});

  const std::string scored = written(directory, "scored.jsonl", "{\"b\":\"x\",\"a\":\"y\",\"score\":0.5}\n");
  rows = read_text_rows(scored, {});
  CHECK(rows.texts[0].text == "x");  // in the order of the first object
  CHECK(rows.texts[0].value == 0.5);
  CHECK(read_text_rows(scored, {.texts = {"a", "b"}}).texts[0].text == "y");

  const std::string classes = written(directory, "nli.csv", "p,h,label\na,b,neutral\nc,d,entailment\n");
  rows = read_text_rows(classes, {}, RowLabels::kClasses);
  CHECK(rows.task.labels == std::vector<std::string>{"entailment", "neutral"});
  CHECK(rows.texts[0].value == 1);
  CHECK(Contains("nli.csv:2: column \"label\": want a number").match(message_of<DataError>([&] {
    read_text_rows(classes, {});
  })));
  const std::string mined = written(directory, "mined.jsonl",
                                    R"({"a":"x","b":"y","n1":"z","n2":"w","scores":[1,2,3]})"
                                    "\n");
  CHECK(texts_in_row(read_text_rows(mined, {}, RowLabels::kUnread)) == 4);
  CHECK(Contains("the list has 3 scores for 4 texts").match(message_of<DataError>([&] { read_text_rows(mined, {}); })));
  const std::string squad =
      written(directory, "squad.json",
              R"({"version": "1.1", "data": [{"title": "t", "paragraphs": [{"context": "Some text.",
                                    "qas": [{"id": "q", "question": "What?", "answers": []}]}]}]})");
  rows = read_text_rows(squad, {});
  CHECK(rows.texts[0].text == "What?");
  CHECK(rows.texts[0].text_pair == "Some text.");
  const std::string empty = written(directory, "empty.csv", "p,h\na,\n");
  CHECK(Contains("empty.csv:2: column \"h\": the text is empty").match(message_of<DataError>([&] {
    read_text_rows(empty, {});
  })));
  CHECK(Contains("no column \"x\"").match(message_of<DataError>([&] { read_text_rows(empty, {.texts = {"x"}}); })));
}

TEST_CASE("A list of texts in the last column stands for columns", "[unit][data]") {
  const TemporaryDirectory directory;
  const std::string columns =
      written(directory, "columns.csv", "query,pos,n1,n2,score\na,b,c,d,0.5\ne,f,g,\"h, i\",1\n");
  const std::string lists = written(directory, "lists.jsonl",
                                    R"({"query": "a", "pos": ["b"], "neg": ["c", "d"], "score": 0.5})"
                                    "\n"
                                    R"({"query": "e", "pos": "f", "neg": ["g", "h, i"], "score": 1})"
                                    "\n");
  const TaskExamples expected = read_text_rows(columns, {}), got = read_text_rows(lists, {});
  REQUIRE(got.size() == 2);
  CHECK(texts_in_row(got) == 4);
  for (size_t i = 0; i < 2; ++i) {
    CHECK(got.texts[i].text == expected.texts[i].text);
    CHECK(got.texts[i].text_pair == expected.texts[i].text_pair);
    CHECK(got.texts[i].choices == expected.texts[i].choices);
    CHECK(got.texts[i].value == expected.texts[i].value);
  }
  const auto refusal = [&](const std::string& second) {
    const std::string path =
        written(directory, "bad.jsonl", R"({"a": "x", "b": "y", "c": ["z", "w"]})" + std::string("\n") + second + "\n");
    return message_of<DataError>([&] { read_text_rows(path, {}); });
  };
  CHECK(Contains("bad.jsonl:2: column \"c\": the row has 3 texts, and the first row 4")
            .match(refusal(R"({"a": "x", "b": "y", "c": ["z"]})")));
  CHECK(Contains("bad.jsonl:2: column \"c\": the list has 0 texts").match(refusal(R"({"a": "x", "b": "y", "c": []})")));
  CHECK(Contains("bad.jsonl:2: column \"b\": the list has 2 texts; want one")
            .match(refusal(R"({"a": "x", "b": ["y", "v"], "c": ["z"]})")));
  CHECK(Contains("bad.jsonl:2: column \"c\": the text is empty")
            .match(refusal(R"({"a": "x", "b": "y", "c": ["z", ""]})")));
}
