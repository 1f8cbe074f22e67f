// Files of fine-tuning tasks: GLUE's layouts and traps, own tables, CoNLL, SWAG and SQuAD.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "data/io/error.h"
#include "data/io/text_parts.h"
#include "data/tasks/conll.h"
#include "data/tasks/table_reader.h"
#include "data/tasks/task_data.h"
#include "tests/support/small_vocabulary.h"
#include "tests/testing.h"

using namespace bert;
using namespace bert::testing;

namespace {

/// Files of a task in a temporary directory.
class TaskFiles {
 public:
  explicit TaskFiles(const std::string& name) : task(task_definition(name)) {}

  /// Writes `text` under the name, which is one of the task's, and reads it.
  TaskExamples read(const std::string& name, const std::string& text) {
    const std::string path = directory_.path(name);
    std::ofstream(path, std::ios::binary) << text;
    for (const TaskFile& file : task.files) {
      if (std::find(file.names.begin(), file.names.end(), name) == file.names.end()) continue;
      if (file.split == TaskSplit::kTrain) find_labels(task, path, config);
      return read_task(task, file, path, config);
    }
    throw std::out_of_range(name);
  }
  /// The message of the error that reading makes, without the directory.
  std::string error(const std::string& name, const std::string& text) {
    return replaced(testing::message_of<DataError>([&] { read(name, text); }), directory_.path(), "");
  }

  TaskDefinition task;
  TaskDataConfig config;

 private:
  TemporaryDirectory directory_;
};

}  // namespace

TEST_CASE("Every task names its files, metrics and outputs", "[unit][tasks]") {
  CHECK(task_names().size() == 19);
  for (const std::string& name : task_names()) {
    const TaskDefinition task = task_definition(name);
    CHECK(task.name == name);
    CHECK_FALSE(task.main_metric().empty());
    for (const TaskFile& file : task.files) CHECK(file.output.empty() == (file.split == TaskSplit::kTrain));
  }
  CHECK(task_definition("mnli").num_outputs() == 3);
  CHECK(task_definition("stsb").num_outputs() == 1);
  CHECK(task_definition("squad-v2").num_outputs() == 2);
  CHECK_THROWS_AS(task_definition("sst"), std::out_of_range);
  CHECK(find_task_file(task_definition("rte").files[0], "/none").empty());
}

TEST_CASE("GLUE's files: a byte order mark, quotes that are none, CRLF, no header, a test file without labels",
          "[unit][tasks]") {
  TaskFiles sst2("sst2");
  TaskExamples examples = sst2.read("train.tsv", "\xEF\xBB\xBFsentence\tlabel\r\n\"a quote \t1\r\nit 's\t0\r\n\r\n");
  REQUIRE(examples.size() == 2);
  CHECK(examples.has_labels);
  CHECK(examples.texts[0].text == "\"a quote ");
  CHECK(examples.texts[0].label == 1);
  CHECK(examples.texts[1].label == 0);
  examples = sst2.read("test.tsv", "index\tsentence\n7\tx\n3\ty");
  CHECK_FALSE(examples.has_labels);
  CHECK(examples.texts[0].id == "7");
  CHECK(examples.texts[1].label == -1);

  TaskFiles cola("cola");
  examples = cola.read("dev.tsv", "gj04\t1\t\tThe sailors rode .\ngj04\t0\t*\tThe \"sailors\n");
  REQUIRE(examples.size() == 2);
  CHECK(examples.texts[1].text == "The \"sailors");
  CHECK(examples.texts[1].label == 0);
  CHECK(cola.read("test.tsv", "index\tsentence\n0\tx\n").texts[0].text == "x");

  TaskFiles mnli("mnli");
  examples = mnli.read("dev_mismatched.tsv",
                       "index\tgenre\tsentence1\tsentence2\tlabel1\tgold_label\n0\tg\ta\tb\tneutral\tentailment\n");
  CHECK(examples.source.part == "mismatched");
  CHECK(examples.texts[0].text_pair == "b");
  CHECK(examples.texts[0].label == 1);

  TaskFiles stsb("stsb");
  CHECK(stsb.read("dev.tsv", "sentence1\tsentence2\tscore\na\tb\t3.800\n").texts[0].values == std::vector<double>{3.8});

  TaskFiles qqp("qqp");  // the official training file has such rows
  examples =
      qqp.read("train.tsv", "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n1\t2\t3\thow\n4\t5\t6\tq\tr\t1\n");
  CHECK(examples.size() == 1);
  CHECK(examples.skipped_rows == 1);
}

