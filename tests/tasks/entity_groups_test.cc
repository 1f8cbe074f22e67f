// Entities of tokens against transformers' pipeline (golden/added_tokens.py).
#include "app/tasks/entity_groups.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/config.h"
#include "data/io/files.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::Approx;
using nlohmann::json;

namespace {

std::vector<TaggedToken> tokens_of(const json& list) {
  std::vector<TaggedToken> tokens;
  for (const json& each : list) {
    const std::string piece = each["word"];
    const bool joined = each["is_subword"];
    tokens.push_back({.index = each["index"],
                      .piece = piece,
                      .text = joined ? piece.substr(2) : piece,
                      .begins_word = !joined,
                      .begin = each["start"],
                      .end = each["end"],
                      .scores = each["scores"]});
  }
  return tokens;
}

}  // namespace

TEST_CASE("Tokens become the entities of transformers' pipeline with each strategy", "[golden][tasks]") {
  const json golden = json::parse(read_file(testing::golden("added_tokens.json")));
  const std::vector<std::string> labels = golden["labels"];
  size_t entities = 0;
  for (const json& each : golden["entities"]) {
    const std::vector<TaggedToken> tokens = tokens_of(each["tokens"]);
    for (const char* strategy : names_of(Aggregation())) {
      CAPTURE(strategy, each["tokens"].dump());
      const std::vector<Entity> found = group_entities(tokens, labels, *value_named<Aggregation>(strategy), {"O"});
      const json& want = each[strategy];
      REQUIRE(found.size() == want.size());
      for (size_t i = 0; i < found.size(); ++i) {
        CHECK(found[i].label == want[i][std::string(strategy) == "none" ? "entity" : "entity_group"]);
        CHECK(found[i].word == want[i]["word"]);
        CHECK(found[i].begin == want[i]["start"]);
        CHECK(found[i].end == want[i]["end"]);
        CHECK(found[i].score == Approx(want[i]["score"].get<double>()));
        ++entities;
      }
    }
  }
  CHECK(entities > 500);
}
