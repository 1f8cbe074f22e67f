#include "data/formats/hdf5.h"

#include <sys/resource.h>

#include <csignal>
#include <filesystem>

#include "data/formats/hdf5_library.h"
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

std::string reading_error(const std::string& path) {
  return testing::message_of<DataError>([&] { read_examples(path); });
}

const ExampleFileInfo kInfo{.max_seq_length = 16,
                            .max_predictions_per_seq = 3,
                            .vocab_size = 1004,
                            .vocabulary_checksum = "0123456789abcdef0123456789abcdef",
                            .parameters = {{"random_seed", "12345"}, {"note", "a=b, caf\xc3\xa9"}}};

/// Writes made-up examples 0 .. count - 1 and returns them.
std::vector<PretrainingExample> write_made_up(const std::string& path, int64_t count,
                                              const ExampleFileInfo& info = kInfo) {
  const auto writer = create_examples_file("hdf5", path, info);
  std::vector<PretrainingExample> examples;
  for (int64_t i = 0; i < count; ++i) {
    examples.push_back(testing::made_up_example(i));
    writer->add(examples.back());
  }
  writer->commit();
  return examples;
}

TEST_CASE("HDF5 files that h5py wrote are read, in any layout, integer type and filter", "[unit][hdf5]") {
  const TemporaryDirectory directory;
  const ExampleGolden golden(testing::golden("example_files.json"), directory.path());
  for (const char* name : {"nvidia.hdf5", "contiguous.hdf5", "big_endian.hdf5", "checksums.hdf5"}) {
    CAPTURE(name);
    const auto reader = open_examples(golden.file(name));
    CHECK(reader->size() == static_cast<int64_t>(golden.examples().size()));
    CHECK(reader->info().max_seq_length == golden.max_seq_length());
    CHECK(reader->info().max_predictions_per_seq == golden.max_predictions());
    CHECK(reader->info().vocab_size == 0);
    CHECK(reader->info().vocabulary_checksum.empty());
    CHECK(read_examples(*reader) == golden.examples());
    CHECK(reader->share() == 1.0);
  }
}

TEST_CASE("HDF5 gives back what was written, with the facts, and the same bytes each time", "[unit][hdf5]") {
  const TemporaryDirectory directory;
  const std::string path = directory.path("a.hdf5");
  const auto examples = write_made_up(path, 10000);  // more than two chunks of rows
  CHECK(format_of_file(path) == "hdf5");
  const auto reader = open_examples(path);
  CHECK(reader->size() == 10000);
  CHECK(reader->info().max_seq_length == 16);
  CHECK(reader->info().max_predictions_per_seq == 3);
  CHECK(reader->info().vocab_size == 1004);
  CHECK(reader->info().vocabulary_checksum == kInfo.vocabulary_checksum);
  CHECK(reader->info().parameters == kInfo.parameters);
  CHECK(read_examples(*reader) == examples);
  write_made_up(directory.path("b.hdf5"), 10000);
  CHECK(read_file(directory.path("b.hdf5")) == read_file(path));
}

TEST_CASE("An HDF5 file has its name when it is whole, and holds no mask at position 0", "[unit][hdf5]") {
  const TemporaryDirectory directory;
  const std::string path = directory.path("a.hdf5");
  write_text(path, "before");
  {
    const auto writer = create_examples_file("hdf5", path, kInfo);
    writer->add(testing::made_up_example(1));
    CHECK_THROWS_WITH(writer->add({{5, 6}, 1, {0}, {7}, false}), Contains("a mask at position 0"));
    CHECK_THROWS_AS(writer->add({{5, 2000}, 1, {}, {}, false}), DataError);
  }
  CHECK(read_file(path) == "before");
  size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(directory.path())) ++files;
  CHECK(files == 1);
  CHECK_THROWS_AS(create_examples_file("hdf5", directory.path("absent/a.hdf5"), kInfo), IoError);
  CHECK_THROWS_AS(create_examples_file("hdf5", path, {}), DataError);
}