TEST_CASE("Errors of tables name the file, line and column", "[unit][tasks]") {
  TaskFiles sst2("sst2");
  const std::string header = "sentence\tlabel\n";
  CHECK(sst2.error("train.tsv", "") == "train.tsv: the file is empty");
  CHECK(sst2.error("train.tsv", header) == "train.tsv: the table has no rows");
  CHECK(sst2.error("train.tsv", header + "a\t1\n\nb\t0\n") == "train.tsv:3: the line is blank");
  CHECK(sst2.error("train.tsv", header + "a\n") ==
        "train.tsv:2: column \"label\": the row has 1 columns, and this is column 2");
  CHECK(sst2.error("train.tsv", header + "a\t1\nb\t2\n") ==
        "train.tsv:3: column \"label\": unknown label \"2\"; the labels are 0, 1");
  CHECK(sst2.error("train.tsv", header + "\t1\n") == "train.tsv:2: column \"sentence\": the text is empty");
  CHECK(sst2.error("train.tsv", header + "\xff\t1\n") == "train.tsv:2: column \"sentence\": the text is not UTF-8");
  CHECK(sst2.error("train.tsv", "sentence\tscore\na\t1\n") ==
        "train.tsv:1: no column \"label\"; the columns are sentence, score");
  CHECK(sst2.error("train.tsv", "sentence\tlabel\tlabel\na\t1\t1\n") ==
        "train.tsv:1: two columns have the name \"label\"");
  CHECK(sst2.error("test.tsv", "index\tsentence\n0\ta\n0\tb\n") ==
        "test.tsv:3: column \"index\": another row has the id \"0\"");
  TaskFiles stsb("stsb");
  for (const char* number : {"", "x", "1,5", "inf", "nan", "2 "}) {
    CHECK(stsb.error("dev.tsv", fmt::format("sentence1\tsentence2\tscore\na\tb\t{}\n", number)) ==
          fmt::format("dev.tsv:2: column \"score\": want a number, got \"{}\"", number));
  }
  CHECK(sst2.error("train.tsv", std::string("\x1f\x8b", 2) + "xyz") != "");  // gzip
}

