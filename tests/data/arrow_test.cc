#include <filesystem>
#include <fstream>

#include "data/formats/arrow_examples.h"
#include "data/formats/arrow_rows.h"
#include "data/io/error.h"
#include "data/io/plugin.h"
#include "tests/support/example_golden.h"
#include "tests/testing.h"

namespace bert {
namespace {

using testing::Contains;
using testing::ExampleGolden;
using testing::read_examples;
using testing::TemporaryDirectory;

bool has_arrow() { return std::filesystem::exists(plugin_path("libbert_arrow.so")); }

constexpr const char* kNoArrow = "needs libbert_arrow.so, which app/setup.sh --arrow builds";

/// The vocabulary of the golden's pairs, and its first `size` tokens.
Vocabulary pair_vocabulary(int64_t size = 300) {
  std::vector<std::string> tokens = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  while (static_cast<int64_t>(tokens.size()) < size) tokens.push_back("t" + std::to_string(tokens.size()));
  return Vocabulary(tokens);
}

std::string reading_error(const std::string& path, const Vocabulary* vocabulary = nullptr) {
  return testing::message_of<std::runtime_error>([&] { read_examples(path, vocabulary); });
}

TEST_CASE("Numbers have the bytes that numpy.save gives them", "[unit][arrow]") {
  // numpy.save of numpy.array([1, 300], numpy.uint16), NumPy 2.4.6
  const std::string bytes = std::string("\x93NUMPY\x01\x00v\x00", 10) +
                            "{'descr': '<u2', 'fortran_order': False, 'shape': (2,), }" + std::string(60, ' ') + "\n" +
                            std::string("\x01\x00\x2c\x01", 4);
  CHECK(write_npy({1, 300}) == bytes);
  CHECK(parse_npy(bytes) == std::vector<int64_t>{1, 300});
  CHECK(parse_npy(write_npy({})).empty());
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string changed = bytes;
    return changed.replace(changed.find(from), from.size(), to);
  };
  CHECK(parse_npy(replaced("(2,)", "(1,)").substr(0, bytes.size() - 2)) == std::vector<int64_t>{1});
  std::string wide = replaced("(2,)", "(1,)");
  CHECK(parse_npy(wide.replace(wide.find("<u2"), 3, "<i4")) == std::vector<int64_t>{1 + 300 * 65536});
  CHECK_THROWS_WITH(parse_npy(replaced("<u2", "<f2")), Contains("of type <f2"));
  CHECK_THROWS_WITH(parse_npy(replaced("(2,)", "(3,)")), Contains("2 values are there"));
  CHECK_THROWS_WITH(parse_npy(replaced("(2,)", "(2 )")), Contains("shape"));
  CHECK_THROWS_AS(parse_npy(bytes.substr(0, 50)), DataError);
  CHECK_THROWS_AS(parse_npy("nothing"), DataError);
}

TEST_CASE("A row that is no example is refused with the reason", "[unit][arrow]") {
  PretrainingExample example;
  const std::vector<int64_t> ids = {2, 7, 8, 0}, mask = {1, 1, 1, 0}, holes = {1, 0, 1, 0}, types = {0, 1, 1, 0},
                             labels = {-100, 9, -100, -100}, few = {1, 1};
  ArrowRow row;
  row.input_ids = ids;
  row.attention_mask = mask;
  row.token_type_ids = types;
  row.labels = labels;
  row.label = 1;
  from_hugging_face(row, true, example);
  CHECK(example == PretrainingExample{{2, 7, 8}, 1, {1}, {9}, true});
  const auto changed = [&](auto member, const std::vector<int64_t>& value) {
    ArrowRow bad = row;
    bad.*member = value;
    return bad;
  };
  CHECK_THROWS_WITH(from_hugging_face(changed(&ArrowRow::attention_mask, holes), true, example),
                    Contains("attention_mask is not 1...1 0...0"));
  CHECK_THROWS_WITH(from_hugging_face(changed(&ArrowRow::token_type_ids, {0, 1, 0, 0}), true, example),
                    Contains("token_type_ids is not 0...0 1...1"));
  CHECK_THROWS_WITH(from_hugging_face(changed(&ArrowRow::labels, few), true, example),
                    Contains("4 input_ids and 2 labels"));
  CHECK_THROWS_WITH(from_hugging_face(changed(&ArrowRow::input_ids, {-1, 7, 8, 0}), true, example),
                    Contains("input_ids has -1"));
  for (const std::vector<int64_t>& copies : {std::vector<int64_t>{2, 7, 8, 0}, {2, 7, 8, -100}}) {
    CHECK_THROWS_WITH(from_hugging_face(changed(&ArrowRow::labels, copies), true, example),
                      Contains("labels equals input_ids") && Contains("every token would be a prediction"));
    from_hugging_face(changed(&ArrowRow::labels, copies), false, example);
    CHECK(example.masked_ids.empty());
  }
  row.label = 2;
  CHECK_THROWS_WITH(from_hugging_face(row, true, example), Contains("the label of the next sentence is 2"));

  const Vocabulary vocabulary = pair_vocabulary();
  ArrowRow tokens;
  tokens.a = " t5  t6 ";
  tokens.b = "t7";
  from_lddl(tokens, false, vocabulary, example);
  CHECK(example == PretrainingExample{{2, 5, 6, 3, 7, 3}, 4, {}, {}, false});
  tokens.b = "t300";
  CHECK_THROWS_WITH(from_lddl(tokens, false, vocabulary, example), Contains("\"t300\" is not in the vocabulary"));
  const std::vector<std::string_view> words = {"[CLS]", "t5", "t6", "[SEP]"}, unknown = {"[CLS]", "t300"};
  std::vector<int64_t> found;
  ArrowRow split;
  split.tokens = words;
  find_tokens(split, vocabulary, found);
  CHECK(found == std::vector<int64_t>{2, 5, 6, 3});
  split.tokens = unknown;
  CHECK_THROWS_WITH(find_tokens(split, vocabulary, found), Contains("\"t300\" is not in the vocabulary"));
  RowBuffers buffers;
  CHECK_THROWS_WITH(to_lddl({{2, 5, 6, 3}, 4, {}, {}, false}, vocabulary, buffers), Contains("is no pair"));
}

TEST_CASE("Arrow and Parquet files that pyarrow wrote are read", "[unit][arrow]") {
  const TemporaryDirectory directory;
  const ExampleGolden golden(testing::golden("example_files.json"), directory.path());
  CHECK(format_of_file(golden.file("masked.parquet")) == "parquet");
  CHECK(format_of_file(golden.file("stream.arrow")) == "arrow");
  CHECK(format_of_file(golden.file("file.arrow")) == "arrow");
  if (!has_arrow()) {
    CHECK_THROWS_AS(open_examples(golden.file("stream.arrow")), InputMissing);
    CHECK_THAT(reading_error(golden.file("stream.arrow")), Contains("run `app/setup.sh --arrow`"));
    BERT_SKIP(kNoArrow);
  }
  for (const char* name : {"stream.arrow", "file.arrow"}) {
    CAPTURE(name);
    CHECK(read_examples(golden.file(name)) == golden.examples());
  }
  const Vocabulary vocabulary = pair_vocabulary();
  CHECK(read_examples(golden.file("masked.parquet"), &vocabulary) == golden.examples("pairs"));
  auto unmasked = golden.examples("pairs");
  auto tokens = golden.examples();
  for (auto* examples : {&unmasked, &tokens}) {
    for (PretrainingExample& example : *examples) {
      example.masked_positions.clear();
      example.masked_ids.clear();
    }
  }
  const std::string bin = golden.file("unmasked.parquet_1");
  CHECK(read_examples(bin, &vocabulary) == unmasked);
  CHECK(name_in_format("part.0.parquet_1", "shard") == "part.0.shard");
  for (PretrainingExample& example : tokens) {
    example.segment_b_start = static_cast<int32_t>(example.input_ids.size());
    example.is_random_next = false;
  }
  const auto reader = open_examples(golden.file("tokens.arrow"));
  CHECK(reader->info().max_seq_length == golden.max_seq_length());
  CHECK(reader->size() == 4);
  CHECK(read_examples(*reader) == tokens);
  CHECK(read_examples(golden.file("unsigned.arrow")) == tokens);
  CHECK(read_examples(golden.file("words.arrow"), &vocabulary) == tokens);
  CHECK_THAT(reading_error(golden.file("words.arrow")),
             Contains("it holds tokens: name their vocabulary with --vocab"));
  CHECK_THAT(reading_error(bin), Contains("as LDDL's files do: name their vocabulary with --vocab"));
  const Vocabulary small = pair_vocabulary(20);
  CHECK_THAT(reading_error(bin, &small), Contains("row 0: the token \"t") && Contains("is not in the vocabulary"));
}

TEST_CASE("Arrow and Parquet give back what was written, with the facts", "[unit][arrow]") {
  if (!has_arrow()) BERT_SKIP(kNoArrow);
  const TemporaryDirectory directory;
  const ExampleGolden golden(testing::golden("example_files.json"), directory.path());
  const Vocabulary vocabulary = pair_vocabulary();
  const ExampleFileInfo info{.max_seq_length = 20,
                             .max_predictions_per_seq = 4,
                             .vocab_size = vocabulary.size(),
                             .vocabulary_checksum = vocabulary.hash(),
                             .parameters = {{"random_seed", "1"}, {"note", "a=b"}}};
  std::vector<PretrainingExample> pairs;
  while (pairs.size() < 10000)  // several batches
    for (const PretrainingExample& pair : golden.examples("pairs")) pairs.push_back(pair);
  for (const std::string format : {"arrow", "parquet"}) {
    CAPTURE(format);
    const std::string path = directory.path("a." + format);
    const auto writer = create_examples_file(format, path, info, &vocabulary);
    for (const PretrainingExample& pair : pairs) writer->add(pair);
    CHECK_THROWS_AS(writer->add({{2, 5, 400}, 2, {}, {}, false}), DataError);
    CHECK_FALSE(std::filesystem::exists(path));
    writer->commit();
    const auto reader = open_examples(path, &vocabulary);
    CHECK(reader->info().max_seq_length == 20);
    CHECK(reader->info().max_predictions_per_seq == 4);
    CHECK(reader->info().vocab_size == vocabulary.size());
    CHECK(reader->info().vocabulary_checksum == vocabulary.hash());
    CHECK(reader->info().parameters == info.parameters);
    CHECK(reader->size() == static_cast<int64_t>(pairs.size()));
    CHECK(read_examples(*reader) == pairs);

    const std::string bytes = read_file(path);
    std::ofstream(path, std::ios::binary) << bytes.substr(0, bytes.size() / 2);
    CHECK_THAT(reading_error(path, &vocabulary), Contains("cannot read it as Arrow or Parquet"));
  }
  // Without masks there is no column of them: LDDL's loader then draws masks.
  ExampleFileInfo unmasked = info;
  unmasked.parameters = {{"masking", "none"}};
  const std::string path = directory.path("unmasked.parquet");
  const auto writer = create_examples_file("parquet", path, unmasked, &vocabulary);
  CHECK_THROWS_WITH(writer->add({{2, 5, 6, 3}, 4, {}, {}, false}), Contains(path + ": an example is no pair"));
  writer->add({{2, 5, 3, 6, 3}, 3, {}, {}, false});
  writer->commit();
  CHECK_THAT(read_file(path), Contains("is_random_next") && !Contains("masked_lm_positions"));
  CHECK_THROWS_WITH(create_examples_file("parquet", directory.path("b"), info), Contains("with --vocab"));
  CHECK_THROWS_AS(create_examples_file("arrow", directory.path("absent/b"), info), IoError);
}

}  // namespace
}  // namespace bert
