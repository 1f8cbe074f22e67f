// State dicts with the names of NVIDIA's BERT.
#include "app/interop/nvidia.h"

#include <algorithm>

#include "app/interop/files/torch_file.h"
#include "app/interop/hugging_face.h"
#include "app/system/errors.h"
#include "data/io/error.h"
#include "tests/support/google_checkpoint.h"
#include "tests/support/nvidia_checkpoint.h"
#include "tests/support/text_file.h"
#include "tests/testing.h"

namespace bert {
namespace {

using testing::Contains;
using testing::kSmallBertConfig;
using testing::nvidia_tensors;
using testing::torch_archive_of;

}  // namespace

TEST_CASE("NVIDIA's checkpoint becomes the parameters of transformers, without padding of the vocabulary",
          "[unit][interop]") {
  const testing::TemporaryDirectory directory;
  const std::string path = directory.path("ckpt_8601.pt");
  testing::write_text(path, torch_archive_of(nvidia_tensors()));
  CHECK(is_torch_file(path));
  CHECK_THROWS_WITH(read_nvidia(path, {.trust = true, .config = {}}),
                    Contains("neither bert_config.json nor config.json"));
  testing::write_text(directory.path("large.json"), kSmallBertConfig);
  const ForeignCheckpoint read = read_nvidia(path, {.trust = true, .config = directory.path("large.json")});
  const std::vector<TensorSource> want = testing::small_bert_tensors();
  REQUIRE(read.tensors.size() == want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    CAPTURE(want[i].name);
    CHECK(read.tensors[i].name == want[i].name);
    CHECK(read.tensors[i].shape == want[i].shape);
    if (want[i].name != "cls.predictions.bias" && i > 0) CHECK(read.tensors[i].bytes() == want[i].bytes());
  }
  CHECK(read.tensors[0].bytes() == testing::counting_tensor("", {10, 4}, 0).bytes());
  CHECK(read.model.config.hidden_act ==
        Activation::kGeluNew);  // LinearActivation's gelu is F.gelu(x, approximate=True)
  CHECK(read.model.vocabulary.empty());
  CHECK(read.report.missing.empty());
  CHECK(read.report.unexpected.empty());
  CHECK(read.report.reshaped.size() == 2);
  CHECK_THAT(read.report.text(), Contains("parts of the file beside the model are left out: epoch"));
}

TEST_CASE("A pickle is read only if the user trusts its source", "[unit][interop]") {
  const testing::TemporaryDirectory directory;
  const std::string bin = directory.path("pytorch_model.bin");
  testing::write_text(bin, torch_archive_of(testing::small_bert_tensors()));
  testing::write_text(directory.path("config.json"), kSmallBertConfig);
  CHECK_THROWS_AS(read_nvidia(bin, {}), RefusedError);
  CHECK_THROWS_WITH(read_hugging_face(directory.path()),
                    Contains("pytorch_model.bin: is a pickle") && Contains("--trust"));
  CHECK_THROWS_AS(read_hugging_face(directory.path()), RefusedError);
  const ForeignCheckpoint read = read_hugging_face(directory.path(), {.trust = true, .config = {}});
  CHECK(read.report.loaded.size() == 46);
  CHECK(read.model.config.hidden_act == Activation::kGelu);  // config.json has the meaning of transformers
  testing::write_text(bin, "no pickle");
  CHECK_THROWS_WITH(read_hugging_face(directory.path(), {.trust = true, .config = {}}),
                    Contains("is no checkpoint of PyTorch"));
}

TEST_CASE("Two names of one parameter are refused", "[unit][interop]") {
  const testing::TemporaryDirectory directory;
  testing::write_text(directory.path("bert_config.json"), kSmallBertConfig);
  std::vector<TensorSource> tensors = nvidia_tensors();
  tensors.push_back(tensors[3]);
  tensors.back().name = tensors.back().name.substr(7);  // without "module."
  testing::write_text(directory.path("a.pt"), torch_archive_of(tensors));
  CHECK_THROWS_WITH(read_nvidia(directory.path("a.pt"), {.trust = true, .config = {}}), Contains("is there twice"));
}

}  // namespace bert