TEST_CASE("Own tables: CSV, TSV and JSON lines with named columns", "[unit][tasks]") {
  TaskFiles own("text-classification");
  own.config.text_column = "review";
  own.config.text_pair_column = "title";
  own.config.label_column = "stars";
  TaskExamples examples =
      own.read("train.csv", "id,title,review,stars\r\n1,\"A, \"\"B\"\"\",\"two\nlines\",10\r\n2,,plain \"q\",9\r\n");
  CHECK(own.task.labels == std::vector<std::string>{"9", "10"});
  REQUIRE(examples.size() == 2);
  CHECK(examples.texts[0].text == "two\nlines");
  CHECK(examples.texts[0].text_pair == "A, \"B\"");
  CHECK(examples.texts[0].label == 1);
  CHECK(examples.texts[1].text == "plain \"q\"");
  examples = own.read("dev.tsv", "review\ttitle\tstars\n\"a\tb\t10\n");
  CHECK(examples.texts[0].text == "\"a");
  examples = own.read("dev.jsonl", "{\"review\": \"x\\ty\", \"title\": \"\", \"stars\": 9, \"more\": [1]}\n");
  CHECK(examples.texts[0].text == "x\ty");
  CHECK(examples.texts[0].label == 0);
  CHECK_FALSE(own.read("test.jsonl", "{\"review\": \"x\", \"title\": \"\", \"id\": \"k\"}\n").has_labels);
  CHECK(own.read("test.jsonl", "{\"review\": \"x\", \"title\": \"\", \"id\": \"k\"}\n").texts[0].id == "k");

  CHECK(own.error("dev.csv", "review,title,stars\na,b,10,c\n") == "dev.csv:2: the row has 4 columns, the header 3");
  CHECK(own.error("dev.csv", "review,title,stars\n\"a\n\nb,10\n") == "dev.csv:2: column 1: a quoted field has no end");
  CHECK(own.error("dev.csv", "review,title,stars\nx,\"a\"b,10\n") ==
        "dev.csv:2: column 2: text after the closing quote; a quote in a quoted field is doubled");
  CHECK(own.error("dev.csv", "review,title,stars\n\"x\ny\",t,9\nx,t,8\n") ==
        "dev.csv:4: column \"stars\": unknown label \"8\"; the labels are 9, 10");
  CHECK(own.error("dev.jsonl", "{\"review\": \"x\", \"title\": \"\", \"stars\": 9}\n{\"review\": 1}\n") ==
        "dev.jsonl:2: no field \"stars\"; the object has review");
  CHECK(own.error("dev.jsonl", "{\"review\": \"x\", \"title\": [], \"stars\": 9}\n") ==
        "dev.jsonl:1: column \"title\": want a string or a number, got array");
  CHECK(own.error("dev.jsonl", "{\"review\": \"x\"\n") == "dev.jsonl:1:15: this is not JSON");
  CHECK(own.error("dev.jsonl", "[]\n") == "dev.jsonl:1: want a JSON object in each line, got array");
  const std::string empty =
      "column \"stars\": the label is empty; want one in every row, or no such column in a test file";
  for (const char* name : {"dev.csv", "test.csv", "train.csv"})  // the last one forgets the labels
    CHECK(own.error(name, "review,title,stars\na,b,10\na,b,\n") == name + (":3: " + empty));
  CHECK(own.error("train.jsonl", "{\"review\": \"x\", \"title\": \"\", \"stars\": \"\"}\n") ==
        "train.jsonl:1: " + empty);
  CHECK(own.error("train.csv", "review,title,stars\na,b,1\n") == "train.csv: want two labels or more, got 1");
  CHECK_THROWS_WITH(table_format("x.xlsx"), Contains("ends in .csv, .tsv, .jsonl, .json, .parquet or .arrow"));

  own.config.labels = {"9", "8"};
  CHECK(own.read("train.csv", "review,title,stars\na,b,8\n").texts[0].label == 1);
  own.config.labels = {"9", "9"};
  CHECK(own.error("train.csv", "review,title,stars\na,b,9\n") == "data.labels or data.label_columns has a label twice");
}

TEST_CASE("CoNLL columns: documents, blank lines, labels of the training file", "[unit][tasks]") {
  TaskFiles ner("ner");
  const std::string train = "-DOCSTART- -X- O O\n\nEU NNP I-NP B-ORG\r\nrejects VBZ I-VP O\n\n\nPeter NNP I-NP B-PER\n";
  TaskExamples examples = ner.read("train.txt", train);
  CHECK(ner.task.labels == std::vector<std::string>{"B-ORG", "B-PER", "O"});
  REQUIRE(examples.size() == 2);
  CHECK(examples.sentences[0].begins_document);
  CHECK(examples.sentences[0].words == std::vector<std::string>{"EU", "rejects"});
  CHECK(examples.sentences[0].tags == std::vector<int32_t>{0, 2});
  CHECK_FALSE(examples.sentences[1].begins_document);
  CHECK_FALSE(ner.read("test.txt", "Peter\nsays\n").has_labels);
  CHECK(ner.error("dev.txt", "Peter O\nsays X\n") ==
        "dev.txt:2: unknown label \"X\"; the training file and the configuration do not have it");
  CHECK(ner.error("dev.txt", "Peter O\nsays\n") == "dev.txt:2: the line has 1 columns, the lines before it 2");
  CHECK(ner.error("dev.txt", "Peter\n") == "dev.txt:1: no label: the line has one column, and the last is the label");
  CHECK(ner.error("dev.txt", "\n\n") == "dev.txt: the file has no words");
}

