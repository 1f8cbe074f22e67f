#include "data/corpus/bzip2_reader.h"

#include <bzlib.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/io/error.h"
#include "data/io/files.h"
#include "tests/support/packed_text.h"
#include "tests/testing.h"

namespace bert {
namespace {

using testing::bzip2;
using testing::Contains;

/// Unpacks `packed` with a number of threads.
std::string unpack(const std::string& packed, int64_t threads = 2) {
  WorkerPool pool(threads);
  size_t at = 0;
  Bzip2Reader reader(
      "dump.bz2",
      [&](char* to, size_t bytes) {
        const size_t count = std::min(bytes, packed.size() - at);
        std::memcpy(to, packed.data() + at, count);
        at += count;
        return count;
      },
      pool);
  std::string text;
  while (const auto piece = reader.next()) text += *piece;
  return text;
}

/// Text that packs badly, so that blocks are long.
std::string noise(size_t bytes) {
  std::string text;
  uint64_t state = 1;
  while (text.size() < bytes) {
    state = state * 6364136223846793005U + 1442695040888963407U;  // Knuth's MMIX generator
    text += static_cast<char>(' ' + (state >> 33) % 90);
  }
  return text;
}

std::string from_hex(const std::string& digits) {
  std::string bytes;
  for (size_t i = 0; i < digits.size(); i += 2) bytes += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  return bytes;
}

TEST_CASE("blocks that unpack to far more than they have are unpacked one at a time", "[unit][wikitext]") {
  const std::string text = noise(1000) + std::string(100'000'000, 'x') + noise(1000);
  const std::string packed = bzip2(text);
  CHECK(packed.size() < 5000);
  CHECK(unpack(packed, 3) == text);
}

TEST_CASE("one stream of many blocks is unpacked by any number of threads", "[unit][wikitext]") {
  const std::string text = noise(730'001) + std::string(3'000'000, 'x') + noise(1000);
  for (const int level : {1, 9}) {
    const std::string packed = bzip2(text, level);
    for (const int64_t threads : {1, 2, 7}) CHECK(unpack(packed, threads) == text);
  }
}

TEST_CASE("streams one after the other, empty ones too, are one text", "[unit][wikitext]") {
  CHECK(unpack(bzip2("")).empty());
  CHECK(unpack(bzip2("a") + bzip2("") + bzip2("b", 1) + bzip2("")) == "ab");
  CHECK(unpack(bzip2("") + bzip2("") + bzip2(noise(200'000), 1)) == noise(200'000));
}

TEST_CASE("marks that stand in the data by chance do not split a block", "[unit][wikitext]") {
  const auto cases = nlohmann::json::parse(read_file(testing::golden("bzip2_marks.json"))).at("cases");
  for (const auto& known : cases) {
    const std::string packed = from_hex(known.at("packed")), text = from_hex(known.at("text"));
    CHECK(unpack(packed) == text);
    CHECK(unpack(packed + bzip2("more") + packed) == text + "more" + text);
  }
}

TEST_CASE("bzip2 that is damaged, cut off or followed by other bytes is refused with its place", "[unit][wikitext]") {
  const std::string packed = bzip2(noise(450'000), 1);
  CHECK_THROWS_WITH(unpack(""), Contains("dump.bz2: byte 0: is not bzip2"));
  CHECK_THROWS_WITH(unpack("BZh"), Contains("is not bzip2"));
  CHECK_THROWS_WITH(unpack("BZh9"), Contains("cut off"));
  CHECK_THROWS_WITH(unpack("BZh0" + packed.substr(4)), Contains("byte 0: is not bzip2"));
  CHECK_THROWS_WITH(unpack(packed + "x"), Contains("byte " + std::to_string(packed.size()) + ": something other than"));
  CHECK_THROWS_WITH(unpack(packed + bzip2("x").substr(0, 4)), Contains("cut off"));
  for (const size_t bytes : {packed.size() - 1, packed.size() - 5, packed.size() - 11, packed.size() / 2, size_t{9}})
    CHECK_THROWS_AS(unpack(packed.substr(0, bytes)), DataError);
  for (const size_t place : {size_t{12}, packed.size() / 3, packed.size() - 4}) {
    std::string damaged = packed;
    damaged[place] = static_cast<char>(damaged[place] ^ 0x10);
    CHECK_THROWS_AS(unpack(damaged), DataError);
  }
  CHECK_THROWS_AS(unpack(packed + std::string(20'000'000, '\0')), DataError);
}

TEST_CASE("the blocks before a damaged one are given first", "[unit][wikitext]") {
  std::string packed = bzip2(noise(900'000), 1);
  packed[packed.size() / 2] = static_cast<char>(packed[packed.size() / 2] ^ 1);
  WorkerPool pool(2);
  size_t at = 0, bytes = 0;
  Bzip2Reader reader(
      "dump.bz2",
      [&](char* to, size_t most) {
        const size_t count = std::min(most, packed.size() - at);
        std::memcpy(to, packed.data() + at, count);
        at += count;
        return count;
      },
      pool);
  const auto read_all = [&] {
    while (const auto piece = reader.next()) bytes += piece->size();
  };
  CHECK_THROWS_WITH(read_all(), Contains("the block of bzip2 that begins here is damaged"));
  CHECK(bytes > 300'000);
}

TEST_CASE("a file of nothing but marks is refused soon", "[unit][wikitext]") {
  std::string packed = "BZh9";
  while (packed.size() < 4'000'000) packed += "1AY&SY";
  CHECK_THROWS_AS(unpack(packed), DataError);
}

}  // namespace
}  // namespace bert
