// Exact search, hard negatives, and the commands of retrieval with a small model.
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "app/retrieval/hard_negatives.h"
#include "app/retrieval/text_vectors.h"
#include "app/retrieval/vector_search.h"
#include "app/system/exit_codes.h"
#include "app/verbs/verbs.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "tests/support/command_testing.h"
#include "tests/support/predict_command.h"
#include "tests/support/random_checkpoint.h"
#include "tests/support/text_file.h"
#include "tests/testing.h"

namespace bert {
namespace {

using nlohmann::json;
using testing::CommandResult;
using testing::Contains;
using testing::run_command;
using testing::TemporaryDirectory;
using torch::Tensor;

constexpr Similarity kAll[] = {Similarity::kCosine, Similarity::kDot, Similarity::kEuclidean, Similarity::kManhattan};

/// A small random model, and files beside it.
struct Place {
  [[nodiscard]] std::string write(const std::string& name, const std::string& text) const {
    return testing::write_text(directory.path(name), text);
  }
  [[nodiscard]] CommandResult evaluate(const std::vector<std::string>& arguments) const {
    std::vector<std::string> all = {"evaluate", "embedding", "--checkpoint", checkpoint};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return run_command(evaluate_torch_command, all);
  }
  [[nodiscard]] CommandResult mine(const std::vector<std::string>& arguments) const {
    std::vector<std::string> all = {"data", "mine-negatives", "--checkpoint", checkpoint};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return run_command(data_torch_command, all);
  }

