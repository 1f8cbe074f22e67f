#include "data/formats/shard.h"

#include <xxhash.h>

#include <cstring>
#include <filesystem>

#include "data/io/error.h"
#include "tests/support/example_data.h"
#include "tests/support/text_file.h"
#include "tests/testing.h"

namespace bert {
namespace {

using testing::Contains;
using testing::made_up_example;
using testing::TemporaryDirectory;
using testing::write_made_up_shard;
using testing::write_text;

/// Opens a shard, reads every row and verifies it, as a program does with an untrusted shard.
void read_all(const std::string& path) {
  const Shard shard(path);
  std::vector<int64_t> ids(70000);
  for (int64_t i = 0; i < shard.size(); ++i) {
    const ShardRow row = shard.row(i);
    row.copy_input_ids(ids.data());
    row.copy_masked_ids(ids.data());
  }
  shard.verify();
}

TEST_CASE("A shard gives back what was written, with 16-bit and with 32-bit ids", "[unit][shard]") {
  const TemporaryDirectory directory;
  for (const int64_t vocab_size : {int64_t{1004}, int64_t{65536}, int64_t{65537}, int64_t{250000}}) {
    CAPTURE(vocab_size);
    const std::string path = directory.path("a.shard");
    ShardManifest written = write_made_up_shard(path, 0, 100, vocab_size);
    const PretrainingShards shards({path});
    REQUIRE(shards.size() == 100);
    int64_t tokens = 0, masked = 0, longest = 0;
    for (int64_t i = 0; i < 100; ++i) {
      const PretrainingExample want = made_up_example(i);
      REQUIRE(shards.example(i) == want);
      tokens += static_cast<int64_t>(want.input_ids.size());
      masked += static_cast<int64_t>(want.masked_ids.size());
      longest = std::max(longest, static_cast<int64_t>(want.input_ids.size()));
    }
    const ShardManifest& read = shards.shards().front()->manifest();
    for (const ShardManifest& manifest : {written, read}) {
      CHECK(manifest.rows == 100);
      CHECK(manifest.tokens == tokens);
      CHECK(manifest.masked_tokens == masked);
      CHECK(manifest.longest_row == longest);
      CHECK(manifest.vocab_size == vocab_size);
      CHECK(manifest.max_seq_length == 16);
      CHECK(manifest.vocabulary_checksum == "0123456789abcdef0123456789abcdef");
      CHECK(manifest.parameters == std::vector<std::pair<std::string, std::string>>{{"random_seed", "12345"}});
    }
    CHECK(read.max_id == written.max_id);
    CHECK(read.content_checksum == written.content_checksum);
    CHECK_NOTHROW(shards.shards().front()->verify());
  }
}

TEST_CASE("The largest ids of each width survive", "[unit][shard]") {
  const TemporaryDirectory directory;
  for (const int64_t vocab_size : {int64_t{65536}, int64_t{1} << 31}) {
    const PretrainingExample example{
        {0, static_cast<int32_t>(vocab_size - 1)}, 1, {1}, {static_cast<int32_t>(vocab_size - 1)}, true};
    ShardWriter writer(directory.path("a"),
                       {.vocab_size = vocab_size, .max_seq_length = 2, .vocabulary_checksum = "", .parameters = {}});
    writer.add(example);
    CHECK(writer.commit().max_id == vocab_size - 1);
    CHECK(PretrainingShards({directory.path("a")}).example(0) == example);
  }
}

TEST_CASE("A shard takes no padding", "[unit][shard]") {
  const TemporaryDirectory directory;
  ShardWriter writer(directory.path("a"),
                     {.vocab_size = 30522, .max_seq_length = 512, .vocabulary_checksum = "", .parameters = {}});
  for (int i = 0; i < 1000; ++i) writer.add({{101, 7, 102, 8, 102}, 3, {1}, {9}, false});
  writer.commit();
  // The header has 128 bytes. A row has 12 + 5 * 2 + 2 + 2 bytes, rounded up to 28, and an offset of 8. One more offset
  // and the line of the vocabulary follow.
  CHECK(std::filesystem::file_size(directory.path("a")) ==
        128 + 1000 * (28 + 8) + 8 + std::strlen("vocabulary_checksum=\n"));
}

TEST_CASE("Several shards and a directory are one set of examples", "[unit][shard]") {
  const TemporaryDirectory directory;
  write_made_up_shard(directory.path("b.shard"), 10, 5);
  write_made_up_shard(directory.path("a.shard"), 0, 10);
  write_made_up_shard(directory.path("c.shard"), 15, 1);
  write_text(directory.path("README"), "not a shard");
  const PretrainingShards shards({directory.path()});
  REQUIRE(shards.size() == 16);
  for (int64_t i = 0; i < 16; ++i) CHECK(shards.example(i) == made_up_example(i));
  CHECK_THROWS_AS(shards.row(16), std::out_of_range);
  CHECK_THROWS_AS(shards.row(-1), std::out_of_range);
  const PretrainingShards other_order(
      {directory.path("b.shard"), directory.path("a.shard"), directory.path("c.shard")});
  CHECK(other_order.example(0) == made_up_example(10));
  CHECK(other_order.content_checksum() != shards.content_checksum());
}

TEST_CASE("Sets that cannot be are refused", "[unit][shard]") {
  const TemporaryDirectory directory;
  CHECK_THROWS_AS(PretrainingShards({directory.path("absent")}), InputMissing);
  CHECK_THROWS_WITH(PretrainingShards({directory.path()}), Contains("no file *.shard"));
  CHECK_THROWS_WITH(PretrainingShards(std::vector<std::string>()), Contains("no shards were named"));
  write_made_up_shard(directory.path("a"), 0, 3);
  write_made_up_shard(directory.path("b"), 0, 3, 2000);
  CHECK_THROWS_WITH(PretrainingShards({directory.path("a"), directory.path("b")}),
                    Contains("2000") && Contains("1004"));
  write_made_up_shard(directory.path("empty"), 0, 0);
  CHECK_NOTHROW(read_all(directory.path("empty")));
  CHECK_THROWS_WITH(PretrainingShards({directory.path("empty")}), Contains("no examples"));
}

TEST_CASE("The writer refuses examples that do not fit, and leaves nothing behind without commit", "[unit][shard]") {
  const TemporaryDirectory directory;
  {
    ShardWriter writer(directory.path("a"),
                       {.vocab_size = 10, .max_seq_length = 4, .vocabulary_checksum = "", .parameters = {}});
    CHECK_THROWS_WITH(writer.add({{1, 10}, 1, {}, {}, false}), Contains("id 10") && Contains("vocabulary of 10"));
    CHECK_THROWS_WITH(writer.add({{1, -1}, 1, {}, {}, false}), Contains("id -1"));
    CHECK_THROWS_WITH(writer.add({{1, 2}, 1, {1}, {10}, false}), Contains("id 10"));
    CHECK_THROWS_WITH(writer.add({{1, 2, 3, 4, 5}, 1, {}, {}, false}), Contains("5 tokens"));
    CHECK_THROWS_WITH(writer.add({{}, 0, {}, {}, false}), Contains("0 tokens"));
    CHECK_THROWS_WITH(writer.add({{1, 2}, 3, {}, {}, false}), Contains("second segment"));
    CHECK_THROWS_WITH(writer.add({{1, 2}, 1, {2}, {1}, false}), Contains("masked position 2"));
    CHECK_THROWS_WITH(writer.add({{1, 2}, 1, {1, 1}, {1, 1}, false}), Contains("out of order"));
    CHECK_THROWS_WITH(writer.add({{1, 2}, 1, {1}, {}, false}), Contains("1 masked positions and 0"));
    writer.add({{1, 9}, 1, {}, {}, false});
  }
  CHECK(std::filesystem::is_empty(directory.path()));
  CHECK_THROWS_AS(ShardWriter(directory.path("a"),
                              {.vocab_size = 0, .max_seq_length = 4, .vocabulary_checksum = "", .parameters = {}}),
                  DataError);
  CHECK_THROWS_AS(ShardWriter(directory.path("a"),
                              {.vocab_size = 9, .max_seq_length = 65536, .vocabulary_checksum = "", .parameters = {}}),
                  DataError);
  CHECK_THROWS_AS(
      ShardWriter(directory.path("a"),
                  {.vocab_size = 9, .max_seq_length = 4, .vocabulary_checksum = "", .parameters = {{"a=b", "c"}}}),
      DataError);
}

TEST_CASE("Every flipped bit and every truncation of a shard is found, and named with a byte", "[unit][shard]") {
  const TemporaryDirectory directory;
  const std::string path = directory.path("a.shard"), damaged = directory.path("damaged.shard");
  write_made_up_shard(path, 0, 3);
  const std::string good = read_file(path);
  REQUIRE_NOTHROW(read_all(path));
  int64_t silent = 0, unnamed = 0;
  const auto try_bytes = [&](const std::string& bytes) {
    write_text(damaged, bytes);
    try {
      read_all(damaged);
      ++silent;
    } catch (const DataError& error) {
      unnamed += std::string(error.what()).find(damaged + ": byte ") == std::string::npos;
    }
  };
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bytes = good;
    bytes[i] = static_cast<char>(bytes[i] ^ (1 << i % 8));
    try_bytes(bytes);
  }
  for (size_t length = 0; length < good.size(); ++length) try_bytes(good.substr(0, length));
  try_bytes(good + '\0');
  CHECK(silent == 0);
  CHECK(unnamed == 0);
}

TEST_CASE("A damaged row is found when it is read, not only by verify", "[unit][shard]") {
  const TemporaryDirectory directory;
  const std::string path = directory.path("a.shard");
  write_made_up_shard(path, 0, 50);
  std::string bytes = read_file(path);
  bytes[128 + 12] = static_cast<char>(bytes[128 + 12] ^ 1);  // the first id of the first row
  write_text(path, bytes);
  const PretrainingShards shards({path});
  CHECK_THROWS_WITH(shards.row(0), Contains(path + ": byte 128: row 0"));
  CHECK_NOTHROW(shards.row(1));
  CHECK_THROWS_WITH(shards.shards().front()->verify(), Contains("byte 128: row 0"));
}

TEST_CASE("A file made to deceive, with checksums that match, does not crash the reader", "[unit][shard]") {
  // ShardWriter checks its input, so wrong values are written below the checksums, which are then corrected: header
  // fields at steps of 8 bytes, and every u16 of the first row.
  const TemporaryDirectory directory;
  const std::string path = directory.path("a.shard");
  write_made_up_shard(path, 0, 3);
  const std::string good = read_file(path);
  const auto digest = [](const std::string& bytes, size_t begin, size_t end) {
    return uint64_t{XXH3_64bits(bytes.data() + begin, end - begin)};
  };
  const auto put = [](std::string& bytes, size_t at, auto value) {
    std::memcpy(bytes.data() + at, &value, sizeof value);
  };
  int64_t tried = 0;
  const auto try_bytes = [&](std::string bytes) {
    put(bytes, 120, digest(bytes, 0, 120));
    write_text(path, bytes);
    try {
      read_all(path);
    } catch (const DataError&) {
    }
    ++tried;
  };
  for (size_t field = 8; field < 120; field += 4) {
    for (const uint64_t value :
         {uint64_t{0}, uint64_t{1}, uint64_t{8}, uint64_t{1} << 40, ~uint64_t{0}, ~uint64_t{7}}) {
      std::string bytes = good;
      put(bytes, field, static_cast<uint32_t>(value));
      try_bytes(bytes);
      if (field % 8 != 0) continue;
      put(bytes, field, value);
      try_bytes(bytes);
    }
  }
  uint64_t second_row = 0, offsets = 0;
  std::memcpy(&offsets, good.data() + 32, sizeof offsets);
  std::memcpy(&second_row, good.data() + offsets + 8, sizeof second_row);
  for (size_t at = 132; at < second_row; at += 2) {
    for (const uint16_t value : std::initializer_list<uint16_t>{0, 1, 17, 1004, 65535}) {
      std::string bytes = good;
      put(bytes, at, value);
      put(bytes, 128, static_cast<uint32_t>(digest(bytes, 132, second_row)));
      try_bytes(bytes);
    }
  }
  for (size_t entry = 0; entry < 4; ++entry) {
    for (const uint64_t value :
         {uint64_t{0}, uint64_t{128}, uint64_t{130}, uint64_t{132}, offsets, offsets - 4, ~uint64_t{3}}) {
      std::string bytes = good;
      put(bytes, offsets + 8 * entry, value);
      put(bytes, 96, digest(bytes, offsets, bytes.size()));
      try_bytes(bytes);
    }
  }
  CHECK(tried > 200);
}

TEST_CASE("A shard that is cut while it is open is an error with path and offset, at any length", "[unit][shard]") {
  const TemporaryDirectory directory;
  const std::string path = directory.path("a.shard");
  write_made_up_shard(path, 0, 2000, 1004);
  const auto whole = static_cast<int64_t>(std::filesystem::file_size(path));
  for (const int64_t left : {whole - 10'000, whole / 2, int64_t{4096}, int64_t{1}, int64_t{0}}) {
    CAPTURE(left);
    write_made_up_shard(path, 0, 2000, 1004);
    const Shard shard(path);
    const ShardRow before = shard.row(1999);
    CHECK(before.length > 0);
    std::filesystem::resize_file(path, static_cast<uintmax_t>(left));
    int64_t readable = 0, errors = 0;
    std::string message;
    for (int64_t i = 0; i < shard.size(); ++i) {
      try {
        static_cast<void>(shard.row(i));
        ++readable;
      } catch (const DataError& error) {
        if (errors++ == 0) message = error.what();
      }
    }
    CHECK(readable + errors == 2000);
    CHECK(errors > 0);
    CHECK(readable * whole <= 2000 * (left + 4096) + 2000 * 100);
    CHECK_THAT(message, Contains(path) && Contains("byte ") &&
                            Contains("the file was cut to " + std::to_string(left) + " of its " +
                                     std::to_string(whole) + " bytes while it was read"));
  }
}

}  // namespace
}  // namespace bert
