// Metrics and files of retrieval against sentence-transformers 5.7 and scikit-learn (golden/retrieval.py).
#include <cmath>
#include <nlohmann/json.hpp>

#include "app/retrieval/hard_negatives.h"
#include "app/retrieval/mining_files.h"
#include "app/retrieval/pair_metrics.h"
#include "app/retrieval/ranking_metrics.h"
#include "app/retrieval/retrieval_files.h"
#include "app/retrieval/trec_run.h"
#include "app/system/errors.h"
#include "app/verbs/verbs.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "tests/support/command_testing.h"
#include "tests/support/text_file.h"
#include "tests/testing.h"

using namespace bert;
using namespace bert::testing;
using nlohmann::json;

namespace {

const json& of_sentence_transformers() {
  static const auto data = json::parse(read_file(golden("retrieval.json")));
  return data;
}

/// Checks that the metrics are those of an object, as far as `prefix` begins their names there.
void check_metrics(const std::vector<TaskMetric>& metrics, const json& expected, const std::string& prefix = "") {
  size_t wanted = 0;
  for (const auto& [name, value] : expected.items()) wanted += name.starts_with(prefix) ? 1 : 0;
  CHECK(metrics.size() == wanted);
  for (const TaskMetric& metric : metrics) {
    INFO(metric.name);
    REQUIRE(expected.contains(metric.name));
    CHECK(metric.value == Approx(expected[metric.name].get<double>()).margin(1e-9).epsilon(1e-9));
  }
}

/// A directory of BEIR's layout: three documents, two queries of the split test.
struct BeirDirectory {
  BeirDirectory() {
    make_directories(path("qrels"));
    write("corpus.jsonl",
          "{\"_id\": \"d1\", \"title\": \"Cats\", \"text\": \"They sit.\"}\n"
          "{\"_id\": \"d2\", \"title\": \"\", \"text\": \" Dogs run. \", \"metadata\": {}}\r\n"
          "{\"_id\": 3, \"title\": null, \"text\": \"Birds fly.\"}\n\n");
    write("queries.jsonl", "{\"_id\": \"q1\", \"text\": \"cat\"}\n{\"_id\": \"q2\", \"text\": \"bird\"}\n");
    write("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td2\t0\nq2\t3\t1\nq2\td1\t1\n");
  }
  [[nodiscard]] std::string path(const std::string& name = "") const { return directory.path("beir") + "/" + name; }
  void write(const std::string& name, const std::string& text) const { write_text(path(name), text); }

