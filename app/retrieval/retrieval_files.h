// Texts and judgments of retrieval: the layout of BEIR (Thakur et al. 2021), and samples for rerankers. All readers
// throw InputMissing, IoError, and DataError with the file and the line.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "data/io/files.h"

namespace bert {

/// The JSON objects of a file, one a line. Blank lines may stand at the end alone.
class JsonLines {
 public:
  explicit JsonLines(const std::string& path);

  /// Reads the next line. Returns false at the end. Throws DataError for a line that is no JSON object.
  bool next(nlohmann::json& object);

  /// "FILE:LINE", the place of the object.
  [[nodiscard]] std::string place() const;
  /// The share of the bytes that have been read, 0 to 1.
  [[nodiscard]] double share() const;

 private:
  std::string path_;
  MappedFile file_;
  size_t at_ = 0;
  int64_t line_ = 0;
};

struct NamedText {
  std::string id, text;
};

/// A document of BEIR's corpus.jsonl: {"_id", "title", "text"}. The text is the title, a space and the text, as BEIR
/// joins them, without white space at the ends. "_id" and "title" may be absent.
NamedText document_of(const nlohmann::json& object, const std::string& place);

/// The documents of corpus.jsonl, one by one. Ids must be there, once.
class CorpusReader {
 public:
  explicit CorpusReader(const std::string& path) : lines_(path) {}

  /// Reads the next document. Returns false at the end.
  bool next(NamedText& document);
  [[nodiscard]] double share() const { return lines_.share(); }

 private:
  JsonLines lines_;
  std::unordered_set<std::string> ids_;
};

/// The queries of queries.jsonl: {"_id", "text"}, in the order of the file. Ids must be there, once.
std::vector<NamedText> read_queries(const std::string& path);

/// The relevant documents of queries.
struct Judgments {
  std::vector<std::string> queries;  // those with a relevant document, in the order of the file
  std::unordered_map<std::string, std::unordered_set<std::string>> relevant;  // by query

  /// The documents of a query; null if it has none.
  [[nodiscard]] const std::unordered_set<std::string>* of(const std::string& query) const;
};

/// Reads a file of BEIR's qrels: TSV with the columns query-id, corpus-id and score, an integer. A score above 0 is
/// relevant. A pair may be there once. Throws DataError if nothing is relevant.
Judgments read_judgments(const std::string& path);

/// DIRECTORY/qrels/SPLIT.tsv. Throws InputMissing, which names the splits that are there.
std::string judgments_path(const std::string& directory, const std::string& split);

/// A query with its relevant and its other documents.
struct RerankingSample {
  std::string query;
  std::vector<std::string> positive, negative;
};

/// Reads JSON lines of {"query", "positive": [texts], "negative": [texts]}. A text may stand in place of a list; "pos",
/// "negatives" and "neg" are other names of the lists. Samples without a positive or a negative text are left out, as by
/// sentence-transformers' RerankingEvaluator, but with `keep_incomplete`. Throws DataError if none is left.
std::vector<RerankingSample> read_reranking_samples(const std::string& path, bool keep_incomplete = false);

/// True for JSON lines whose first object has the three fields of such a sample.
bool has_reranking_samples(const std::string& path);

/// Two texts and their score or class.
struct ScoredPair {
  std::string first, second;
  double value = 0;
};

struct PairColumns {
  std::string first = "sentence1", second = "sentence2", value = "score";
  bool classes = false;  // values are 0 or 1
};

/// Reads a table of pairs: CSV, JSON lines, or else TSV, by the name of the file. Throws DataError with the column for
/// a value that is no finite number or no class.
std::vector<ScoredPair> read_scored_pairs(const std::string& path, const PairColumns& columns);

/// The kind of evaluation that a file of `bert evaluate embedding` asks for.
enum class PairKind : uint8_t { kSimilarity, kClassification, kReranking };
inline constexpr const char* kPairKinds[] = {"similarity", "classification", "reranking"};

/// The kind by the columns of a table, or the fields of its first object: has_reranking_samples() is kReranking; label
/// without score is kClassification; else kSimilarity.
PairKind kind_of_pairs(const std::string& path);

}  // namespace bert