TEST_CASE("A long sentence becomes several sequences, and each word is in one", "[unit][tasks]") {
  TaskFiles ner("ner");
  const TaskExamples examples =
      ner.read("train.txt", "the O\nun B-X\nunaffable B-X\ncat O\n\x01 O\ncafeteria O\nthe O\n");
  const WordPieceTokenizer tokenizer(small_vocabulary());
  ner.config.max_seq_length = 8;
  const TaskFeatures features = make_features(examples, tokenizer, ner.config, true);
  // [CLS] the un un ##aff ##able cat [SEP]; [CLS] cafe ##t ##e ##r ##i ##a [SEP]; [CLS] the [SEP]. U+0001 has no token.
  REQUIRE(features.sequences.size() == 3);
  const int32_t none = kNoLabel;
  CHECK(features.sequences[0].token_labels == std::vector<int32_t>{none, 1, 0, 0, none, none, 1, none});
  CHECK(features.sequences[0].token_words == std::vector<int32_t>{-1, 0, 1, 2, -1, -1, 3, -1});
  CHECK(features.sequences[1].token_words == std::vector<int32_t>{-1, 5, -1, -1, -1, -1, -1, -1});
  CHECK(features.sequences[2].token_words == std::vector<int32_t>{-1, 6, -1});
  CHECK(features.logit_offsets() == std::vector<int64_t>{0, 16, 32, 38});
}

TEST_CASE("SWAG's choices are neighbours with the context before them", "[unit][tasks]") {
  TaskFiles swag("swag");
  const std::string text =
      ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label\n"
      "0,v,1,s,the cat,the,gold,a,b,\"c, d\",e,2\n";
  const TaskExamples examples = swag.read("val.csv", text);
  CHECK(examples.texts[0].label == 2);
  const WordPieceTokenizer tokenizer(small_vocabulary());
  const TaskFeatures features = make_features(examples, tokenizer, {}, true);
  REQUIRE(features.sequences.size() == 4);
  const TaskSequence& third = features.sequences[2];
  std::vector<std::string> tokens;
  for (const int32_t id : third.input_ids) tokens.push_back(tokenizer.vocabulary().token(id));
  CHECK(tokens == std::vector<std::string>{"[CLS]", "the", "cat", "[SEP]", "the", "c", "[UNK]", "d", "[SEP]"});
  CHECK(third.token_type_ids == std::vector<int32_t>{0, 0, 0, 0, 1, 1, 1, 1, 1});
  CHECK(third.choice == 2);
  CHECK(third.label == 2);
  CHECK(swag.error("val.csv", "sent1,sent2,ending0,ending1,ending2,label\na,b,c,d,e,0\n") ==
        "val.csv:1: no column \"ending3\"; the columns are sent1, sent2, ending0, ending1, ending2, label");
  CHECK(swag.error("val.csv", text.substr(0, text.size() - 2) + "4\n") ==
        "val.csv:2: column \"label\": unknown label \"4\"; the labels are 0, 1, 2, 3");
}

