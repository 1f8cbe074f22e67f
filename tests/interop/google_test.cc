// Checkpoints with the names of Google's variables.
#include "app/interop/google.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>

#include "data/io/error.h"
#include "tests/support/google_checkpoint.h"
#include "tests/support/tensor_values.h"
#include "tests/support/text_file.h"
#include "tests/testing.h"

namespace bert {
namespace {

using testing::BundleSource;
using testing::Contains;
using testing::google_variables;
using testing::kSmallBertConfig;
using testing::values_of;
using testing::write_google;

}  // namespace

TEST_CASE("Google's variables become the parameters of transformers, kernels transposed", "[unit][interop]") {
  const testing::TemporaryDirectory directory;
  write_google(directory, google_variables());
  for (const std::string& path : {directory.path(), directory.path("bert_model.ckpt")}) {
    CHECK(is_google(path));
    const ForeignCheckpoint read = read_google(path);
    const std::vector<TensorSource> want = testing::small_bert_tensors();
    REQUIRE(read.tensors.size() == want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      CAPTURE(want[i].name);
      CHECK(read.tensors[i].name == want[i].name);
      CHECK(read.tensors[i].shape == want[i].shape);
      CHECK(read.tensors[i].bytes() == want[i].bytes());
    }
    CHECK(read.report.missing.empty());
    CHECK(read.report.unexpected.empty());
    CHECK_THAT(read.report.text(),
               Contains("tensors of the training are left out: 46 adam_m, 46 adam_v, 1 global_step"));
    CHECK(read.model.objective == Objective::kNsp);
    CHECK(read.model.vocabulary.size() == 10);
    CHECK(read.model.config.hidden_size == 4);
    CHECK(read.model.config.hidden_act == Activation::kGeluNew);  // modeling.py's gelu() is the tanh form
    CHECK(read.model.tokenizer.do_lower_case);
    CHECK(read.model.tokenizer.max_input_chars_per_word == 200);
  }
}

TEST_CASE("A vocabulary with upper case makes a cased tokenizer", "[unit][interop]") {
  const testing::TemporaryDirectory directory;
  write_google(directory, google_variables(), "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nThe\ncat\nsat\n##s\n.\n");
  const ForeignCheckpoint read = read_google(directory.path());
  CHECK_FALSE(read.model.tokenizer.do_lower_case);
  CHECK_THAT(read.report.text(), Contains("do_lower_case: false, because the vocabulary has upper case"));
}

TEST_CASE("A Google checkpoint without an encoder's variable, or with more than BERT, is told", "[unit][interop]") {
  const testing::TemporaryDirectory directory;
  std::map<std::string, BundleSource> tensors = google_variables();
  tensors["output_weights"] = {{2, 4}, std::string(32, '\0')};
  write_google(directory, tensors);
  CHECK(read_google(directory.path()).report.unexpected == std::vector<std::string>{"classifier.weight"});
  tensors.erase("bert/encoder/layer_1/output/dense/kernel");
  write_google(directory, tensors);
  CHECK_THROWS_WITH(read_google(directory.path()), Contains("bert.encoder.layer.1.output.dense.weight"));

  std::string data = testing::tensor_bundle(google_variables()).data;
  write_google(directory, google_variables());
  data[100] = static_cast<char>(data[100] ^ 1);
  testing::write_text(directory.path("bert_model.ckpt.data-00000-of-00001"), data);
  CHECK_THROWS_WITH(read_google(directory.path()), Contains("the checksum of ") && Contains(" does not match"));

  std::filesystem::remove(directory.path("bert_config.json"));
  CHECK_THROWS_WITH(read_google(directory.path()),
                    Contains("neither bert_config.json nor config.json") && Contains("--config"));
  CHECK_THROWS_AS(read_google(directory.path()), InputMissing);
  testing::write_text(directory.path("other.json"), kSmallBertConfig);
  CHECK_THROWS_AS(read_google(directory.path(), {.trust = false, .config = directory.path("other.json")}),
                  DataError);  // the damaged data
  CHECK_FALSE(is_google(directory.path("vocab.txt")));
  const testing::TemporaryDirectory empty;
  CHECK_FALSE(is_google(empty.path()));
}

TEST_CASE("The real checkpoint of keras-bert has every parameter of its configuration", "[unit][interop]") {
  if (testing::shared_data().empty()) BERT_SKIP("../shared/data is absent");
  const ForeignCheckpoint read = read_google(testing::shared_data() + "/checkpoints/keras_bert_test_checkpoint");
  CHECK(read.report.loaded.size() == 46);
  CHECK(read.report.missing.empty());
  CHECK(read.report.unexpected.empty());
  CHECK(read.model.config.vocab_size == 15);
  const auto dense = std::find_if(read.tensors.begin(), read.tensors.end(), [](const TensorSource& tensor) {
    return tensor.name == "bert.encoder.layer.0.intermediate.dense.weight";
  });
  REQUIRE(dense != read.tensors.end());
  CHECK(dense->shape == std::vector<int64_t>{16, 4});
  // kernel[0, 0:3] of TensorFlow is weight[0:3, 0].
  const std::vector<double> values = values_of("F32", dense->bytes());
  CHECK(values[0] == testing::Approx(0.02127971));
  CHECK(values[4] == testing::Approx(0.01447005));
  CHECK(values[8] == testing::Approx(-0.00855878));
}

TEST_CASE("A checkpoint of Google that is cut before its kernels are transposed is an error", "[unit][interop]") {
  const testing::TemporaryDirectory directory;
  write_google(directory, google_variables());
  ForeignCheckpoint read = read_google(directory.path());
  const std::string data = directory.path("bert_model.ckpt.data-00000-of-00001");
  std::filesystem::resize_file(data, 64);
  TensorSource& kernel = testing::tensor_named(read.tensors, "bert.pooler.dense.weight");
  CHECK_THROWS_AS(kernel.bytes(), DataError);
  CHECK_THROWS_WITH(kernel.bytes(), Contains(data + ": byte 64: the file was cut to 64 of its "));
}

}  // namespace bert
