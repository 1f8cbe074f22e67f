// Shards. In the fuzzer checksums are compiled out (zero_checksums.cc), so that damage reaches the code behind these.
#include "data/formats/shard.h"

#include <unistd.h>

#include <filesystem>

#include "tests/fuzz/targets/fuzz_targets.h"
#include "tests/support/example_data.h"

namespace bert::testing {
namespace {

std::vector<std::string> seeds() {
  std::vector<std::string> files;
  const std::string path =
      (std::filesystem::temp_directory_path() / ("fuzz-" + std::to_string(getpid()) + ".shard")).string();
  for (const int64_t vocab_size : {1004, 100000}) {
    write_made_up_shard(path, 0, 5, vocab_size);
    files.push_back(read_file(path));
    std::filesystem::remove(path);
  }
  return files;
}

void read(std::string_view input) {
  const MemoryFile file(input);
  const Shard shard(file.path());
  const ShardManifest& manifest = shard.manifest();
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < shard.size(); ++i) {
    const ShardRow row = shard.row(i);
    require(row.length <= manifest.max_seq_length, "a row is longer than the shard allows");
    require(row.segment_b_start <= row.length && row.num_masked <= row.length, "a row is inconsistent");
    ids.resize(static_cast<size_t>(row.length));
    row.copy_input_ids(ids.data());
    for (const int32_t id : ids) require(id >= 0 && id < manifest.vocab_size, "an id is outside of the vocabulary");
    row.copy_masked_ids(ids.data());
    for (int64_t m = 0; m < row.num_masked; ++m) {
      require(ids[static_cast<size_t>(m)] < manifest.vocab_size, "a masked id is outside of the vocabulary");
      require(row.masked_position(m) < row.length, "a masked position is outside of the row");
    }
    require(shard.bytes_of_row(i) > 0, "a row has no bytes");
  }
  shard.verify();
}

}  // namespace

FuzzTarget shard_target() { return {"shard", seeds(), read}; }

}  // namespace bert::testing