TEST_CASE("Questions are read from JSON lines, as datasets writes them", "[unit][tasks]") {
  TaskFiles v1("squad-v1"), v2("squad-v2");
  const std::string asked = R"({"id": "k", "title": "t", "context": "café the fox", "question": "q", "answers": )";
  const std::string none = R"({"text": [], "answer_start": []}})";
  const std::string first = asked + R"({"text": ["fox", "the fox"], "answer_start": [9, 5]}})" + "\n";
  const std::string second = replaced(asked, "\"k\"", "\"l\"") + none + "\n";
  for (const char* name : {"dev.jsonl", "dev.json"}) {
    const TaskExamples examples = v2.read(name, first + "\n" + second);
    REQUIRE(examples.size() == 2);
    CHECK(examples.has_labels);
    CHECK(examples.squad.paragraphs.size() == 1);
    CHECK(examples.squad.questions[0].answers[0].start == 10);  // in bytes
    CHECK(examples.squad.questions[0].answers[1].text == "the fox");
    CHECK(examples.squad.questions[1].id == "l");
    CHECK(examples.squad.questions[1].is_impossible);
  }
  CHECK(v1.read("dev.json", first).size() == 1);
  CHECK(v1.error("dev.jsonl", first + second) == "dev.jsonl:2: question l: it has no answers");
  CHECK(v1.error("dev.jsonl", first + first) == "dev.jsonl:2: question k: another question has this id");
  CHECK(v1.error("dev.jsonl", first + "[]") == "dev.jsonl:2: want an object, got array");
  CHECK(v1.error("dev.jsonl", first + "{") == "dev.jsonl:2:2: this is not JSON");
  CHECK(v1.error("dev.jsonl", asked + R"({"text": ["fox"], "answer_start": [2]}})") ==
        "dev.jsonl:1: answers[0]: question k: the context does not have the answer \"fox\" at character 2");
  CHECK(v1.error("dev.jsonl", asked + R"({"text": ["fox"], "answer_start": []}})") ==
        "dev.jsonl:1: answers: 1 in text, and 0 in answer_start");
  CHECK_FALSE(v1.read("test.jsonl", R"({"id": "k", "context": "a fox", "question": "q"})").has_labels);
}

TEST_CASE("Errors of SQuAD's files name the place and the question", "[unit][tasks]") {
  TaskFiles squad("squad-v1");
  const auto file = [](const std::string& question, const std::string& context = "caf\u00e9 the fox") {
    return fmt::format(R"({{"version": "1.1", "data": [{{"paragraphs": [{{"context": "{}", "qas": [{}]}}]}}]}})",
                       context, question);
  };
  const auto asked = [](const std::string& rest) { return R"({"id": "k", "question": "q")" + rest + "}"; };
  const std::string place = "dev.json: data[0].paragraphs[0].qas[0]";
  const TaskExamples good = squad.read("dev.json", file(asked(R"(, "answers": [{"text": "fox", "answer_start": 9}])")));
  CHECK(good.squad.questions[0].answers[0].start == 10);  // in bytes
  const TaskExamples shifted =                            // annotations are off by a character or two
      squad.read("dev.json", file(asked(R"(, "answers": [{"text": "fox", "answer_start": 7}])")));
  CHECK(shifted.squad.questions[0].answers[0].start == 10);

  CHECK(squad.error("dev.json", file(asked(R"(, "answers": [{"text": "fox", "answer_start": 2}])"))) ==
        place + ".answers[0]: question k: the context does not have the answer \"fox\" at character 2");
  CHECK(squad.error("dev.json", file(asked(R"(, "answers": [{"text": "fox", "answer_start": 99}])"))) ==
        place + ".answers[0]: question k: the context does not have the answer \"fox\" at character 99");
  CHECK(squad.error("dev.json", file(asked(R"(, "answers": [{"text": "fox", "answer_start": -1}])"))) ==
        place + ".answers[0].answer_start: want the number of a character, got -1");
  CHECK(squad.error("dev.json", file(asked(R"(, "answers": [{"text": "", "answer_start": 1}])"))) ==
        place + ".answers[0]: question k: the answer is empty");
  CHECK(squad.error("dev.json", file(asked(""))) == place + ": question k: it has no answers");
  CHECK(squad.error("dev.json", file(asked(R"(, "answers": [], "is_impossible": true)"))) ==
        place + ": question k: it has no answer (is_impossible): this is a file of SQuAD 2.0, and the task SQuAD 1.1");
  CHECK(squad.error("dev.json", file(R"({"id": "k"})")) == place + ": no field \"question\"");
  CHECK(squad.error("dev.json", file(R"({"id": 5, "question": "q"})")) == place + ".id: want a string, got number");
  CHECK(squad.error("dev.json", file("7")) == place + ": want an object, got number");
  CHECK(squad.error("dev.json", file("")) == "dev.json: the file has no questions");
  CHECK(squad.error("dev.json", "[1]") ==
        "dev.json: want a file of SQuAD: an object with the field \"data\", or a question in each line");
  CHECK(squad.error("dev.json", "{\n\"data\": [1,\n ]}") == "dev.json:3:2: this is not JSON");
  CHECK(squad.error("dev.json", "") == "dev.json: the file is empty");
  CHECK(squad.error("dev.json", std::string(100, '[')) == "dev.json:1: nested deeper than 64 levels");
  const std::string one = asked(R"(, "answers": [{"text": "fox", "answer_start": 9}])");
  CHECK(squad.error("dev.json", file(one + "," + one)) ==
        "dev.json: data[0].paragraphs[0].qas[1]: question k: another question has this id");
  CHECK_FALSE(squad.read("test.json", file(asked(""))).has_labels);

  TaskFiles v2("squad-v2");
  const TaskExamples none = v2.read("dev.json", file(asked(R"(, "answers": [], "is_impossible": true)")));
  CHECK(none.has_labels);
  CHECK(none.squad.questions[0].is_impossible);
}

