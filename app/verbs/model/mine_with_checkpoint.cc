#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "app/cli/command_line.h"
#include "app/cli/percentage.h"
#include "app/device/device.h"
#include "app/inference/pretrained.h"
#include "app/inference/sentence_pooling.h"
#include "app/retrieval/text_vectors.h"
#include "app/retrieval/vector_search.h"
#include "app/system/exit_codes.h"
#include "app/system/machine/memory.h"
#include "app/system/machine/threads.h"
#include "app/verbs/model/mine_negatives.h"
#include "app/verbs/model/weights_options.h"
#include "app/verbs/output_paths.h"
#include "app/verbs/verbs.h"

namespace bert {
namespace {

/// The queries and documents of pairs, each once.
struct MiningTexts {
  DistinctTexts queries, documents;
  std::vector<std::vector<Neighbour>> positives;  // by query: places of documents, each once; scores are found later
  int64_t max_positives = 0;                      // rows of a query at most
};

MiningTexts texts_of(const MiningPairs& pairs, const std::string& corpus) {
  MiningTexts texts;
  if (!corpus.empty()) read_mining_corpus(corpus, texts.documents);
  std::vector<int64_t> rows;
  for (size_t i = 0; i < pairs.anchors.size(); ++i) {
    const auto query = static_cast<size_t>(texts.queries.add(pairs.anchors[i]));
    const int64_t document = texts.documents.add(pairs.positives[i]);
    if (query == texts.positives.size()) {
      texts.positives.emplace_back();
      rows.push_back(0);
    }
    texts.max_positives = std::max(texts.max_positives, ++rows[query]);
    std::vector<Neighbour>& own = texts.positives[query];
    if (std::ranges::none_of(own, [&](const Neighbour& one) { return one.place == document; }))
      own.push_back({document, 0});
  }
  return texts;
}

/// The vectors of the texts [begin, end), with the length 1.
torch::Tensor unit_vectors(TextVectors& vectors, const DistinctTexts& texts, int64_t begin, int64_t end) {
  std::vector<std::string> some;
  for (int64_t i = begin; i < end; ++i) some.push_back(texts.at(i));
  return normalized(vectors.of(some));
}

/// The nearest documents of each query. Sets the scores of texts.positives.
std::vector<std::vector<Neighbour>> search_documents(MiningTexts& texts, RetrievalModel& model, int64_t most) {
  Percentage percentage;
  const torch::Tensor queries = unit_vectors(model.queries, texts.queries, 0, texts.queries.size());
  VectorSearch search(model.similarity, queries.to(model.device), most);
  const int64_t documents = texts.documents.size(), piece = static_cast<int64_t>(kPieceDocuments);
  for (int64_t begin = 0; begin < documents; begin += piece) {
    const int64_t end = std::min(begin + piece, documents);
    const torch::Tensor vectors = unit_vectors(model.documents, texts.documents, begin, end);
    search.add(vectors);
    std::vector<Neighbour*> found;
    std::vector<int64_t> query_rows, rows;
    for (size_t query = 0; query < texts.positives.size(); ++query) {
      for (Neighbour& positive : texts.positives[query]) {
        if (positive.place < begin || positive.place >= end) continue;
        found.push_back(&positive);
        query_rows.push_back(static_cast<int64_t>(query));
        rows.push_back(positive.place - begin);
      }
    }
    percentage.update("encoding", static_cast<double>(end) / static_cast<double>(documents));
    if (found.empty()) continue;
    const torch::Tensor scores =
        pairwise_similarity(model.similarity, queries.index_select(0, torch::tensor(query_rows)),
                            vectors.index_select(0, torch::tensor(rows)))
            .contiguous();
    for (size_t i = 0; i < found.size(); ++i) found[i]->score = scores.const_data_ptr<float>()[i];
  }
  return search.nearest();
}

/// Figures of the rows, for the line of JSON.
struct MiningCounts {
  int64_t negatives = 0, incomplete = 0;  // of queries; queries with fewer negatives than wanted
  double positive_sum = 0, negative_sum = 0;
  int64_t positives = 0;

