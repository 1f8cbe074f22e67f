// Checkpoints that TensorFlow wrote, and damaged ones.
#include "app/interop/files/tensor_bundle.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/interop/files/leveldb_table.h"
#include "data/io/error.h"
#include "tests/support/hex.h"
#include "tests/support/tensor_values.h"
#include "tests/support/text_file.h"
#include "tests/testing.h"

namespace bert {
namespace {

using nlohmann::json;
using testing::Contains;
using testing::from_hex;
using testing::golden;
using testing::values_of;

json bundles() { return json::parse(std::ifstream(golden("tensor_bundle.json"))); }

/// Writes the files of a golden bundle. Returns the prefix.
std::string write_bundle(const json& files, const testing::TemporaryDirectory& directory, const std::string& name) {
  for (const auto& [end, digits] : files.items())
    testing::write_text(directory.path(name + "." + end), from_hex(digits.get<std::string>()));
  return directory.path(name);
}

// TensorFlow's names of dtypes.
std::string dtype_of(const std::string& name) {
  const json names = {{"float32", "F32"}, {"float16", "F16"}, {"bfloat16", "BF16"}, {"int64", "I64"}, {"bool", "BOOL"}};
  return names.at(name).get<std::string>();
}

}  // namespace

TEST_CASE("TensorFlow's checkpoints have the values that TensorFlow reads: one file, two, packed index",
          "[unit][golden][interop]") {
  const testing::TemporaryDirectory directory;
  const json all = bundles();  // outlives the loop
  for (const auto& [name, bundle] : all["good"].items()) {
    CAPTURE(name);
    const TensorBundle read(write_bundle(bundle["files"], directory, name));
    read.verify();
    CHECK(read.tensors().size() == bundle["tensors"].size());
    for (const auto& [tensor, want] : bundle["tensors"].items()) {
      CAPTURE(tensor);
      const BundleTensor* found = read.find(tensor);
      REQUIRE(found != nullptr);
      CHECK(found->dtype == dtype_of(want["dtype"].get<std::string>()));
      CHECK(found->shape == want["shape"].get<std::vector<int64_t>>());
      CHECK(values_of(found->dtype, read.data(*found)) == want["values"].get<std::vector<double>>());
    }
    CHECK(read.find("global_ste") == nullptr);
  }
}

TEST_CASE("A checkpoint of TensorFlow that cannot be read is refused with the reason", "[unit][golden][interop]") {
  const testing::TemporaryDirectory directory;
  int number = 0;
  const json all = bundles();  // outlives the loop
  for (const auto& [message, files] : all["bad"].items()) {
    const std::string prefix = write_bundle(files, directory, "bad" + std::to_string(number++));
    CAPTURE(message);
    CHECK_THROWS_WITH(TensorBundle(prefix).verify(), Contains(message) && Contains(prefix));
    CHECK_THROWS_AS(TensorBundle(prefix).verify(), DataError);
  }
  CHECK_THROWS_AS(TensorBundle(directory.path("absent")), InputMissing);
  std::filesystem::remove(directory.path("bad0.data-00000-of-00001"));
  write_bundle(bundles()["good"]["shards"]["files"], directory, "part");
  std::filesystem::remove(directory.path("part.data-00001-of-00002"));
  CHECK_THROWS_AS(TensorBundle(directory.path("part")), InputMissing);
}

TEST_CASE("Every flipped bit and every cut of a TensorFlow checkpoint is found", "[unit][golden][interop]") {
  const json bundle = bundles()["good"]["packed"];
  const std::string index = from_hex(bundle["files"]["index"].get<std::string>());
  std::vector<size_t> silent;
  const auto refused = [&](const std::string& bytes) {
    try {
      static_cast<void>(parse_bundle_index(bytes));
      return false;
    } catch (const DataError&) {
      return true;
    }
  };
  CHECK_FALSE(refused(index));
  for (size_t bit = 0; bit < 8 * index.size(); ++bit) {
    std::string damaged = index;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << (bit % 8));
    if (!refused(damaged)) silent.push_back(bit);
  }
  for (size_t size = 0; size < index.size(); ++size)
    if (!refused(index.substr(0, size))) silent.push_back(size);
  CHECK(silent == std::vector<size_t>());
  CHECK(refused(index + '\0'));
  CHECK(refused('\0' + index));
  CHECK(refused(index + index));
  CHECK_THROWS_WITH(parse_bundle_index(index.substr(0, 20)), Contains("byte 0 of the index: the file is shorter"));

