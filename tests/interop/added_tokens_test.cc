// Added tokens against transformers (golden/added_tokens.py).
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/checkpoint/state.h"
#include "app/interop/hugging_face_files.h"
#include "app/interop/hugging_face_tokenizer.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "data/tokenizer/tokenizer.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::Contains;
using bert::testing::TemporaryDirectory;
using nlohmann::json;

namespace {

const json& golden_data() {
  static const json data = json::parse(read_file(testing::golden("added_tokens.json")));
  return data;
}

ModelDescription read_files(const std::map<std::string, std::string>& files) {
  const TemporaryDirectory directory;
  for (const auto& [name, text] : files) std::ofstream(directory.path(name)) << text;
  ForeignCheckpoint checkpoint;
  read_hugging_face_tokenizer(directory.path(), checkpoint);
  CHECK(checkpoint.report.notes.empty());
  return checkpoint.model;
}

WordPieceTokenizer tokenizer_of(const ModelDescription& model) {
  return WordPieceTokenizer(Vocabulary(model.vocabulary, "vocabulary", model.added_tokens), model.tokenizer);
}

void check_ids(const ModelDescription& model, const json& encoded) {
  const WordPieceTokenizer tokenizer = tokenizer_of(model);
  for (const json& each : encoded) {
    const std::string text = each["text"];
    CAPTURE(text);
    const Encoding found = tokenizer.encode_with_offsets(text);
    CHECK(json(found.ids) == each["ids"]);
    CHECK(tokenizer.encode(text) == found.ids);
    if (text.find("spaced") != std::string::npos) continue;  // its places hold the spaces beside it there
    const std::vector<TextSpan> places = character_spans(text, found.spans);
    REQUIRE(places.size() == each["offsets"].size());
    for (size_t i = 0; i < places.size(); ++i) CHECK(json{places[i].begin, places[i].end} == each["offsets"][i]);
  }
}

}  // namespace

TEST_CASE("Added tokens are found where transformers finds them, and survive being written", "[golden][interop]") {
  for (const json& each : golden_data()["tokenizers"]) {
    CAPTURE(each["do_lower_case"].dump());
    const ModelDescription read = read_files(each["files"]);
    CHECK(read.added_tokens.size() == 10);
    CHECK(read.vocabulary.size() == 37);
    check_ids(read, each["encoded"]);

    std::map<std::string, std::string> written = hugging_face_files(read);
    CHECK(written.contains("added_tokens.json"));
    written.erase("config.json");
    check_ids(read_files(written), each["encoded"]);
    const json mine = json::parse(written["tokenizer.json"]),
               theirs = json::parse(each["files"]["tokenizer.json"].get<std::string>());
    CHECK(mine["added_tokens"] == theirs["added_tokens"]);
    CHECK(mine["model"]["vocab"] == theirs["model"]["vocab"]);
    // Without tokenizer.json the flags come from tokenizer_config.json.
    written.erase("tokenizer.json");
    check_ids(read_files(written), each["encoded"]);

    CheckpointState state;
    state.model = read;
    const CheckpointState again = parse_checkpoint_state(write_checkpoint_state(state), "state.json");
    CHECK(again.model.added_tokens == read.added_tokens);
  }
}

TEST_CASE("Added tokens are words, special ones among them leave decoded text", "[unit][data]") {
  const ModelDescription model = read_files(golden_data()["tokenizers"][0]["files"]);
  const WordPieceTokenizer tokenizer = tokenizer_of(model);
  CHECK(tokenizer.decode(tokenizer.encode("the <drug> grafts cats")) == "the grafts cats");
  const std::vector<EncodedWord> words = tokenizer.encode_words("cats<drug>graft");
  REQUIRE(words.size() == 3);
  CHECK(words[0].ids.size() == 2);
  CHECK(words[0].spans == std::vector<TextSpan>{{0, 3}, {3, 4}});
  CHECK(words[1].spans == std::vector<TextSpan>{{4, 10}});
  CHECK_THROWS_WITH(Vocabulary(model.vocabulary, "v", {{.id = 37}}), Contains("v: an added token has the id 37"));
}

TEST_CASE("An added token takes the row of an unused one", "[unit][interop]") {
  std::map<std::string, std::string> files = golden_data()["tokenizers"][0]["files"];
  json tokenizer = json::parse(files["tokenizer.json"]);
  for (json& token : tokenizer["added_tokens"])
    if (token["content"] == "[unused0]") token["content"] = "<gene>";
  files["tokenizer.json"] = tokenizer.dump();
  const ModelDescription model = read_files(files);
  CHECK(model.vocabulary[5] == "<gene>");
  CHECK(tokenizer_of(model).encode("a <gene>").back() == 5);
}
