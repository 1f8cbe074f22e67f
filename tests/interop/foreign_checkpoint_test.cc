#include "app/interop/foreign_checkpoint.h"

#include <algorithm>
#include <cstring>

#include "data/io/error.h"
#include "tests/support/foreign_testing.h"
#include "tests/testing.h"

namespace bert {
namespace {

using testing::Contains;
using testing::counting_tensor;
using testing::small_bert;
using testing::small_bert_tensors;
using testing::tensor_named;

constexpr const char* kWords = "bert.embeddings.word_embeddings.weight";

ForeignCheckpoint empty_checkpoint() {
  ForeignCheckpoint checkpoint;
  checkpoint.path = "dir";
  checkpoint.model.config = small_bert();
  return checkpoint;
}

ForeignCheckpoint taken(std::vector<TensorSource> tensors) {
  ForeignCheckpoint checkpoint = empty_checkpoint();
  take_all(checkpoint, std::move(tensors), {});
  return checkpoint;
}

std::vector<TensorSource> without(const std::string& prefix) {
  std::vector<TensorSource> tensors = small_bert_tensors();
  std::erase_if(tensors, [&](const TensorSource& tensor) { return tensor.name.starts_with(prefix); });
  return tensors;
}

std::vector<float> values(const TensorSource& tensor) {
  const std::string_view bytes = tensor.bytes();
  std::vector<float> result(bytes.size() / sizeof(float));
  std::memcpy(result.data(), bytes.data(), bytes.size());
  return result;
}

TEST_CASE("The prefixes of wrappers go, and others are named", "[unit][interop]") {
  const auto prefixed = [](const std::string& prefix) {
    std::vector<TensorSource> tensors = small_bert_tensors();
    for (TensorSource& tensor : tensors) tensor.name = prefix + tensor.name;
    return tensors;
  };
  for (const char* prefix : {"module.", "_orig_mod.", "model.", "module._orig_mod."}) {
    CAPTURE(prefix);
    CHECK(taken(prefixed(prefix)).report.plain());
  }
  CHECK_THROWS_WITH(taken(prefixed("encoder_q.")),
                    Contains("dir: the names of its tensors begin with encoder_q., as in "
                             "encoder_q.bert.embeddings.word_embeddings.weight"));
}

TEST_CASE("The head of a task is found by its tensors, under the names of Google too", "[unit][interop]") {
  const auto with_head = [](const std::string& weight, const std::string& bias, int64_t rows,
                            std::vector<TensorSource> tensors, std::vector<std::string> labels = {}) {
    tensors.push_back(counting_tensor(weight, {rows, 4}, 0));
    tensors.push_back(counting_tensor(bias, {rows}, 0));
    ForeignCheckpoint checkpoint = empty_checkpoint();
    checkpoint.model.labels = std::move(labels);
    take_all(checkpoint, tensors, {.trust = false, .config = {}, .task_head = true});
    return checkpoint;
  };
  using Labels = std::vector<std::string>;
  const ForeignCheckpoint classes = with_head("output_weights", "output_bias", 3, small_bert_tensors());
  CHECK(classes.model.task == "text-classification");
  CHECK(classes.model.labels == Labels{"LABEL_0", "LABEL_1", "LABEL_2"});
  CHECK_FALSE(classes.model.multi_label);
  CHECK(classes.tensors.back().name == "classifier.bias");
  // run_squad.py's variable cls/squad/output_weights, as read_google() names it.
  const ForeignCheckpoint answers = with_head("cls.squad.weight", "cls.squad.bias", 2, small_bert_tensors());
  CHECK(answers.model.task == "squad-v1");
  CHECK(answers.tensors.back().name == "qa_outputs.bias");
  CHECK(answers.model.labels.empty());
  const ForeignCheckpoint words =
      with_head("classifier.weight", "classifier.bias", 2, small_bert_tensors(), {"O", "B-LOC"});
  CHECK(words.model.task == "ner");
  std::vector<TensorSource> encoder = without("bert.pooler");
  std::erase_if(encoder, [](const TensorSource& tensor) { return tensor.name.starts_with("cls."); });
  CHECK(with_head("classifier.weight", "classifier.bias", 2, encoder).model.task == "ner");
  // One output without a problem_type: the logit of a yes, as in transformers' pipeline.
  CHECK(with_head("classifier.weight", "classifier.bias", 1, small_bert_tensors()).model.multi_label);
  CHECK_THROWS_WITH(with_head("classifier.weight", "classifier.bias", 2, small_bert_tensors(), {"a", "b", "c"}),
                    Contains("dir: the head of task text-classification has 2 outputs; expected 3, as the labels say"));
  CHECK(with_head("other.weight", "other.bias", 2, small_bert_tensors()).model.task.empty());
}

TEST_CASE("Tensors with old names, in any order, become those of BertForPreTraining", "[unit][interop]") {
  std::vector<TensorSource> tensors = small_bert_tensors();
  for (TensorSource& tensor : tensors) {
    const auto rename = [&](const std::string& now, const std::string& before) {
      if (tensor.name.ends_with(now)) tensor.name.replace(tensor.name.size() - now.size(), now.size(), before);
    };
    rename("LayerNorm.weight", "LayerNorm.gamma");
    rename("LayerNorm.bias", "LayerNorm.beta");
  }
  std::reverse(tensors.begin(), tensors.end());
  tensors.push_back(counting_tensor("bert.embeddings.position_ids", {1, 6}, 0));
  tensors.push_back(counting_tensor("cls.predictions.decoder.weight", {10, 4}, 0));  // the first tensor counts from 0
  tensors.push_back(counting_tensor("classifier.weight", {2, 4}, 0));
  const ForeignCheckpoint checkpoint = taken(tensors);
  const std::vector<TensorSource> want = small_bert_tensors();
  REQUIRE(checkpoint.tensors.size() == want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    INFO(want[i].name);
    CHECK(checkpoint.tensors[i].name == want[i].name);
    CHECK(values(checkpoint.tensors[i]) == values(want[i]));
  }
  CHECK(checkpoint.model.objective == Objective::kNsp);
  CHECK(checkpoint.report.loaded.size() == want.size());
  CHECK(checkpoint.report.missing.empty());
  CHECK(checkpoint.report.unexpected == std::vector<std::string>{"classifier.weight"});
  CHECK(checkpoint.report.ignored ==
        std::vector<std::string>{"cls.predictions.decoder.weight", "bert.embeddings.position_ids"});
  CHECK(checkpoint.report.text() ==
        "46 tensors loaded, 0 missing, 1 unexpected, 0 reshaped, 2 ignored\n  unexpected: classifier.weight\n"
        "  ignored: cls.predictions.decoder.weight\n  ignored: bert.embeddings.position_ids");
}

TEST_CASE("A bare encoder gets its prefix, and its heads are missing", "[unit][interop]") {
  std::vector<TensorSource> tensors = without("cls.");
  for (TensorSource& tensor : tensors) tensor.name.erase(0, std::string("bert.").size());
  ForeignCheckpoint checkpoint = taken(tensors);
  CHECK(checkpoint.model.objective == Objective::kNsp);
  CHECK(checkpoint.has(BertPart::kPooler));
  CHECK_FALSE(checkpoint.has(BertPart::kMaskedTokenHead));
  CHECK(checkpoint.report.missing ==
        std::vector<std::string>{"cls.predictions.bias", "cls.predictions.transform.dense.weight",
                                 "cls.predictions.transform.dense.bias", "cls.predictions.transform.LayerNorm.weight",
                                 "cls.predictions.transform.LayerNorm.bias", "cls.seq_relationship.weight",
                                 "cls.seq_relationship.bias"});
  std::erase_if(tensors, [](const TensorSource& tensor) { return tensor.name.starts_with("pooler."); });
  checkpoint = taken(tensors);
  CHECK(checkpoint.model.objective == Objective::kMlm);
  CHECK(checkpoint.report.missing.size() == 9);
}

TEST_CASE("A masked-token model has no pooler, also if its file has one", "[unit][interop]") {
  const ForeignCheckpoint checkpoint = taken(without("cls.seq_relationship."));
  CHECK(checkpoint.model.objective == Objective::kMlm);
  CHECK_FALSE(checkpoint.has(BertPart::kPooler));
  CHECK(checkpoint.report.unexpected == std::vector<std::string>{"bert.pooler.dense.bias", "bert.pooler.dense.weight"});
}

TEST_CASE("A decoder must repeat the embeddings, and may stand for its twin", "[unit][interop]") {
  std::vector<TensorSource> tensors = small_bert_tensors();
  tensors.push_back(counting_tensor("cls.predictions.decoder.weight", {10, 4}, 1));
  CHECK_THROWS_WITH(taken(tensors), Contains("dir: tensor cls.predictions.decoder.weight: differs from " +
                                             std::string(kWords) + "; expected the same values"));
  tensors = small_bert_tensors();
  tensor_named(tensors, "cls.predictions.bias").name = "cls.predictions.decoder.bias";
  CHECK(taken(tensors).report.loaded.size() == 46);
}

TEST_CASE("Rows of padding are cut or added, and reported", "[unit][interop]") {
  for (const int64_t rows : {8, 16}) {
    std::vector<TensorSource> tensors = small_bert_tensors();
    tensor_named(tensors, kWords) = counting_tensor(kWords, {rows, 4}, 1);
    tensor_named(tensors, "cls.predictions.bias") = counting_tensor("cls.predictions.bias", {rows}, 1);
    ForeignCheckpoint checkpoint = taken(tensors);
    const std::string before = std::to_string(rows);
    CHECK(checkpoint.report.reshaped ==
          std::vector<std::string>{std::string(kWords) + ": [" + before + ", 4], now [10, 4]",
                                   "cls.predictions.bias: [" + before + "], now [10]"});
    std::vector<float> want = rows == 8 ? std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8, 0, 0}
                                        : std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    CHECK(values(tensor_named(checkpoint.tensors, "cls.predictions.bias")) == want);
    CHECK(values(tensor_named(checkpoint.tensors, kWords)).size() == 40);
    resize_vocabulary(checkpoint, 12);
    want.insert(want.end(), {0, 0});
    CHECK(values(tensor_named(checkpoint.tensors, "cls.predictions.bias")) == want);
    CHECK(tensor_named(checkpoint.tensors, kWords).shape == std::vector<int64_t>{12, 4});
    CHECK(checkpoint.model.config.vocab_size == 12);
    CHECK(checkpoint.report.reshaped.size() == 4);
  }
}

TEST_CASE("Tokens without a row, and more rows than padding, are refused", "[unit][interop]") {
  ForeignCheckpoint checkpoint = empty_checkpoint();
  std::vector<TensorSource> tensors = small_bert_tensors();
  tensor_named(tensors, kWords) = counting_tensor(kWords, {8, 4}, 1);
  checkpoint.model.vocabulary.assign(9, "token");
  CHECK_THROWS_WITH(take_tensors(checkpoint, tensors), Contains("has 8 rows; expected one for each of the 9 tokens"));
  tensor_named(tensors, kWords) = counting_tensor(kWords, {10 + 1024, 4}, 1);
  CHECK_THROWS_WITH(taken(tensors),
                    Contains("dir: tensor " + std::string(kWords) + ": has shape [1034, 4]; expected [10, 4]"));
  checkpoint = taken(small_bert_tensors());
  checkpoint.model.vocabulary.assign(9, "token");
  CHECK_THROWS_WITH(resize_vocabulary(checkpoint, 8), Contains("has 9 tokens; expected at most vocab_size 8"));
}

TEST_CASE("Missing, doubled and misshapen tensors are named", "[unit][interop]") {
  CHECK_THROWS_WITH(taken(without("bert.encoder.layer.1.output.dense.weight")),
                    Contains("dir: lacks 1 tensors of BERT: bert.encoder.layer.1.output.dense.weight; expected all of "
                             "the encoder"));
  CHECK_THROWS_WITH(taken(without("bert.encoder.layer.1.")), Contains("lacks 16 tensors of BERT") && Contains(", ..."));
  CHECK_THROWS_WITH(taken(without("cls.predictions.transform.LayerNorm.bias")),
                    Contains("cls.predictions.transform.LayerNorm.bias; expected all of a head, or none"));
  CHECK_THROWS_WITH(taken(without("bert.pooler.")), Contains("has cls.seq_relationship without bert.pooler"));
  std::vector<TensorSource> tensors = small_bert_tensors();
  tensors.push_back(counting_tensor("embeddings.LayerNorm.gamma", {4}, 0));
  CHECK_THROWS_WITH(taken(tensors), Contains("is there twice, also under another name; expected one value"));
  tensors = small_bert_tensors();
  tensor_named(tensors, "bert.pooler.dense.bias").shape = {2, 2};
  CHECK_THROWS_WITH(taken(tensors), Contains("bert.pooler.dense.bias: has shape [2, 2]; expected [4]"));
  tensors = small_bert_tensors();
  tensor_named(tensors, kWords).shape = {};
  CHECK_THROWS_AS(taken(tensors), DataError);
  tensors = small_bert_tensors();
  tensor_named(tensors, kWords).dtype = "I32";
  CHECK_THROWS_WITH(taken(tensors), Contains("has dtype I32; expected weights in F32, F16, BF16 or F64"));
}

TEST_CASE("The first token that differs is named with its id", "[unit][interop]") {
  CHECK(vocabulary_difference({"a", "b"}, {"a", "b"}).empty());
  CHECK(vocabulary_difference({"a", "b"}, {"a", "c"}) == "token 1 is \"b\" there and \"c\" here");
  CHECK(vocabulary_difference({"a"}, {"a", "c"}) == "token 1 is absent there and \"c\" here");
  CHECK(vocabulary_difference({"a", "\n"}, {}) == "token 0 is \"a\" there and absent here");
}

}  // namespace
}  // namespace bert
