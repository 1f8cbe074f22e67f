// The vectors of many texts: of the queries, and of the documents.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "app/inference/predictor.h"
#include "app/retrieval/retrieval_files.h"
#include "app/retrieval/retrieval_prompts.h"
#include "app/retrieval/trec_run.h"

namespace bert {

/// The options of queries, as encode_query() of sentence-transformers reads prompts: the wished one, else the model's
/// prompt "query", else none. The model's default prompt is not read. Throws UsageError, which names the option, if the
/// model lacks the prompt.
AnswerOptions query_options(const SentenceEncoder& encoder, const RetrievalPrompts& prompts);
/// The same of documents, as encode_document() does it: their usual prompt is "document".
AnswerOptions corpus_options(const SentenceEncoder& encoder, const RetrievalPrompts& prompts);

/// Makes vectors with a predictor, which must outlive it.
class TextVectors {
 public:
  TextVectors(const Predictor& predictor, AnswerOptions options)
      : predictor_(predictor), options_(std::move(options)) {}

  /// [N, D] fp32 on the CPU. Equal texts are computed once, and so have equal vectors. Throws TextError with the index
  /// of a text that has no vector.
  at::Tensor of(std::span<const std::string> texts);

  /// Texts so far, and those of them that were cut because they are too long.
  [[nodiscard]] int64_t texts() const { return texts_; }
  [[nodiscard]] int64_t cut() const { return cut_; }

 private:
  const Predictor& predictor_;
  const AnswerOptions options_;
  int64_t texts_ = 0, cut_ = 0;
};

/// A call says the share of the documents that are done.
using CorpusProgress = std::function<void(double share)>;

/// The vectors of queries and of documents, and the function that compares them.
struct RetrievalModel {
  TextVectors queries, documents;
  Similarity similarity = Similarity::kCosine;
  c10::Device device = c10::kCPU;  // of the products
};

/// Ranks the `most` nearest documents of each query, without_query(). The corpus is read and encoded in pieces, so memory
/// holds its ids, but not its texts nor its vectors. Throws DataError with the file for a text that has no vector, and as
/// CorpusReader.
std::vector<Ranking> rank_documents(RetrievalModel& model, const std::vector<NamedText>& queries,
                                    const Judgments& judgments, const std::string& corpus, int64_t most,
                                    const CorpusProgress& progress);

/// Documents that are encoded at a time: enough to pack texts of like lengths, and 25 MB of vectors with 384 numbers.
inline constexpr size_t kPieceDocuments = 16384;

}  // namespace bert
