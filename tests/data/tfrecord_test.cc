#include "data/formats/tfrecord.h"

#include <filesystem>
#include <fstream>

#include "data/formats/tf_example.h"
#include "data/io/crc32c.h"
#include "data/io/error.h"
#include "tests/support/example_data.h"
#include "tests/support/example_golden.h"
#include "tests/support/text_file.h"
#include "tests/testing.h"

namespace bert {
namespace {

using testing::Contains;
using testing::ExampleGolden;
using testing::read_examples;
using testing::TemporaryDirectory;
using testing::write_text;

/// A TFRecord of one record with the right checksums.
void write_record(const std::string& path, const std::string& record) {
  const uint64_t size = record.size();
  const uint32_t head = masked_crc32c(crc32c(&size, sizeof size)), sum = masked_crc32c(crc32c(record.data(), size));
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(&size), sizeof size).write(reinterpret_cast<const char*>(&head), sizeof head);
  out.write(record.data(), static_cast<std::streamsize>(size)).write(reinterpret_cast<const char*>(&sum), sizeof sum);
}

std::string reading_error(const std::string& path) {
  return testing::message_of<DataError>([&] { read_examples(path); });
}

TEST_CASE("CRC-32C has the values of RFC 3720, B.4", "[unit][tfrecord]") {
  std::string bytes(32, '\0');
  CHECK(crc32c(bytes.data(), 32) == 0x8a9136aaU);
  CHECK(crc32c(std::string(32, '\xff').data(), 32) == 0x62a8ab43U);
  for (int i = 0; i < 32; ++i) bytes[static_cast<size_t>(i)] = static_cast<char>(i);
  CHECK(crc32c(bytes.data(), 32) == 0x46dd794eU);
  CHECK(crc32c("123456789", 9) == 0xe3069283U);
}

TEST_CASE("TFRecords that protobuf serialized are read, with other orders, names and encodings", "[unit][tfrecord]") {
  const TemporaryDirectory directory;
  const ExampleGolden golden(testing::golden("example_files.json"), directory.path());
  for (const char* name : {"plain.tfrecord", "later_names.tfrecord", "unpacked.tfrecord", "packed.tfrecord.gz"}) {
    CAPTURE(name);
    const auto reader = open_examples(golden.file(name));
    CHECK(reader->info().max_seq_length == golden.max_seq_length());
    CHECK(reader->info().max_predictions_per_seq == golden.max_predictions());
    CHECK(reader->info().vocab_size == 0);
    CHECK(read_examples(*reader) == golden.examples());
    CHECK(reader->share() == 1.0);
  }
  CHECK(format_of_file(golden.file("packed.tfrecord.gz")) == "tfrecord.gz");
}

TEST_CASE("Google's TFRecord is read, and written again byte for byte", "[unit][tfrecord]") {
  if (testing::shared_data().empty()) BERT_SKIP("needs ../shared/data/pretraining");
  const std::string google = testing::shared_data() + "/pretraining/google_sample_seed12345.tfrecord";
  const TemporaryDirectory directory;
  const auto reader = open_examples(google);
  CHECK(reader->info().max_seq_length == 128);
  CHECK(reader->info().max_predictions_per_seq == 20);
  const std::vector<PretrainingExample> examples = read_examples(*reader);
  CHECK(examples.size() == 60);
  for (const std::string& format : {std::string("tfrecord"), std::string("tfrecord.gz")}) {
    const std::string path = directory.path(format);
    const auto writer = create_examples_file(format, path, reader->info());
    for (const PretrainingExample& example : examples) writer->add(example);
    CHECK_FALSE(std::filesystem::exists(path));
    writer->commit();
    CHECK(read_examples(path) == examples);
  }
  CHECK(read_file(directory.path("tfrecord")) == read_file(google));
  SequentialFile unpacked(directory.path("tfrecord.gz"));
  std::string content(size_t{1} << 20, '\0');
  content.resize(unpacked.read(content.data(), content.size()));
  CHECK(content == read_file(google));
}

TEST_CASE("No changed byte of a TFRecord changes an example, and every cut is noticed", "[unit][tfrecord]") {
  const TemporaryDirectory directory;
  const ExampleGolden golden(testing::golden("example_files.json"), directory.path());
  for (const char* name : {"plain.tfrecord", "packed.tfrecord.gz"}) {
    CAPTURE(name);
    const std::string path = golden.file(name), bytes = read_file(path);
    size_t refused = 0;
    for (size_t i = 0; i < bytes.size(); ++i) {
      std::string damaged = bytes;
      damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
      write_text(path, damaged);
      INFO("byte " << i);
      try {
        const auto read = read_examples(path);
        CHECK(read == golden.examples());  // some bits of gzip have no meaning
      } catch (const DataError&) {
        ++refused;
      }
    }
    CHECK(refused + (path.ends_with(".gz") ? 12 : 0) >= bytes.size());
    for (const size_t size : {size_t{1}, size_t{11}, bytes.size() / 4 + 5, bytes.size() - 1}) {
      write_text(path, bytes.substr(0, size));
      CHECK_THROWS_AS(read_examples(path), DataError);
    }
  }
  const std::string path = golden.file("plain.tfrecord");
  std::string bytes = read_file(path);
  bytes[bytes.size() - 40] = 'x';
  write_text(path, bytes);
  CHECK_THAT(reading_error(path), Contains(path + ": byte ") && Contains("record 3: its checksum does not match"));
  bytes.resize(bytes.size() - 50);
  write_text(path, bytes);
  CHECK_THAT(reading_error(path), Contains("record 3: the file ends inside of it"));
}

TEST_CASE("gzip of several members is read as one file, and what follows gzip is refused", "[unit][tfrecord]") {
  const TemporaryDirectory directory;
  const ExampleGolden golden(testing::golden("example_files.json"), directory.path());
  const std::string path = golden.file("packed.tfrecord.gz"), bytes = read_file(path);
  write_text(path, bytes + bytes);
  CHECK(read_examples(path).size() == 2 * golden.examples().size());
  write_text(path, bytes + "garbage");
  CHECK_THAT(reading_error(path), Contains("damaged gzip"));
  write_text(path, bytes.substr(0, bytes.size() - 8));
  CHECK_THAT(reading_error(path), Contains("the gzip file is cut off"));
}

TEST_CASE("A tf.Example that contradicts itself is refused with the reason", "[unit][tfrecord]") {
  const TemporaryDirectory directory;
  const std::string path = directory.path("a.tfrecord");
  PaddedExample good;
  pad({{7, 8, 9}, 1, {2}, {5}, true}, 4, 2, good);
  const auto error = [&](const auto& change) {
    PaddedExample bad = good;
    change(bad);
    std::string record;
    append_tf_example(bad, record);
    write_record(path, record);
    return reading_error(path);
  };
  CHECK(error([](PaddedExample&) {}) == "");
  CHECK_THAT(error([](auto& e) { e.input_mask = {1, 0, 1, 0}; }), Contains("input_mask[2] is 1, expected 0"));
  CHECK_THAT(error([](auto& e) { e.input_mask = {2, 0, 0, 0}; }), Contains("input_mask[0] is 2, expected 1 or 0"));
  CHECK_THAT(error([](auto& e) { e.input_mask = {0, 0, 0, 0}; }), Contains("0 tokens"));
  CHECK_THAT(error([](auto& e) { e.segment_ids = {1, 0, 1, 0}; }), Contains("segment_ids[1] is 0, expected 1"));
  CHECK_THAT(error([](auto& e) { e.input_ids[0] = -1; }), Contains("input_ids has -1, which is no id"));
  CHECK_THAT(error([](auto& e) { e.input_ids[0] = int64_t{1} << 31; }), Contains("input_ids has 2147483648"));
  CHECK_THAT(error([](auto& e) { e.input_ids.pop_back(); }), Contains("3 input_ids, 4 input_mask"));
  CHECK_THAT(error([](auto& e) { e.masked_lm_positions[0] = 3; }), Contains("masked position 3"));
  CHECK_THAT(error([](auto& e) { e.masked_lm_weights[0] = 0.5F; }), Contains("masked_lm_weights[0] is 0.5"));
  CHECK_THAT(error([](auto& e) { e.masked_lm_weights[1] = 1; }), Contains("positions out of order"));
  CHECK_THAT(error([](auto& e) { e.masked_lm_ids.pop_back(); }), Contains("1 masked_lm_ids"));
  CHECK_THAT(error([](auto& e) { e.next_sentence_label = 2; }), Contains("next_sentence_labels is 2"));

  std::string record;
  append_tf_example(good, record);
  const auto parse_error = [&](const std::string& changed) {
    write_record(path, changed);
    return reading_error(path);
  };
  const auto renamed = [&](const std::string& from, const std::string& to) {
    std::string changed = record;
    return changed.replace(changed.find(from), from.size(), to);
  };
  CHECK_THAT(parse_error(renamed("input_mask", "input_mist")), Contains("has no feature input_mask"));
  CHECK_THAT(parse_error(record + record), Contains("input_ids is there twice"));
  CHECK_THAT(parse_error(record + "x"), Contains("record 0: "));
  CHECK_THAT(parse_error(record.substr(0, record.size() - 3)), Contains("record 0: the message is cut off"));
  CHECK_THAT(parse_error(""), Contains("has no feature input_ids"));
}

TEST_CASE("An entry of weight 0 is padding wherever it stands", "[unit][tfrecord]") {
  PaddedExample padded;
  pad({{7, 8, 9}, 1, {1, 2}, {5, 6}, false}, 4, 3, padded);
  padded.masked_lm_weights[0] = 0;
  PretrainingExample example;
  unpad(padded, example);
  CHECK(example == PretrainingExample{{7, 8, 9}, 1, {2}, {6}, false});
  padded.masked_lm_weights.clear();  // as in HDF5: position 0 ends the masks
  unpad(padded, example);
  CHECK(example.masked_positions == std::vector<int32_t>{1, 2});
  padded.masked_lm_positions = {1, 0, 2};
  CHECK_THROWS_WITH(unpad(padded, example), Contains("masked_lm_positions[2] is 2 after a 0"));
}

TEST_CASE("A TFRecord holds no example that exceeds its lengths, and files need a length", "[unit][tfrecord]") {
  const TemporaryDirectory directory;
  const ExampleFileInfo info{
      .max_seq_length = 4, .max_predictions_per_seq = 1, .vocab_size = 10, .vocabulary_checksum = "", .parameters = {}};
  const auto writer = create_examples_file("tfrecord", directory.path("a"), info);
  CHECK_THROWS_AS(writer->add({{1, 2, 3, 4, 5}, 1, {}, {}, false}), DataError);
  CHECK_THROWS_AS(writer->add({{1, 2, 10}, 1, {}, {}, false}), DataError);
  CHECK_THROWS_WITH(writer->add({{1, 2, 3}, 1, {1, 2}, {1, 1}, false}),
                    Contains("3 tokens and 2 masks; the file has room for 4 and 1"));
  CHECK_THROWS_AS(create_examples_file("tfrecord", directory.path("a"), {}), DataError);
  CHECK_THROWS_AS(create_examples_file("csv", directory.path("a"), info), std::invalid_argument);
}

TEST_CASE("A file that is no file of examples is refused by name", "[unit][tfrecord]") {
  const TemporaryDirectory directory;
  write_text(directory.path("a.tfrecord"), "Once upon a time there was a text.");
  CHECK_THAT(reading_error(directory.path("a.tfrecord")), Contains("no file of examples"));
  write_text(directory.path("empty"), "");
  CHECK_THAT(reading_error(directory.path("empty")), Contains("the file is empty"));
  CHECK_THROWS_AS(open_examples(directory.path("absent")), InputMissing);
}

TEST_CASE("A directory stands for its files of examples, and an absent one of a numbered set is told",
          "[unit][tfrecord]") {
  const TemporaryDirectory directory;
  CHECK_THROWS_AS(example_files(directory.path()), InputMissing);
  const auto put = [&](const std::string& name) { testing::write_made_up_shard(directory.path(name), 0, 2); };
  for (const char* name : {"00002-of-00003.shard", "00000-of-00003.shard", "00001-of-00003.shard"}) put(name);
  CHECK(example_files(directory.path()).size() == 3);
  CHECK(example_files(directory.path()).front() == directory.path("00000-of-00003.shard"));
  CHECK(PretrainingShards({directory.path()}).size() == 6);
  put("other.shard");
  write_text(directory.path("notes.txt"), "not examples");
  CHECK(example_files(directory.path()).size() == 4);
  std::filesystem::remove(directory.path("00001-of-00003.shard"));
  CHECK_THROWS_AS(example_files(directory.path()), InputMissing);
  CHECK_THROWS_WITH(PretrainingShards({directory.path()}),
                    Contains("00001-of-00003.shard is missing; 2 of its 3 files are there"));
  put("00001-of-00003.shard");
  put("00000-of-00001.shard");
  CHECK_THROWS_WITH(example_files(directory.path()), Contains("files of two creations"));
}

}  // namespace
}  // namespace bert
