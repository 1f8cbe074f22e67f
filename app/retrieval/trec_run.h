// Rankings of documents, and their files in the format of TREC: "qid Q0 docid rank score tag".
#pragma once

#include <string>
#include <vector>

#include "app/retrieval/ranking_metrics.h"
#include "app/retrieval/retrieval_files.h"

namespace bert {

struct RankedDocument {
  std::string id;
  double score = 0;
};

/// The documents found for a query, best first.
struct Ranking {
  std::string query;
  std::vector<RankedDocument> documents;
};

/// Reads a run. Documents are ordered by their scores; those of one score keep the order of the file. Ranks and tags
/// are not read. Throws DataError with the file and the line for a line without six parts, a score that is no finite
/// number, and a document that a query has twice; InputMissing; IoError.
std::vector<Ranking> read_trec_run(const std::string& path);

/// Writes a run with ranks from 1 on; scores have the digits that give back the same fp32. An id with white space
/// throws DataError: the format has no quotes. Throws IoError.
void write_trec_run(const std::string& path, const std::vector<Ranking>& rankings, const std::string& tag);

/// The documents of a ranking but for one with the query's own id, which BEIR's evaluation leaves out
/// (ignore_identical_ids of EvaluateRetrieval.evaluate), and `most` of them at most. It stays if it is judged relevant: then
/// queries and documents have numbers of their own, and it is no copy of the query.
std::vector<RankedDocument> without_query(const Ranking& ranking, const Judgments& judgments, size_t most);

/// The metrics of the rankings by the judgments, as without_query() has them. Queries without a relevant document do not
/// count; a judged query without a ranking scores nothing if the caller gives it an empty one.
std::vector<TaskMetric> score_rankings(const std::vector<Ranking>& rankings, const Judgments& judgments,
                                       const std::string& prefix, const RankingCutoffs& cutoffs = {});

/// Adds an empty ranking for each judged query that has none. Returns their number.
int64_t add_missing_rankings(std::vector<Ranking>& rankings, const Judgments& judgments);

}  // namespace bert
