#include "data/loader/sequence_reader.h"

#include <cstring>
#include <fstream>
#include <set>

#include "data/io/error.h"
#include "data/io/files.h"
#include "tests/support/example_data.h"
#include "tests/testing.h"

namespace bert {
namespace {

using testing::Contains;
using testing::damage_row;
using testing::TemporaryDirectory;
using testing::write_made_up_shard;

int64_t second_id(const ShardRow& row) {
  std::vector<int64_t> ids(static_cast<size_t>(row.length));
  row.copy_input_ids(ids.data());
  return ids[1];
}

TEST_CASE("A damaged row ends the reading, or the next good row of its source takes its place", "[unit]") {
  const TemporaryDirectory directory;
  const std::string a = directory.path("a.shard"), b = directory.path("b.shard");
  write_made_up_shard(a, 0, 10);
  write_made_up_shard(b, 10, 10);
  for (const int64_t row : {4, 5, 9}) damage_row(a, row);
  const auto shards = std::make_shared<const PretrainingShards>(std::vector{a, b});
  const std::vector<ExampleSource> sources = {{"a", 10, 1}, {"b", 10, 1}};

  SequenceReader strict(shards, sources, 3, false, false);
  CHECK_THROWS_AS(strict.read(2 * 4), DataError);
  CHECK(strict.read(2 * 4 + 1).place.example == 14);  // of the second source

  SequenceReader tolerant(shards, sources, 3, false, true), other(shards, sources, 3, false, true);
  const std::vector<int64_t> want = {0, 1, 2, 3, 6, 6, 6, 7, 8, 0};
  for (int64_t position = 0; position < 10; ++position) {
    CAPTURE(position);
    const SequenceReader::Sequence sequence = tolerant.read(2 * position), untouched = tolerant.read(2 * position + 1);
    CHECK(sequence.place.example == want[static_cast<size_t>(position)]);
    CHECK(second_id(sequence.row) == 4 + want[static_cast<size_t>(position)]);
    CHECK(sequence.replaced == (position == 4 || position == 5 || position == 9));
    CHECK(untouched.place.example == 10 + position);
    CHECK_FALSE(untouched.replaced);
    const int64_t backwards = 9 - position;  // the replacement depends on nothing that was read before
    CHECK(other.read(2 * backwards).place.example == want[static_cast<size_t>(backwards)]);
  }
  const std::vector<std::string> damage = tolerant.take_damage();
  CHECK(std::set(damage.begin(), damage.end()).size() == 3);
  CHECK_THAT(damage.front(), Contains(a + ": byte ") && Contains("row 4"));
  CHECK(tolerant.take_damage().empty());
}

TEST_CASE("A source without a good row cannot be read", "[unit]") {
  const TemporaryDirectory directory;
  const std::string path = directory.path("a.shard");
  write_made_up_shard(path, 0, 2);
  for (const int64_t row : {0, 1}) damage_row(path, row);
  SequenceReader reader(std::make_shared<const PretrainingShards>(std::vector{path}), {{"a", 2, 1}}, 3, true, true);
  CHECK_THROWS_AS(reader.read(0), DataError);
}

}  // namespace
}  // namespace bert
