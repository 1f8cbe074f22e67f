// TFRecords of pre-training examples, plain and gzip. In the fuzzer checksums are compiled out (zero_checksums.cc), so that
// damage reaches the protocol buffers.
#include "data/formats/tfrecord.h"

#include <unistd.h>

#include <filesystem>

#include "data/io/files.h"
#include "tests/fuzz/targets/fuzz_targets.h"
#include "tests/support/example_data.h"

namespace bert::testing {
namespace {

std::vector<std::string> seeds() {
  std::vector<std::string> files;
  const std::string path =
      (std::filesystem::temp_directory_path() / ("fuzz-" + std::to_string(getpid()) + ".tfrecord")).string();
  for (const bool pack : {false, true}) {
    ExampleFileInfo info;
    info.max_seq_length = 16;
    info.max_predictions_per_seq = 3;
    const auto writer = create_tfrecord(path, info, pack);
    for (int64_t i = 0; i < 4; ++i) writer->add(made_up_example(i));
    writer->commit();
    files.push_back(read_file(path));
    std::filesystem::remove(path);
  }
  return files;
}

void read(std::string_view input) {
  const MemoryFile file(input);
  const auto reader = open_tfrecord(file.path());
  PretrainingExample example;
  while (reader->next(example)) {
    require(static_cast<int64_t>(example.input_ids.size()) <= reader->info().max_seq_length, "an example is too long");
    require(example.masked_ids.size() == example.masked_positions.size(), "a masked id has no position");
    for (const int32_t position : example.masked_positions)
      require(position >= 0 && static_cast<size_t>(position) < example.input_ids.size(), "a position is outside");
    for (const int32_t id : example.input_ids) require(id >= 0, "an id is negative");
  }
}

}  // namespace

FuzzTarget tfrecord_target() { return {"tfrecord", seeds(), read}; }

}  // namespace bert::testing
