#include "app/checkpoint/checkpoint.h"

#include <ATen/ATen.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "data/io/error.h"
#include "tests/support/load_checkpoint.h"
#include "tests/testing.h"

namespace bert {
namespace {

using testing::load_checkpoint;
using testing::TemporaryDirectory;

Checkpoint example() {
  Checkpoint checkpoint;
  const at::Tensor qkv = at::arange(24, at::kFloat).view({6, 4});
  checkpoint.model.insert("query.weight", qkv.slice(0, 0, 2));  // views into one storage, as in the model
  checkpoint.model.insert("key.weight", qkv.slice(0, 2, 4));
  checkpoint.model.insert("transposed", qkv.t());
  checkpoint.model.insert("half", at::tensor({1.5, -0.0, 65504.0}).to(at::kHalf));
  checkpoint.model.insert("bfloat", at::tensor({1e30, -3.0}).to(at::kBFloat16));
  checkpoint.optimizer.insert("query.weight.exp_avg", at::full({2, 4}, 1e-42, at::kFloat));  // a subnormal number
  checkpoint.optimizer.insert("step", at::scalar_tensor(7038, at::kLong));
  checkpoint.optimizer.insert("flag", at::tensor({1, 0}).to(at::kBool));
  checkpoint.optimizer.insert("none", at::empty({0, 3}));
  checkpoint.state.step = 12;
  checkpoint.state.model.objective = Objective::kMlm;
  checkpoint.state.model.vocabulary = {"[PAD]", "the"};
  checkpoint.state.config = "{\n  \"seed\": 1\n}\n";
  return checkpoint;
}

void check_same(const StateDict& got, const StateDict& want) {
  REQUIRE(got.size() == want.size());
  for (const auto& item : want) {
    INFO(item.key());
    const at::Tensor* tensor = got.find(item.key());
    REQUIRE(tensor != nullptr);
    CHECK(tensor->scalar_type() == item.value().scalar_type());
    CHECK(at::equal(*tensor, item.value()));
  }
}

TEST_CASE("A checkpoint comes back as it was, bit for bit", "[unit][checkpoint]") {
  const TemporaryDirectory directory;
  const Checkpoint checkpoint = example();
  const std::string saved = save_checkpoint(directory.path("run"), checkpoint, 2);
  CHECK(saved == directory.path("run/checkpoints/step-00000012"));
  const Checkpoint loaded = load_checkpoint(directory.path("run/latest"));
  check_same(loaded.model, checkpoint.model);
  check_same(loaded.optimizer, checkpoint.optimizer);
  CHECK(write_checkpoint_state(loaded.state) == write_checkpoint_state(checkpoint.state));
  CHECK(std::signbit(loaded.model["half"][1].item<float>()));
  CHECK(load_model(saved).optimizer.is_empty());
  // Saving it again gives the same bytes.
  write_checkpoint(directory.path("copy"), loaded);
  for (const char* file : {kModelFile, kOptimizerFile, kStateFile, kManifestFile}) {
    CHECK(read_file(saved + "/" + file) == read_file(directory.path("copy/") + file));
  }
}

TEST_CASE("A checkpoint without an objective is of nsp, and one of an unknown objective is refused",
          "[unit][checkpoint]") {
  std::string text = write_checkpoint_state(example().state);
  const std::string objective = "\"objective\": \"mlm\"";
  REQUIRE_THAT(text, testing::Contains(objective));
  std::string unknown = text, older = text;
  unknown.replace(text.find(objective), objective.size(), "\"objective\": \"rtd\"");
  CHECK_THROWS_WITH(parse_checkpoint_state(unknown, "state.json"),
                    testing::Contains("state.json: \"objective\": want nsp, mlm or sop, got rtd"));
  older.replace(text.find(objective), objective.size(), "\"of the future\": 1");
  CHECK(parse_checkpoint_state(older, "state.json").model.objective == Objective::kNsp);
}

TEST_CASE("A checkpoint that was verified is opened without another look at its bytes", "[unit][checkpoint]") {
  const TemporaryDirectory directory;
  const Checkpoint checkpoint = example();
  const std::string saved = save_checkpoint(directory.path("run"), checkpoint, 2);
  {
    const Checkpoint opened = open_checkpoint(saved);
    check_same(opened.model, checkpoint.model);
    check_same(opened.optimizer, checkpoint.optimizer);
    CHECK(write_checkpoint_state(opened.state) == write_checkpoint_state(checkpoint.state));
    std::filesystem::remove_all(saved);  // pruning may do that while a rank still reads
    check_same(opened.model, checkpoint.model);
  }
  CHECK_THROWS_AS(open_checkpoint(saved), InputMissing);
  save_checkpoint(directory.path("run"), checkpoint, 2);
  std::string bytes = read_file(saved + "/" + kModelFile);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  std::ofstream(saved + "/" + kModelFile, std::ios::binary) << bytes;
  CHECK_THROWS_AS(load_checkpoint(saved), DataError);
  CHECK_NOTHROW(open_checkpoint(saved));
  std::ofstream(saved + "/" + kModelFile, std::ios::binary) << bytes.substr(1);  // one byte is missing at the begin
  CHECK_THROWS_AS(open_checkpoint(saved), DataError);
}

TEST_CASE("A damaged checkpoint is not loaded", "[unit][checkpoint]") {
  const TemporaryDirectory directory;
  const std::string saved = save_checkpoint(directory.path("run"), example(), 2);
  std::string bytes = read_file(saved + "/" + kOptimizerFile);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  std::ofstream(saved + "/" + kOptimizerFile, std::ios::binary) << bytes;
  CHECK_THROWS_AS(load_checkpoint(saved), DataError);
  CHECK_THROWS_AS(load_checkpoint(directory.path("absent")), InputMissing);
}

TEST_CASE("Single safetensors files round trip", "[unit][safetensors]") {
  const TemporaryDirectory directory;
  const Checkpoint checkpoint = example();
  save_safetensors(directory.path("model.safetensors"), checkpoint.model);
  check_same(read_safetensors(directory.path("model.safetensors")), checkpoint.model);
  StateDict complex;
  complex.insert("c", at::zeros({1}, at::kComplexFloat));
  CHECK_THROWS_WITH(save_safetensors(directory.path("c"), complex), testing::Contains("tensor c"));
  CHECK_FALSE(std::filesystem::exists(directory.path("c")));
}

}  // namespace
}  // namespace bert