  const TemporaryDirectory directory;
};

template <class Error, class Work>
std::string message_of(Work&& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

CommandResult evaluate_run(const std::vector<std::string>& arguments) {
  std::vector<std::string> all = {"evaluate", "embedding"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return run_command(evaluate_command, all);
}

}  // namespace

TEST_CASE("Metrics of rankings equal InformationRetrievalEvaluator's", "[unit][retrieval]") {
  const json& at = of_sentence_transformers()["ranking"];
  std::vector<Ranking> rankings;
  Judgments judgments;
  for (const auto& [query, documents] : at["relevant"].items()) {
    judgments.queries.push_back(query);
    for (const auto& document : documents) judgments.relevant[query].insert(document.get<std::string>());
    Ranking& ranking = rankings.emplace_back(Ranking{query, {}});
    for (const auto& document : at["rankings"][query]) ranking.documents.push_back({document.get<std::string>(), 0});
  }
  check_metrics(score_rankings(rankings, judgments, ""), at["metrics"]);
  // By hand: relevant at the places 2 and 4 of 4, three relevant documents; all sums stop at 3.
  RankingMetrics metrics({.accuracy = {1}, .precision_recall = {3}, .ndcg = {3}, .mrr = {3}, .map = {3}});
  metrics.add({false, true, false, true}, 3);
  const double best = 1 + 1 / std::log2(3) + 0.5;
  check_metrics(metrics.means("x_"), {{"x_accuracy@1", 0},
                                      {"x_precision@3", 1.0 / 3},
                                      {"x_recall@3", 1.0 / 3},
                                      {"x_ndcg@3", 1 / std::log2(3) / best},
                                      {"x_mrr@3", 0.5},
                                      {"x_map@3", 0.5 / 3}});
}

TEST_CASE("Metrics of reranking equal RerankingEvaluator's, ties included", "[unit][retrieval]") {
  const json& at = of_sentence_transformers()["reranking"];
  RerankingMetrics metrics;
  for (const json& sample : at["samples"])
    metrics.add(sample["scores"].get<std::vector<float>>(), sample["relevant"].get<size_t>());
  check_metrics(metrics.means(), at["metrics"]);
}

TEST_CASE("Metrics of a reranker equal CrossEncoderRerankingEvaluator's, ties included", "[unit][retrieval]") {
  const json data = json::parse(read_file(golden("reranking.json")));
  RerankingMetrics metrics(TiedDocuments::kReversed), in_order;
  for (const json& sample : data["samples"]) {
    const auto scores = sample["scores"].get<std::vector<float>>();
    metrics.add(scores, sample["relevant"].get<size_t>());
    in_order.add(scores, sample["relevant"].get<size_t>());
  }
  check_metrics(metrics.means(), data["metrics"]);
  CHECK(in_order.means()[1].value != metrics.means()[1].value);
}

TEST_CASE("Best thresholds of pairs equal BinaryClassificationEvaluator's", "[unit][retrieval]") {
  for (const json& at : of_sentence_transformers()["classes"]) {
    const auto labels = at["labels"].get<std::vector<int32_t>>();
    for (const std::string kind : {"cosine", "dot", "euclidean", "manhattan"}) {
      CAPTURE(kind);
      const bool greater = kind == "cosine" || kind == "dot";
      const auto scores = at["scores"][kind].get<std::vector<float>>();
      check_metrics(named(best_thresholds(scores, labels, greater), kind + "_"), at["metrics"], kind + "_");
    }
  }
}

TEST_CASE("BEIR's files are read, and damage is named with its line", "[unit][retrieval]") {
  const BeirDirectory beir;
  CorpusReader corpus(beir.path("corpus.jsonl"));
  std::vector<std::pair<std::string, std::string>> documents;
  for (NamedText document; corpus.next(document);) documents.emplace_back(document.id, document.text);
  CHECK(documents == std::vector<std::pair<std::string, std::string>>{
                         {"d1", "Cats They sit."}, {"d2", "Dogs run."}, {"3", "Birds fly."}});
  const Judgments judgments = read_judgments(judgments_path(beir.path(), "test"));
  CHECK(judgments.queries == std::vector<std::string>{"q1", "q2"});
  CHECK(*judgments.of("q1") == std::unordered_set<std::string>{"d1"});
  CHECK(judgments.of("q2")->size() == 2);
  CHECK(read_queries(beir.path("queries.jsonl")).at(1).text == "bird");
  CHECK_THAT(message_of<InputMissing>([&] { judgments_path(beir.path(), "dev"); }),
             Contains("qrels/dev.tsv: no such file") && Contains("has the splits [test]; --split names one"));

  const auto corpus_error = [&](const std::string& text) {
    beir.write("bad.jsonl", text);
    return message_of<DataError>([&] {
      CorpusReader reader(beir.path("bad.jsonl"));
      for (NamedText document; reader.next(document);) {
      }
    });
  };
  CHECK_THAT(corpus_error("{\"_id\": \"a\", \"text\": \"\"}\n{\"_id\": \"a\", \"text\": \"\"}\n"),
             Contains("bad.jsonl:2: the id \"a\" is there twice"));
  CHECK_THAT(corpus_error("{\"text\": \"\"}\n"), Contains("bad.jsonl:1: \"_id\" is missing"));
  CHECK_THAT(corpus_error("{\"_id\": \"a\"}\n"), Contains("bad.jsonl:1: \"text\" is missing"));
  CHECK_THAT(corpus_error("{\"_id\": \"a\", \"text\": \"\"}\n\n[]\n"), Contains("bad.jsonl:2: the line is blank"));
  CHECK_THAT(corpus_error("[]\n"), Contains("bad.jsonl:1: want a JSON object in each line, got array"));
  CHECK_THAT(corpus_error("{\"_id\": \"a\", \"text\": \"\xFF\"}\n"), Contains("bad.jsonl"));
  const auto qrels_error = [&](const std::string& rows) {
    beir.write("bad.tsv", "query-id\tcorpus-id\tscore\n" + rows);
    return message_of<DataError>([&] { read_judgments(beir.path("bad.tsv")); });
  };
  CHECK_THAT(qrels_error("q\td\t1.5\n"), Contains("bad.tsv:2: column \"score\": want an integer, got \"1.5\""));
  CHECK_THAT(qrels_error("q\td\t1\nq\td\t0\n"), Contains("bad.tsv:3") && Contains("are there twice"));
  CHECK_THAT(qrels_error("q\td\t0\n"), Contains("no document is relevant"));
}

TEST_CASE("A run goes out and comes back, and is scored without a model", "[unit][retrieval]") {
  const BeirDirectory beir;
  const std::string path = beir.path("a.run");
  write_trec_run(path, {{"q1", {{"d2", 0.1F}, {"d1", -2.5e-7F}}}, {"q9", {{"3", 1}}}}, "tag");
  CHECK(read_file(path) == "q1 Q0 d2 1 0.1 tag\nq1 Q0 d1 2 -2.5e-07 tag\nq9 Q0 3 1 1 tag\n");
  const std::vector<Ranking> back = read_trec_run(path);
  REQUIRE(back.size() == 2);
  CHECK(back[0].documents.at(1).id == "d1");
  CHECK_THAT(message_of<DataError>([&] {
               write_trec_run(path, {{"q 1", {{"d", 1}}}}, "tag");
             }),
             Contains("white space"));

  // q1: d1 is second; equal scores keep their order. q2 is not in the run, q9 is not judged.
  beir.write("b.run", "q1 Q0 3 7 0.5 x\nq1\tQ0\td1\t1\t0.5\tx\n\nq9 Q0 d1 1 1 x\n");
  const CommandResult scored = evaluate_run({"--beir", beir.path(), "--predictions", beir.path("b.run")});
  REQUIRE(scored.code == kOk);
  CHECK_THAT(scored.err, Contains("1 of 2 judged queries are not in the run; they score 0"));
  const json metrics = json::parse(scored.out);
  CHECK(metrics["mrr@10"] == 0.25);
  CHECK(metrics["accuracy@1"] == 0.0);
  CHECK(metrics["recall@3"] == 0.5);
  CHECK(metrics["map@100"] == 0.25);
  beir.write("own.run", "q1 Q0 q1 1 0.9 x\nq1 Q0 3 2 0.5 x\nq1 Q0 d1 3 0.4 x\n");  // BEIR leaves a query's own id out
  CHECK(json::parse(evaluate_run({"--beir", beir.path(), "--predictions", beir.path("own.run")}).out)["mrr@10"] ==
        0.25);
  Judgments numbered;  // queries and documents that count from 0 each
  numbered.queries = {"0"};
  numbered.relevant["0"] = {"0"};
  const Ranking own{.query = "0", .documents = {{"0", 0.9}, {"1", 0.5}}};
  CHECK(without_query(own, numbered, 1).front().id == "0");
  numbered.relevant["0"] = {"1"};
  CHECK(without_query(own, numbered, 1).front().id == "1");

  const auto error = [&](const std::string& text) {
    beir.write("bad.run", text);
    return evaluate_run({"--beir", beir.path(), "--predictions", beir.path("bad.run")});
  };
  CHECK(error("q1 Q0 d1 1 0.5\n").code == kBadData);
  CHECK_THAT(error("q1 Q0 d1 1 0.5\n").err, Contains("bad.run:1: want \"qid Q0 docid rank score tag\", got 5 parts"));
  CHECK_THAT(error("q1 Q0 d1 1 nan x\n").err, Contains("want a number as the score"));
  CHECK_THAT(error("q1 Q0 d1 1 1 x\nq1 Q0 d1 2 0 x\n").err, Contains("bad.run:2: query q1 has the document d1 twice"));
  CHECK_THAT(error("\n").err, Contains("has no rankings"));

  for (const std::vector<std::string>& bad :
       std::vector<std::vector<std::string>>{{"--beir", beir.path()},
                                             {"--beir", beir.path(), "--dataset", path, "--predictions", path},
                                             {"--beir", beir.path(), "--predictions", path, "--run", path},
                                             {"--beir", beir.path(), "--predictions", path, "--kind", "reranking"},
                                             {"--beir", beir.path(), "--predictions", path, "--query-prompt", "x"},
                                             {"--dataset", path, "--split", "dev", "--predictions", path}}) {
    CAPTURE(bad);
    CHECK(evaluate_run(bad).code == kUsage);
  }
  CHECK(run_command(evaluate_command, {"evaluate", "sst2", "--beir", beir.path(), "--predictions", path}).code ==
        kUsage);
}

TEST_CASE("The columns of a table say what is evaluated", "[unit][retrieval]") {
  const TemporaryDirectory directory;
  const auto kind = [&](const std::string& name, const std::string& text) {
    return kind_of_pairs(write_text(directory.path(name), text));
  };
  CHECK(kind("a.tsv", "sentence1\tsentence2\tscore\na\tb\t1\n") == PairKind::kSimilarity);
  CHECK(kind("a.csv", "sentence1,sentence2,label\na,b,1\n") == PairKind::kClassification);
  CHECK(kind("b.csv", "sentence1,sentence2,label,score\na,b,1,2\n") == PairKind::kSimilarity);
  CHECK(kind("a.jsonl", "{\"sentence1\": \"a\", \"sentence2\": \"b\", \"label\": 0}\n") == PairKind::kClassification);
  const std::string samples = "{\"query\": \"a\", \"positive\": [\"b\"], \"negative\": [\"c\", \"d\"]}\n";
  CHECK(kind("b.jsonl", samples) == PairKind::kReranking);
  const std::string path =
      write_text(directory.path("c.jsonl"), samples + "{\"query\": \"e\", \"positive\": [], \"negative\": [\"c\"]}\n");
  CHECK(read_reranking_samples(path).size() == 1);
  CHECK(read_reranking_samples(path, /*keep_incomplete=*/true).size() == 2);
  const std::string others = write_text(directory.path("f.jsonl"),
                                        "{\"query\": \"a\", \"pos\": \"b\", \"neg\": [\"c\"]}\n"
                                        "{\"query\": \"d\", \"positive\": [\"e\"], \"negatives\": [\"f\", \"g\"]}\n");
  CHECK(kind_of_pairs(others) == PairKind::kReranking);
  CHECK(read_reranking_samples(others).at(0).positive == std::vector<std::string>{"b"});
  CHECK(read_reranking_samples(others).at(1).negative == std::vector<std::string>{"f", "g"});
  const auto error = [&](const std::string& text) {
    const std::string bad = write_text(directory.path("d.jsonl"), text);
    return message_of<DataError>([&] { read_reranking_samples(bad); });
  };
  CHECK_THAT(error(samples + "{\"query\": \"a\", \"positive\": {}, \"negative\": []}\n"),
             Contains("d.jsonl:2: \"positive\""));
  CHECK_THAT(error("{\"query\": \"a\", \"positive\": [1], \"negative\": []}\n"),
             Contains("\"positive\": want a list of strings, got number in it"));
  CHECK_THAT(error("{\"query\": \"a\", \"positive\": [], \"negative\": []}\n"), Contains("no sample has"));
  const std::string classes = write_text(directory.path("e.tsv"), "sentence1\tsentence2\tlabel\na\tb\t2\n");
  CHECK_THAT(message_of<DataError>([&] { read_scored_pairs(classes, {.value = "label", .classes = true}); }),
             Contains("e.tsv:2: column \"label\": want the class 0 or 1, got \"2\""));
}

TEST_CASE("Samples of a range equal Python's random.sample()", "[unit][retrieval]") {
  for (const json& at : of_sentence_transformers()["samples"]) {
    PyRandom random(at["seed"].get<uint64_t>());
    CHECK(sample_range(random, at["size"], at["count"]) == at["numbers"].get<std::vector<size_t>>());
  }
}

TEST_CASE("Pairs for mining are read, and rows are written", "[unit][retrieval]") {
  const TemporaryDirectory directory;
  const std::string table = write_text(directory.path("pairs.csv"), "query,positive,x\na,b,1\na,\"c\nd\",2\n");
  const MiningPairs pairs = read_mining_pairs(table, "", "");
  CHECK(pairs.anchor_column == "query");
  CHECK(pairs.positives == std::vector<std::string>{"b", "c\nd"});
  CHECK(read_mining_pairs(table, "positive", "x").anchors == pairs.positives);
  CHECK_THAT(message_of<DataError>([&] { read_mining_pairs(table, "", "y"); }),
             Contains("pairs.csv:1: no column \"y\""));
  const std::string other = write_text(directory.path("other.tsv"), "q\tpositive\n\tb\n");
  CHECK_THAT(message_of<DataError>([&] { read_mining_pairs(other, "", ""); }), Contains("--anchor-column names"));
  CHECK_THAT(message_of<DataError>([&] { read_mining_pairs(other, "q", ""); }),
             Contains("other.tsv:2: column \"q\": the text is empty"));

  DistinctTexts documents;
  read_mining_corpus(write_text(directory.path("a.txt"), "b\n\n e \r\nb\n"), documents);
  read_mining_corpus(write_text(directory.path("a.jsonl"), "{\"title\": \"t\", \"text\": \"u\"}\n{\"text\": \"e\"}\n"),
                     documents);
  REQUIRE(documents.size() == 3);
  CHECK((documents.at(0) + documents.at(1) + documents.at(2)) == "bet u");

  const std::string b = "b", c = "c", tab = "d\te";
  const std::string jsonl = directory.path("out.jsonl"), tsv = directory.path("out.tsv");
  TupleWriter tuples(jsonl, pairs, {.format = TupleFormat::kNTuple, .num_negatives = 2, .scores = true});
  tuples.write("a", {&b, 0.5F}, std::vector<ScoredText>{{&c, 0.25F}, {&tab, -1}});
  tuples.write("a", {&b, 0.5F}, std::vector<ScoredText>{{&c, 0.25F}});  // too few
  tuples.commit();
  CHECK(tuples.rows() == 1);
  CHECK(read_file(jsonl) ==
        "{\"query\":\"a\",\"positive\":\"b\",\"negative_1\":\"c\",\"negative_2\":\"d\\te\",\"scores\":[0.5,0.25,-1.0]}"
        "\n");
  TupleWriter triplets(tsv, pairs, {});
  triplets.write("a", {&b, 0}, std::vector<ScoredText>{{&c, 0}, {&b, 0}});
  CHECK_THAT(message_of<DataError>([&] {
               triplets.write("a", {&b, 0}, std::vector<ScoredText>{{&tab, 0}});
             }),
             Contains("TSV cannot hold a text with a tab"));
  triplets.commit();
  CHECK(read_file(tsv) == "query\tpositive\tnegative\na\tb\tc\na\tb\tb\n");
  CHECK_THROWS_AS(TupleWriter(directory.path("out.csv"), pairs, {}), UsageError);
  CHECK_THROWS_AS(TupleWriter(directory.path("x.tsv"), pairs, {.scores = true}), UsageError);
}

TEST_CASE("The range of candidates has room for the negatives", "[unit][retrieval]") {
  CHECK(range_max_of({.range_min = 2, .num_negatives = 3}, 4) == 2 + 3 + 4);
  CHECK(range_max_of({.range_min = 2, .absolute_margin = 0.1, .num_negatives = 3}, 4) == 2 + 30 + 4);
  CHECK(range_max_of({.min_score = 0.1, .num_negatives = 3}, 1) == 4);
  CHECK(range_max_of({.range_max = 3, .num_negatives = 3}, 9) == 3);
  CHECK_THROWS_AS(range_max_of({.range_min = 1, .range_max = 3, .num_negatives = 3}, 1), UsageError);
}