  [[nodiscard]] static double mean(double sum, int64_t count) {
    return count == 0 ? 0 : sum / static_cast<double>(count);
  }
};

MiningCounts write_tuples(const MineNegativesOptions& options, const MiningTexts& texts,
                          const std::vector<std::vector<Neighbour>>& nearest, int64_t range_max, TupleWriter& writer) {
  MiningCounts counts;
  PyRandom random(options.mining.seed);
  for (size_t query = 0; query < nearest.size(); ++query) {
    const std::vector<Neighbour>& positives = texts.positives[query];
    const std::vector<Neighbour> negatives = choose_negatives(
        options.mining, {.nearest = nearest[query], .positives = positives, .range_max = range_max}, random);
    counts.negatives += std::ssize(negatives);
    counts.incomplete += std::ssize(negatives) < options.mining.num_negatives ? 1 : 0;
    std::vector<ScoredText> scored;
    for (const Neighbour& negative : negatives) {
      counts.negative_sum += negative.score;
      scored.push_back({&texts.documents.at(negative.place), negative.score});
    }
    for (const Neighbour& positive : positives) {
      counts.positive_sum += positive.score;
      ++counts.positives;
      writer.write(texts.queries.at(static_cast<int64_t>(query)), {&texts.documents.at(positive.place), positive.score},
                   scored);
    }
  }
  return counts;
}

int mine_with_checkpoint(int argc, char** argv) {
  MineNegativesOptions options;
  if (!parse_mine_negatives(argc, argv, options)) return kOk;
  check_outputs({{"--output", options.output}}, {{"--input", options.input}, {"--corpus", options.corpus}});
  const MiningPairs pairs = read_mining_pairs(options.input, options.anchor_column, options.positive_column);
  TupleWriter writer(
      options.output, pairs,
      {.format = options.format, .num_negatives = options.mining.num_negatives, .scores = options.scores});
  MiningTexts texts = texts_of(pairs, options.corpus);
  const int64_t range_max = range_max_of(options.mining, texts.max_positives);
  PredictorOptions how;
  how.device = select_device(options.device, /*local_rank=*/0);
  how.dtype = dtype_named(options.precision);
  how.int8 = options.precision == "int8";
  how.long_texts = options.long_texts.value_or(LongTexts::kTruncate);
  check_int8(how);
  use_threads(0);
  const char* const program = "bert data mine-negatives";
  const Predictor predictor(
      load_pretrained({options.checkpoint, options.trust}, WeightsKind::kAveraged, say_in(program)), how);
  keep_large_blocks();
  const SentenceEncoder& encoder = predictor.sentence_encoder();
  RetrievalModel model{.queries = TextVectors(predictor, query_options(encoder, options.prompts)),
                       .documents = TextVectors(predictor, corpus_options(encoder, options.prompts)),
                       .similarity = encoder.similarity,
                       .device = how.device};
  const auto nearest = search_documents(texts, model, range_max + texts.max_positives);
  const MiningCounts counts = write_tuples(options, texts, nearest, range_max, writer);
  writer.commit();
  if (const int64_t cut = model.queries.cut() + model.documents.cut(); cut > 0) {
    fmt::print(stderr, "{}: {} of {} texts have more tokens than the model reads, and were cut\n", program, cut,
               model.queries.texts() + model.documents.texts());
  }
  if (counts.incomplete > 0) {
    fmt::print(stderr, "{}: {} of {} queries have fewer than {} negatives; a larger --range-max may find more\n",
               program, counts.incomplete, texts.queries.size(), options.mining.num_negatives);
  }
  const nlohmann::ordered_json line = {{"pairs", pairs.anchors.size()},
                                       {"queries", texts.queries.size()},
                                       {"documents", texts.documents.size()},
                                       {"range_max", range_max},
                                       {"negatives", counts.negatives},
                                       {"rows", writer.rows()},
                                       {"positive_score", MiningCounts::mean(counts.positive_sum, counts.positives)},
                                       {"negative_score", MiningCounts::mean(counts.negative_sum, counts.negatives)}};
  std::cout << line.dump() << '\n';
  return kOk;
}

}  // namespace

int data_torch_command(int argc, char** argv) { return mine_with_checkpoint(argc - 1, argv + 1); }

}  // namespace bert