  const TemporaryDirectory directory;
  const std::string checkpoint = testing::write_random_checkpoint(directory);
};

Tensor rows_of(const json& vectors) {
  std::vector<float> numbers;
  for (const auto& row : vectors) {
    for (const auto& number : row) numbers.push_back(number.get<float>());
  }
  return torch::tensor(numbers).view({std::ssize(vectors), -1});
}

MiningOptions options_of(const json& given) {
  MiningOptions options;
  const auto set = [&](const char* name, auto& value) {
    if (given.contains(name)) value = given[name].get<typename std::decay_t<decltype(value)>>();
  };
  const auto limit = [&](const char* name, std::optional<double>& value) {
    if (given.contains(name)) value = given[name].get<double>();
  };
  set("num_negatives", options.num_negatives);
  set("range_min", options.range_min);
  if (given.contains("range_max")) options.range_max = given["range_max"].get<int64_t>();
  limit("min_score", options.min_score);
  limit("max_score", options.max_score);
  limit("absolute_margin", options.absolute_margin);
  limit("relative_margin", options.relative_margin);
  if (given.value("sampling_strategy", "top") == "random") options.sampling = Sampling::kRandom;
  return options;
}

}  // namespace

TEST_CASE("A search in pieces finds what sorting finds, and the earlier one of equals", "[unit][retrieval]") {
  torch::manual_seed(3);
  const Tensor queries = torch::randn({7, 5}), vectors = torch::randint(-1, 2, {20000, 5}).to(torch::kFloat);
  constexpr int64_t kMost = 50;
  for (const Similarity kind : {Similarity::kDot, Similarity::kManhattan}) {  // many equal scores
    VectorSearch search(kind, queries, kMost);
    for (const Tensor& piece : vectors.split(6000)) search.add(piece);
    const auto nearest = search.nearest();
    REQUIRE(nearest.size() == 7);
    const Tensor scores = similarity_matrix(kind, queries, vectors);
    const auto [sorted, order] = scores.sort(/*stable=*/true, -1, /*descending=*/true);
    for (int64_t query = 0; query < 7; ++query) {
      const auto& found = nearest[static_cast<size_t>(query)];
      REQUIRE(std::ssize(found) == kMost);
      for (int64_t i = 0; i < kMost; ++i) {
        CHECK(found[static_cast<size_t>(i)].score == sorted[query][i].item<float>());
        CHECK(found[static_cast<size_t>(i)].place == order[query][i].item<int64_t>());
      }
    }
  }
  VectorSearch few(Similarity::kCosine, queries, kMost);
  few.add(vectors.slice(0, 0, 3));
  few.add(torch::full({1, 5}, std::numeric_limits<float>::quiet_NaN()));
  CHECK(few.nearest()[0].size() == 3);
}

TEST_CASE("Similarities by pairs and by all pairs are the same", "[unit][retrieval]") {
  const Tensor a = torch::tensor({{3.0F, 4.0F}, {0.0F, 2.0F}}), b = torch::tensor({{4.0F, 3.0F}, {-1.0F, 0.0F}});
  const std::map<Similarity, std::vector<float>> by_hand = {
      {Similarity::kCosine, {0.96F, 0}},
      {Similarity::kDot, {24, 0}},
      {Similarity::kEuclidean, {-std::sqrt(2.0F), -std::sqrt(5.0F)}},
      {Similarity::kManhattan, {-2, -3}}};
  for (const Similarity kind : kAll) {
    CHECK(torch::allclose(pairwise_similarity(kind, a, b), torch::tensor(by_hand.at(kind))));
    CHECK(torch::allclose(similarity_matrix(kind, a, b).diag(), torch::tensor(by_hand.at(kind))));
  }
}

TEST_CASE("Hard negatives are those of mine_hard_negatives()", "[unit][retrieval]") {
  const json data = json::parse(read_file(testing::golden("retrieval.json")))["mining"];
  const int64_t count = std::ssize(data["queries"]);
  std::vector<std::vector<float>> queries, documents;
  for (int64_t i = 0; i < count; ++i) queries.push_back(data["queries"]["q" + std::to_string(i)]);
  for (int64_t i = 0; i < std::ssize(data["documents"]); ++i)
    documents.push_back(data["documents"]["d" + std::to_string(i)]);
  const auto unit = [](const std::vector<std::vector<float>>& rows) {
    const Tensor x = rows_of(json(rows));
    return x / x.norm(2, -1, /*keepdim=*/true);
  };
  const Tensor q = unit(queries), d = unit(documents);
  for (const json& at : data["results"]) {
    INFO(at["options"].dump() << " " << at["format"]);
    const std::string name = at["options"].value("similarity", "cosine");
    const Similarity kind = name == "euclidean"   ? Similarity::kEuclidean
                            : name == "manhattan" ? Similarity::kManhattan
                                                  : Similarity::kCosine;
    const MiningOptions options = options_of(at["options"]);
    constexpr int64_t kMaxPositives = 3;  // of q0 (one of them twice) and q4
    const int64_t range_max = range_max_of(options, kMaxPositives);
    VectorSearch search(kind, q, range_max + kMaxPositives);
    search.add(d);
    const auto nearest = search.nearest();
    PyRandom random(42);
    std::vector<json> rows;
    std::vector<std::vector<float>> scores;
    for (int64_t query = 0; query < count; ++query) {
      std::vector<Neighbour> positives;
      for (const json& pair : data["pairs"]) {
        const int64_t place = std::stoll(pair[1].get<std::string>().substr(1));
        const bool known = std::ranges::any_of(positives, [&](const Neighbour& one) { return one.place == place; });
        if (pair[0] != "q" + std::to_string(query) || known) continue;
        positives.push_back(
            {place, pairwise_similarity(kind, q[query].unsqueeze(0), d[place].unsqueeze(0)).item<float>()});
      }
      const std::vector<Neighbour> chosen = choose_negatives(
          options, {.nearest = nearest[static_cast<size_t>(query)], .positives = positives, .range_max = range_max},
          random);
      for (const Neighbour& positive : positives) {
        json row = {"q" + std::to_string(query), "d" + std::to_string(positive.place)};
        std::vector<float> of_row = {positive.score};
        for (const Neighbour& negative : chosen) {
          row.push_back("d" + std::to_string(negative.place));
          of_row.push_back(negative.score);
          if (at["format"] != "triplet") continue;
          rows.push_back(row);
          scores.push_back(of_row);
          row.erase(2);
          of_row.pop_back();
        }
        if (at["format"] == "triplet" || std::ssize(chosen) < options.num_negatives) continue;
        rows.push_back(row);
        scores.push_back(of_row);
      }
    }
    CHECK(json(rows) == at["rows"]);
    REQUIRE(scores.size() == at["scores"].size());
    for (size_t i = 0; i < scores.size(); ++i) {
      for (size_t j = 0; j < scores[i].size(); ++j)
        CHECK(scores[i][j] == testing::Approx(at["scores"][i][j].get<double>()).margin(1e-6));
    }
  }
}

TEST_CASE("evaluate embedding computes the vectors of BEIR's files, of classes and of samples",
          "[predict][retrieval]") {
  const Place place;
  const Predictor predictor(place.checkpoint);
  const std::vector<std::string> documents = {"the cat sat.", "cats", "sat sat", ". the"}, queries = {"the cat", "."};
  make_directories(place.directory.path("qrels"));
  std::string corpus;
  for (size_t i = 0; i < documents.size(); ++i)
    corpus += json{{"_id", "d" + std::to_string(i)}, {"title", ""}, {"text", documents[i]}}.dump() + "\n";
  corpus += json{{"_id", "q0"}, {"title", ""}, {"text", "the cat"}}.dump() + "\n";  // the query itself: left out
  static_cast<void>(place.write("corpus.jsonl", corpus));
  static_cast<void>(place.write("queries.jsonl",
                                "{\"_id\": \"q0\", \"text\": \"the cat\"}\n{\"_id\": \"q1\", \"text\": \".\"}\n"
                                "{\"_id\": \"q2\", \"text\": \"unjudged\"}\n"));
  static_cast<void>(place.write("qrels/dev.tsv", "query-id\tcorpus-id\tscore\nq0\td1\t1\nq1\td3\t1\nq7\td3\t1\n"));
  const std::string run = place.directory.path("out.run"), beir = place.directory.path("");
  const CommandResult result = place.evaluate({"--beir", beir, "--split", "dev", "--run", run});
  INFO(result.err);
  REQUIRE(result.code == kOk);
  CHECK_THAT(result.err, Contains("1 of 3 judged queries are not in queries.jsonl"));
  const json metrics = json::parse(result.out);
  const Tensor scores = similarity_matrix(Similarity::kCosine, predictor.encode(queries), predictor.encode(documents));
  double mrr = 0;
  for (const auto& [query, wanted] : {std::pair{0, 1}, std::pair{1, 3}})
    mrr += 0.5 / (1 + (scores[query] > scores[query][wanted]).sum().item<double>());
  CHECK(metrics["cosine_mrr@10"] == testing::Approx(mrr));
  CHECK_FALSE(Contains("q0 Q0 q0 ").match(read_file(run)));
  CHECK(Contains("q1 Q0 q0 ").match(read_file(run)));
  CHECK(metrics["cosine_recall@10"] == 1.0);
  CHECK(metrics.size() == 15);
  const CommandResult again =
      run_command(evaluate_command, {"evaluate", "embedding", "--beir", beir, "--split", "dev", "--predictions", run});
  REQUIRE(again.code == kOk);  // q7 is not in the run
  CHECK(json::parse(again.out)["mrr@10"] == testing::Approx(mrr * 2 / 3));
  CHECK(place.evaluate({"--beir", beir, "--split", "dev", "--query-prompt-name", "x"}).code == kUsage);
  const CommandResult prompted = place.evaluate({"--beir", beir, "--split", "dev", "--query-prompt", "sat "});
  REQUIRE(prompted.code == kOk);

  const std::string table =
      place.write("pairs.csv", "sentence1,sentence2,label\nthe cat sat.,the cat sat.,1\ncats,.,0\nthe,sat sat,0\n");
  const CommandResult classes = place.evaluate({"--dataset", table});
  REQUIRE(classes.code == kOk);
  const json best = json::parse(classes.out);
  CHECK(best.size() == 40);
  CHECK(best["cosine_accuracy"] == 1.0);
  CHECK(best["max_ap"] == 1.0);
  const Tensor first = predictor.encode({"cats", "the"}), second = predictor.encode({".", "sat sat"});
  const double middle = (1 + pairwise_similarity(Similarity::kCosine, first, second).max().item<double>()) / 2;
  CHECK(best["cosine_accuracy_threshold"] == testing::Approx(middle).epsilon(1e-5));
  const CommandResult as_scores =
      place.evaluate({"--dataset", table, "--kind", "similarity", "data.label_column=label"});
  REQUIRE(as_scores.code == kOk);
  CHECK(json::parse(as_scores.out).contains("manhattan_spearman"));
  CHECK(place.evaluate({"--dataset", table, "--corpus-prompt", "x"}).code == kUsage);

  const std::string samples =
      place.write("samples.jsonl", R"({"query": "cats", "positive": ["cats"], "negative": ["the cat sat.", "."]})"
                                   "\n");
  const CommandResult reranked = place.evaluate({"--dataset", samples});
  REQUIRE(reranked.code == kOk);
  CHECK(json::parse(reranked.out) == json{{"map", 1.0}, {"mrr@10", 1.0}, {"ndcg@10", 1.0}});
}

TEST_CASE("data mine-negatives writes the nearest documents that are no positives", "[predict][retrieval]") {
  const Place place;
  const Predictor predictor(place.checkpoint);
  const std::string pairs = place.write("pairs.tsv", "anchor\tpositive\nthe cat\tcats\nthe cat\tsat sat\n.\t. the\n");
  const std::string corpus = place.write("corpus.txt", "the cat sat.\ncats\n. . .\n");
  const std::string output = place.directory.path("out.jsonl");
  const CommandResult mined = place.mine({"--input", pairs, "--corpus", corpus, "--output", output, "--num-negatives",
                                          "2", "--format", "n-tuple", "--scores"});
  INFO(mined.err);
  REQUIRE(mined.code == kOk);
  const json counts = json::parse(mined.out);
  CHECK(counts["queries"] == 2);
  CHECK(counts["documents"] == 5);
  CHECK(counts["rows"] == 3);
  const auto rows = testing::lines_of(read_file(output));
  REQUIRE(rows.size() == 3);
  std::vector<std::string> others = {"the cat sat.", ". . .", ". the"};
  const Tensor scores =
      similarity_matrix(Similarity::kCosine, predictor.encode({"the cat"}), predictor.encode(others))[0];
  const auto [sorted, order] = scores.sort(-1, /*descending=*/true);
  for (const size_t row : {size_t{0}, size_t{1}}) {
    CHECK(rows[row]["anchor"] == "the cat");
    CHECK(rows[row]["positive"] == (row == 0 ? "cats" : "sat sat"));
    CHECK(rows[row]["negative_1"] == others[static_cast<size_t>(order[0].item<int64_t>())]);
    CHECK(rows[row]["negative_2"] == others[static_cast<size_t>(order[1].item<int64_t>())]);
    CHECK(rows[row]["scores"][2] == testing::Approx(sorted[1].item<double>()).margin(1e-5));
  }
  const auto code = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = {"--input", pairs, "--output", output};
    all.insert(all.end(), more.begin(), more.end());
    return place.mine(all).code;
  };
  CHECK(code({"--range-min", "3", "--range-max", "4"}) == kUsage);
  CHECK(code({"--anchor-column", "x"}) == kBadData);
  CHECK(code({"--max-score", "-2"}) == kOk);
  CHECK(read_file(output).empty());
  CHECK(place.mine({"--input", pairs, "--output", pairs}).code == kUsage);
}

}  // namespace bert
