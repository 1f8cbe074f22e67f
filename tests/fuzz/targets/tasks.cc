// Files of fine-tuning tasks: the first byte chooses the format. What is read lies in the file, and its features hold together.
#include <algorithm>

#include "data/io/error.h"
#include "data/tasks/conll.h"
#include "data/tasks/entity_lines.h"
#include "data/tasks/table_reader.h"
#include "data/tasks/task_data.h"
#include "tests/fuzz/targets/fuzz_targets.h"
#include "tests/support/small_vocabulary.h"

namespace bert::testing {
namespace {

std::vector<std::string> seeds() {
  return {"1text\tlabel\na \"b\t1\r\nthe cat\t0\n",
          "2text,label\n\"a, \"\"b\"\"\nc\",1\nd,0\n",
          "3{\"text\": \"a\\u00e9\", \"label\": 1}\n{\"text\": \"b\", \"label\": 0.5, \"more\": [{}]}\n",
          "4-DOCSTART- O\n\nEU B-X\nthe O\n\ncat I-X\n",
          R"(5{"data": [{"paragraphs": [{"context": "the caf\u00e9 1 2 3 cat. the cat", "qas": [)"
          R"({"id": "a", "question": "the cat?", "answers": [{"text": "cat", "answer_start": 15}]},)"
          R"({"id": "b", "question": "", "is_impossible": true, "answers": []}]}]}]})",
          "6{\"id\": \"a\", \"context\": \"the cat\", \"question\": \"b\", \"answers\": {\"text\": [\"cat\"], "
          "\"answer_start\": [4]}}\n{\"id\": \"b\", \"context\": \"the cat\", \"question\": \"c\", \"answers\": "
          "{\"text\": [], \"answer_start\": []}}\n",
          "7{\"text\": \"the caf\\u00e9, cat\", \"label\": [[4, 8, \"X\"]]}\n{\"text\": \"a\", \"label\": []}\n"};
}

void read_table(const std::string& path, TableFormat format, bool same_width) {
  TableReader table(path, {{"text"}, {"label", false}}, {.format = format, .header = {}, .same_width = same_width});
  while (table.next()) require(table.has(1) || table.cell(1).empty(), "a column that is absent has a value");
}

void read_questions(const std::string& path) {
  const WordPieceTokenizer tokenizer(small_vocabulary());
  TaskDataConfig config;
  config.max_seq_length = 16;
  config.doc_stride = 3;
  config.max_query_length = 6;
  for (const TaskSplit split : {TaskSplit::kTrain, TaskSplit::kTest}) {
    const TaskExamples examples =
        read_task(task_definition("squad-v2"), {.split = split, .part = {}, .names = {}, .output = {}}, path, config);
    for (const SquadQuestion& question : examples.squad.questions) {
      const std::string& context = examples.squad.paragraphs[static_cast<size_t>(question.paragraph)].context;
      for (const SquadAnswer& answer : question.answers)
        require(context.compare(static_cast<size_t>(answer.start), answer.text.size(), answer.text) == 0,
                "an answer is not in the context");
    }
    for (const bool for_training : {false, true}) {
      const TaskFeatures features = make_features(examples, tokenizer, config, for_training);
      require(for_training || features.windows.size() == features.sequences.size(), "a sequence has no window");
      for (const TaskSequence& sequence : features.sequences) {
        const auto length = static_cast<int32_t>(sequence.input_ids.size());
        require(length <= config.max_seq_length && sequence.token_type_ids.size() == sequence.input_ids.size(),
                "a sequence has a wrong length");
        require(0 <= sequence.start_position && sequence.start_position <= sequence.end_position &&
                    sequence.end_position < length,
                "an answer lies outside of its sequence");
      }
    }
  }
}

void read_spans(const std::string& path) {
  TaskExamples examples;
  examples.task = task_definition("ner");
  examples.task.labels = {"O", "B-X", "I-X"};
  examples.file = path;
  read_entity_lines(examples, {});
  for (const TaggedSentence& sentence : examples.sentences)
    require(!sentence.words.empty() && sentence.tags.size() == sentence.words.size(), "a word has no label");
}

void read(std::string_view bytes) {
  if (bytes.empty()) return;
  const MemoryFile file(bytes.substr(1));
  switch (bytes.front() % 8) {
    case 1:
      return read_table(file.path(), TableFormat::kTsv, false);
    case 2:
      return read_table(file.path(), TableFormat::kCsv, true);
    case 3:
      return read_table(file.path(), TableFormat::kJsonLines, true);
    case 4:
      return for_each_conll_line(file.path(), [](const ConllLine& line) {
        require(line.kind != ConllLine::Kind::kWord || !line.columns.empty(), "a word has no column");
      });
    case 7:
      return read_spans(file.path());
    default:
      read_questions(file.path());
  }
}

}  // namespace

FuzzTarget tasks_target() { return {"tasks", seeds(), read}; }

}  // namespace bert::testing
