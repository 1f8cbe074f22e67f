// Checkpoints that PyTorch wrote, and damaged ones.
#include "app/interop/files/torch_file.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "data/io/error.h"
#include "tests/support/hex.h"
#include "tests/support/tensor_values.h"
#include "tests/support/text_file.h"
#include "tests/support/torch_archive.h"
#include "tests/testing.h"

namespace bert {
namespace {

using nlohmann::json;
using testing::Contains;
using testing::from_hex;
using testing::golden;
using testing::values_of;

json checkpoints() { return json::parse(std::ifstream(golden("torch_checkpoints.json"))); }

/// Reads `bytes` as a file.
TorchFile open(const std::string& bytes, const testing::TemporaryDirectory& directory) {
  const std::string path = directory.path("model.pt");
  testing::write_text(path, bytes);
  return TorchFile(path);
}

/// The pickle of {"w": a tensor} with these numbers of its storage and the tensor, in an archive with `stored` bytes.
std::string archive_of(const std::string& elements, const std::string& tensor, size_t stored = 16) {
  const std::string pickle = "\x80\x02}U\1wctorch._utils\n_rebuild_tensor_v2\n((U\7storagectorch\nFloatStorage\nU\1" +
                             std::string("0U\3cpu") + elements + "tQ" + tensor + "\x89NtRs.";
  return testing::torch_archive(
      {{"a/data.pkl", pickle}, {"a/byteorder", "little"}, {"a/data/0", std::string(stored, '\x3f')}});
}

}  // namespace

TEST_CASE("PyTorch's checkpoints have the values that PyTorch reads: archives and the old format",
          "[unit][golden][interop]") {
  const testing::TemporaryDirectory directory;
  const json all = checkpoints();  // outlives the loop
  for (const auto& [name, want] : all["good"].items()) {
    CAPTURE(name);
    const TorchFile file = open(from_hex(want["file"].get<std::string>()), directory);
    file.verify();
    CHECK(file.left_out() == want["left_out"].get<std::vector<std::string>>());
    CHECK(file.tensors().size() == want["tensors"].size());
    for (const TorchTensor& tensor : file.tensors()) {
      CAPTURE(tensor.name);
      REQUIRE(want["tensors"].contains(tensor.name));
      const json& values = want["tensors"][tensor.name];
      CHECK(tensor.dtype == values["dtype"].get<std::string>());
      CHECK(tensor.shape == values["shape"].get<std::vector<int64_t>>());
      std::string copy;
      CHECK(values_of(tensor.dtype, file.data(tensor, copy)) == values["values"].get<std::vector<double>>());
    }
  }
}

TEST_CASE("A file of PyTorch that is no checkpoint of tensors is refused with the reason", "[unit][golden][interop]") {
  const testing::TemporaryDirectory directory;
  const json all = checkpoints();  // outlives the loop
  for (const auto& [message, digits] : all["bad"].items()) {
    CAPTURE(message);
    const std::string bytes = from_hex(digits.get<std::string>());
    CHECK_THROWS_WITH(open(bytes, directory), Contains(message) && Contains(directory.path("model.pt: ")));
    CHECK_THROWS_AS(open(bytes, directory), DataError);
  }
  CHECK_FALSE(std::filesystem::exists("/tmp/executed"));
  CHECK_THROWS_WITH(open("", directory), Contains("is no checkpoint of PyTorch"));
  CHECK_THROWS_WITH(open(testing::torch_archive({{"a/b", ""}}), directory), Contains("without a file data.pkl"));
  CHECK_THROWS_AS(TorchFile(directory.path("absent")), InputMissing);
}

TEST_CASE("A file of torch.save() is told from TorchScript and other files", "[unit][golden][interop]") {
  const testing::TemporaryDirectory directory;
  const auto is_one = [&](const std::string& bytes) {
    testing::write_text(directory.path("x"), bytes);
    return is_torch_file(directory.path("x"));
  };
  const json all = checkpoints();
  CHECK(is_one(from_hex(all["good"]["nvidia"]["file"].get<std::string>())));
  CHECK(is_one(from_hex(all["good"]["nvidia_old"]["file"].get<std::string>())));
  CHECK_FALSE(is_one(from_hex(all["bad"]["is TorchScript"].get<std::string>())));
  CHECK_FALSE(is_one(testing::torch_archive(testing::archive_members()).substr(0, 100)));
  CHECK_FALSE(is_one(""));
  CHECK_FALSE(is_torch_file(directory.path("absent")));
  CHECK_FALSE(is_torch_file(directory.path()));
}

TEST_CASE("A tensor outside of its storage, and a storage outside of the file, are refused", "[unit][interop]") {
  const testing::TemporaryDirectory directory;
  const auto refused = [&](const std::string& bytes, const std::string& message) {
    CHECK_THROWS_WITH(open(bytes, directory), Contains(message));
    CHECK_THROWS_AS(open(bytes, directory), DataError);
  };
  // Offset, (sizes), (strides); the storage has 4 elements.
  const TorchFile good = open(archive_of("K\4", std::string("K\0K\2K\2\x86K\2K\1\x86", 12)), directory);
  CHECK(good.tensors().front().bytes == 16);
  refused(archive_of("K\4", "K\1K\2K\2\x86K\2K\1\x86"), "lies outside of its storage of 4 elements");
  refused(archive_of("K\4", std::string("K\0K\2\x85K\4\x85", 8)), "lies outside");
  refused(archive_of("K\4", std::string("K\0K\5\x85K\0\x85", 8)), "repeats the elements of its storage");
  const std::string huge = "\x8a\x08" + std::string(7, '\xff') + "\x7f";
  refused(archive_of("K\4", std::string("K\0", 2) + huge + huge + "\x86K\1K\1\x86"), "lies outside");
  refused(archive_of("K\4", std::string("K\0K\2\x85", 5) + huge + "\x85"), "lies outside");
  refused(archive_of("K\4", huge + "K\2\x85K\1\x85"), "lies outside");
  refused(archive_of("K\4", std::string("K\0J\xff\xff\xff\xff\x85K\1\x85", 11)), "is no number that is 0 or more");
  refused(archive_of("K\4", std::string("K\0K\2\x85)", 6)), "1 sizes and 0 strides");
  refused(archive_of("K\5", std::string("K\0K\2\x85K\1\x85", 8)), "storage 0 has 16 bytes, and its tensors say 5");
  refused(archive_of("K\4", std::string("K\0K\2\x85K\1\x85", 8), 17), "storage 0 has 17 bytes");
  refused(archive_of(huge, std::string("K\0K\2\x85K\1\x85", 8)), "storage 0 has 16 bytes");
  CHECK_THROWS_WITH(parse_torch_pickle("\x80\x02}U\1aNs.more"), Contains("bytes are behind the end of the pickle"));
}

TEST_CASE("Every flipped bit of a checkpoint in an archive is found, or changes no value", "[unit][golden][interop]") {
  const testing::TemporaryDirectory directory;
  const std::string whole = from_hex(checkpoints()["good"]["parameters"]["file"].get<std::string>());
  const auto values = [&](const std::string& bytes) {
    const TorchFile file = open(bytes, directory);
    file.verify();
    std::string all, copy;
    for (const TorchTensor& tensor : file.tensors()) all += tensor.name + std::string(file.data(tensor, copy));
    return all;
  };
  const std::string want = values(whole);
  int refused = 0, silent = 0;
  for (size_t byte = 0; byte < whole.size(); ++byte) {
    std::string damaged = whole;
    damaged[byte] = static_cast<char>(damaged[byte] ^ 1 << (byte % 8));
    try {
      silent += values(damaged) == want ? 0 : 1;
    } catch (const DataError&) {
      ++refused;
    }
  }
  CHECK(silent == 0);
  CHECK(refused > static_cast<int>(whole.size()) * 9 / 10);
}

TEST_CASE("An old file that is cut off, or has more behind it, is refused", "[unit][golden][interop]") {
  const std::string whole = from_hex(checkpoints()["good"]["views_old"]["file"].get<std::string>());
  CHECK(parse_legacy_torch_file(whole).tensors.size() == 13);
  for (size_t size = 0; size < whole.size(); ++size)
    CHECK_THROWS_AS(parse_legacy_torch_file(whole.substr(0, size)), DataError);
  CHECK_THROWS_WITH(parse_legacy_torch_file(whole + "x"), Contains("1 bytes are behind the last storage"));
}

TEST_CASE("A checkpoint of PyTorch that is cut before its tensors are copied is an error", "[unit][interop]") {
  const testing::TemporaryDirectory directory;
  // [2, 2] with strides 1, 2: the elements are copied.
  const TorchFile file = open(archive_of("K\4", std::string("K\0K\2K\2\x86K\1K\2\x86", 12)), directory);
  std::string copy;
  REQUIRE(file.data(file.tensors().front(), copy) == copy);
  std::filesystem::resize_file(directory.path("model.pt"), 100);
  CHECK_THROWS_AS(file.data(file.tensors().front(), copy), DataError);
  CHECK_THROWS_WITH(file.data(file.tensors().front(), copy), Contains("model.pt: byte 100: the file was cut to 100"));
}

}  // namespace bert