TEST_CASE("A question that fills the sequence is refused", "[unit][tasks]") {
  TaskFiles squad("squad-v1");
  const TaskExamples examples = squad.read("dev.json", R"({"data": [{"paragraphs": [{"context": "the fox", "qas": [
    {"id": "k", "question": "the the the the the the", "answers": [{"text": "fox", "answer_start": 4}]}]}]}]})");
  const WordPieceTokenizer tokenizer(small_vocabulary());
  squad.config.max_seq_length = 9;
  CHECK_THROWS_WITH(
      make_features(examples, tokenizer, squad.config, false),
      Contains("/dev.json: question k: max_seq_length 9 leaves no room for the context beside a question of 6 tokens"));
  squad.config.max_query_length = 5;
  CHECK(make_features(examples, tokenizer, squad.config, false).sequences.size() == 4);  // one token in each window
}

TEST_CASE("The real files of SST-2 and MRPC have all their rows", "[unit][tasks]") {
  const std::string data = shared_data();
  if (data.empty()) BERT_SKIP("../shared/data is absent");
  const auto sizes = [&](const std::string& name, const std::string& directory) {
    const TaskDefinition task = task_definition(name);
    std::vector<int64_t> counts;
    for (const TaskFile& file : task.files) {
      const TaskExamples examples = read_task(task, file, find_task_file(file, data + "/glue/" + directory), {});
      CHECK(examples.has_labels == (file.split != TaskSplit::kTest));
      counts.push_back(examples.size());
    }
    return counts;
  };
  CHECK(sizes("sst2", "SST-2") == std::vector<int64_t>{67349, 872, 1821});  // as ../shared/data/README.md says
  CHECK(sizes("mrpc", "MRPC") == std::vector<int64_t>{3668, 408, 1725});
}

TEST_CASE("A table that is cut while it is read is an error that says so", "[unit][tasks]") {
  const TemporaryDirectory directory;
  const std::string path = directory.path("a.tsv");
  std::string text = "text\tlabel\n";
  for (int i = 0; i < 3000; ++i) text += "some words\t1\n";
  std::ofstream(path) << text;
  TableReader table(path, {{"text"}, {"label", false}}, {.format = TableFormat::kTsv, .header = {}});
  REQUIRE(table.next());
  std::filesystem::resize_file(path, 5000);
  const auto read_on = [&] {
    while (table.next()) {
    }
  };
  CHECK_THROWS_WITH(read_on(), Contains("a.tsv: byte 5000: the file was cut to 5000 of its "));
}

TEST_CASE("A file of CoNLL that is cut while it is read is an error that says so", "[unit][tasks]") {
  const TemporaryDirectory directory;
  const std::string path = directory.path("a.txt");
  std::string text;
  for (int i = 0; i < 3000; ++i) text += "word O\n\n";
  std::ofstream(path) << text;
  int64_t lines = 0;
  const auto cut_at_first = [&](const ConllLine&) {
    if (lines++ == 0) std::filesystem::resize_file(path, 5000);
  };
  CHECK_THROWS_WITH(for_each_conll_line(path, cut_at_first), Contains("a.txt: byte 5000: the file was cut to 5000"));
}