  const testing::TemporaryDirectory directory;
  const std::string prefix = write_bundle(bundle["files"], directory, "model.ckpt"),
                    data = from_hex(bundle["files"]["data-00000-of-00001"].get<std::string>());
  for (size_t byte = 0; byte < data.size(); ++byte) {
    std::string damaged = data;
    damaged[byte] = static_cast<char>(damaged[byte] ^ 1 << (byte % 8));
    testing::write_text(prefix + ".data-00000-of-00001", damaged);
    CHECK_THROWS_WITH(TensorBundle(prefix).verify(),
                      Contains("data-00000-of-00001: byte ") && Contains("does not match"));
  }
}

TEST_CASE("A table's bytes have one meaning: blocks without gaps, ascending keys, bounded names", "[unit][interop]") {
  const std::string index = from_hex(bundles()["good"]["packed"]["files"]["index"].get<std::string>());
  std::vector<std::string> keys;
  read_leveldb_table(index, [&](std::string_view key, std::string_view) { keys.emplace_back(key); });
  CHECK(keys.size() == 11);  // the header and ten tensors
  CHECK(std::is_sorted(keys.begin(), keys.end()));
  CHECK(keys.front().empty());
}

TEST_CASE("The prefix of a TensorFlow checkpoint is found from what users name", "[unit][interop]") {
  const testing::TemporaryDirectory directory;
  const std::string root = directory.path();
  CHECK_THROWS_WITH(bundle_prefix(root), Contains("has no TensorFlow checkpoint"));
  CHECK_THROWS_AS(bundle_prefix(directory.path("none")), InputMissing);
  for (const char* name : {"model.ckpt-20.index", "model.ckpt-20.data-00000-of-00001"})
    testing::write_text(directory.path(name), "x");
  const std::string twenty = directory.path("model.ckpt-20");
  for (const std::string& named : {root, twenty, twenty + ".index", twenty + ".data-00000-of-00001"})
    CHECK(std::filesystem::path(bundle_prefix(named)) == twenty);
  testing::write_text(directory.path("model.ckpt-100.index"), "x");
  CHECK_THROWS_WITH(bundle_prefix(root), Contains("has 2 TensorFlow checkpoints") && Contains("Name one of them"));
  testing::write_text(directory.path("checkpoint"),
                      "model_checkpoint_path: \"/of/another/machine/model.ckpt-100\"\n"
                      "all_model_checkpoint_paths: \"/of/another/machine/model.ckpt-20\"\n");
  CHECK(std::filesystem::path(bundle_prefix(root)) == directory.path("model.ckpt-100"));
  testing::write_text(directory.path("checkpoint"), "nothing\n");
  CHECK_THROWS_WITH(bundle_prefix(root), Contains("has no line model_checkpoint_path"));
}

TEST_CASE("A real checkpoint of TensorFlow is read whole", "[unit][interop]") {
  if (testing::shared_data().empty()) BERT_SKIP("../shared/data is absent");
  const std::string path = testing::shared_data() + "/checkpoints/keras_bert_test_checkpoint";
  const TensorBundle bundle(bundle_prefix(path));
  bundle.verify();
  // The figures of TensorFlow 2.18's tf.train.load_checkpoint().
  CHECK(bundle.tensors().size() == 139);
  const BundleTensor* kernel = bundle.find("bert/encoder/layer_0/intermediate/dense/kernel");
  REQUIRE(kernel != nullptr);
  CHECK(kernel->shape == std::vector<int64_t>{4, 16});
  CHECK(values_of("F32", bundle.data(*kernel))[2] == testing::Approx(-0.00855878));
  const BundleTensor* step = bundle.find("global_step");
  REQUIRE(step != nullptr);
  CHECK(values_of(step->dtype, bundle.data(*step)) == std::vector<double>{20});
}

}  // namespace bert
