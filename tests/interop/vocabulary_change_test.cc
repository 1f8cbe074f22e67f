// Another vocabulary for a model of transformers, against rows that numpy computed:
// tests/golden/vocabulary_change.json.
#include "app/interop/vocabulary_change.h"

#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "app/checkpoint/tensor_diff.h"
#include "app/interop/hugging_face.h"
#include "data/io/error.h"
#include "tests/support/hf_golden.h"
#include "tests/testing.h"

namespace bert {
namespace {

using testing::Contains;
using testing::hf_directory;
using testing::TemporaryDirectory;

nlohmann::json rows_golden() { return nlohmann::json::parse(std::ifstream(testing::golden("vocabulary_change.json"))); }

std::map<std::string, std::string> tensors_by_name(const ForeignCheckpoint& checkpoint) {
  std::map<std::string, std::string> result;
  for (const TensorSource& tensor : checkpoint.tensors) result[tensor.name] = tensor.bytes();
  return result;
}

}  // namespace

TEST_CASE("The rows of another vocabulary are those that numpy computes, and old rows keep their bits",
          "[golden][interop][vocabulary]") {
  const nlohmann::json golden = rows_golden();
  const auto tokens = golden["tokens"].get<std::vector<std::string>>();
  for (const auto& [name, want] : golden["models"].items()) {
    CAPTURE(name);
    const TemporaryDirectory directory;
    ForeignCheckpoint checkpoint = read_hugging_face(hf_directory(directory, name));
    const std::vector<std::string> old = checkpoint.model.vocabulary;
    const auto before = tensors_by_name(checkpoint);
    const VocabularyRows rows = change_vocabulary(checkpoint, Vocabulary(tokens));
    CHECK(rows.text() == "21 rows kept, 2 moved, 7 new (2 of them [UNK] so far), 1 dropped");
    for (const auto& [token, pieces] : golden["pieces"].items()) {
      const auto id = std::ranges::find(tokens, token) - tokens.begin();
      if (name == "pretraining") CHECK(rows.sources[static_cast<size_t>(id)] == pieces.get<std::vector<int32_t>>());
    }
    CHECK(checkpoint.model.vocabulary == tokens);
    CHECK(checkpoint.model.config.vocab_size == 30);
    const auto after = tensors_by_name(checkpoint);
    REQUIRE(after.size() == before.size());
    for (const TensorSource& tensor : checkpoint.tensors) {
      CAPTURE(tensor.name);
      if (!has_vocabulary_rows(tensor.name)) {
        CHECK(after.at(tensor.name) == before.at(tensor.name));
        continue;
      }
      const auto values = want[tensor.name == kPredictionBias ? "bias" : "word_embeddings"].get<std::vector<double>>();
      const auto elements = static_cast<int64_t>(values.size());
      REQUIRE(tensor.shape.front() == 30);
      REQUIRE(std::ssize(after.at(tensor.name)) == elements * element_bytes(tensor.dtype));
      for (int64_t i = 0; i < elements; ++i)
        CHECK(tensor_element(tensor.dtype, after.at(tensor.name), i) == values[static_cast<size_t>(i)]);
      const size_t row = after.at(tensor.name).size() / tokens.size();
      for (size_t id = 0; id < tokens.size(); ++id) {
        const auto found = std::ranges::find(old, tokens[id]);
        if (found == old.end()) continue;
        CHECK(after.at(tensor.name).substr(id * row, row) ==
              before.at(tensor.name).substr(static_cast<size_t>(found - old.begin()) * row, row));
      }
    }
  }
}

TEST_CASE("Added tokens stay added where the new vocabulary has them", "[unit][interop][vocabulary]") {
  const TemporaryDirectory directory;
  ForeignCheckpoint checkpoint = read_hugging_face(hf_directory(directory));
  std::vector<std::string> tokens = checkpoint.model.vocabulary;
  checkpoint.model.added_tokens = {{.id = 9, .single_word = true}, {.id = 13}};  // cat, mat
  tokens[13] = "dog";
  std::swap(tokens[9], tokens[10]);
  change_vocabulary(checkpoint, Vocabulary(tokens));
  CHECK(checkpoint.model.added_tokens == std::vector<AddedToken>{{.id = 10, .single_word = true}});
  checkpoint.model.tokenizer_model = "bytes";
  CHECK_THROWS_WITH(change_vocabulary(checkpoint, Vocabulary(tokens)), Contains("has a SentencePiece model"));
}

}  // namespace bert