TEST_CASE("A file that can grow no more is an error of HDF5's writer, and leaves no file", "[unit][hdf5]") {
  const TemporaryDirectory directory;
  const std::string path = directory.path("a.hdf5");
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  const rlimit small{4096, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  CHECK_THROWS_WITH(write_made_up(path, 20000), Contains(path + ": cannot write: HDF5, "));
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  CHECK_FALSE(std::filesystem::exists(path));
}

TEST_CASE("No changed byte of an HDF5 file changes an example, and a cut file is refused", "[unit][hdf5]") {
  const TemporaryDirectory directory;
  const std::string path = directory.path("a.hdf5");
  const auto examples = write_made_up(path, 20);
  const std::string bytes = read_file(path);
  int64_t refused = 0;
  for (size_t i = 0; i < bytes.size(); i += 23) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x20);
    write_text(path, damaged);
    INFO("byte " << i << " of " << bytes.size());
    try {
      const auto read = read_examples(path);
      CHECK(read == examples);  // the library leaves gaps without meaning
    } catch (const DataError&) {
      ++refused;
    }
  }
  CHECK(refused > static_cast<int64_t>(bytes.size()) / 23 / 2);
  write_text(path, bytes.substr(0, bytes.size() - 1));
  CHECK_THAT(reading_error(path), Contains(" bytes expected, " + std::to_string(bytes.size() - 1) + " are there"));
  write_text(path, bytes + "x");
  CHECK_THAT(reading_error(path), Contains(" are there"));
  write_text(path, bytes.substr(0, 60));
  CHECK_THROWS_AS(read_examples(path), DataError);
}

/// Changes a file that HDF5 itself writes.
template <class Change>
void change_file(const std::string& path, const Change& change) {
  const hdf5::Entered entered;
  const hdf5::Handle file(H5Fopen(path.c_str(), H5F_ACC_RDWR, hdf5::file_access().get()), H5Fclose, "open");
  change(file.get());
}

TEST_CASE("HDF5 of another schema is refused with the difference", "[unit][hdf5]") {
  const TemporaryDirectory directory;
  const std::string path = directory.path("a.hdf5");
  const auto error = [&](const auto& change) {
    write_made_up(path, 20);
    change_file(path, change);
    return reading_error(path);
  };
  CHECK_THAT(error([](hid_t file) { H5Ldelete(file, "input_mask", H5P_DEFAULT); }),
             Contains("it has no dataset input_mask"));
  CHECK_THAT(error([](hid_t file) {
               H5Ldelete(file, "input_ids", H5P_DEFAULT);
               H5Lcreate_external("/etc/passwd", "x", file, "input_ids", H5P_DEFAULT, H5P_DEFAULT);
             }),
             Contains("input_ids is in another file"));
  CHECK_THAT(error([](hid_t file) {
               H5Ldelete(file, "next_sentence_labels", H5P_DEFAULT);
               H5Lcreate_hard(file, "input_ids", file, "next_sentence_labels", H5P_DEFAULT, H5P_DEFAULT);
             }),
             Contains("next_sentence_labels has 2 dimensions, expected 1"));
  const auto replace = [](hid_t file, const char* name, hid_t type, std::vector<hsize_t> sizes) {
    H5Ldelete(file, name, H5P_DEFAULT);
    const hdf5::Handle space(H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(), nullptr), H5Sclose, name);
    const hdf5::Handle made(H5Dcreate2(file, name, type, space.get(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Dclose,
                            name);
  };
  CHECK_THAT(error([&](hid_t file) {
               replace(file, "input_mask", H5T_IEEE_F32LE, {20, 16});
             }),
             Contains("input_mask does not hold integers"));
  CHECK_THAT(error([&](hid_t file) {
               replace(file, "segment_ids", H5T_STD_I8LE, {19, 16});
             }),
             Contains("segment_ids is 19 x 16, and others say 20 x 16"));
  CHECK_THAT(error([&](hid_t file) {
               replace(file, "input_mask", H5T_STD_I8LE, {20, 16});
             }),
             Contains("row 0: an example has 0 tokens"));
  CHECK_THAT(error([](hid_t file) {
               const int32_t huge = 5000;
               const hdf5::Handle data(H5Dopen2(file, "input_ids", H5P_DEFAULT), H5Dclose, "open");
               const hsize_t place[] = {3, 1};
               const hdf5::Handle space(H5Dget_space(data.get()), H5Sclose, "space"),
                   one(H5Screate(H5S_SCALAR), H5Sclose, "space");
               H5Sselect_elements(space.get(), H5S_SELECT_SET, 1, place);
               H5Dwrite(data.get(), H5T_NATIVE_INT32, one.get(), space.get(), H5P_DEFAULT, &huge);
             }),
             Contains("row 3: an example has id 5000 in a vocabulary of 1004"));
  ExampleFileInfo empty = kInfo;
  write_made_up(path, 0, empty);
  CHECK_THAT(reading_error(path), Contains("no examples to read"));
}

}  // namespace
}  // namespace bert
