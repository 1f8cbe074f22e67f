// Passages by their relevance to a query, over HTTP.
#pragma once

#include "app/serve/protocols/protocol.h"

namespace bert {

/// A passage's place in its request, and its score.
struct Rank {
  size_t index = 0;
  float score = 0;
};

/// The passages of a request, best first, and the tokens that were computed.
struct Ranks {
  std::vector<Rank> best;
  int64_t tokens = 0;
};

/// Asks for the relevance of each passage. `name`: of the list of passages in messages. Throws as ServedModel::ask(), and
/// NothingAsked.
Ranks ranks_of(const Call& call, ServedModel& model, const std::string& query, const std::vector<std::string>& passages,
               const std::string& name, const AnswerOptions& wishes);

/// POST /v1/rerank and /v2/rerank of Cohere and Jina, and /rerank with their body: {"model", "query", "documents",
/// "top_n", "return_documents", "max_tokens_per_doc", "rank_fields"}. Scores are between 0 and 1. "priority" and
/// "max_chunks_per_doc" have no effect: requests have turns, and a passage is one chunk.
ServerResponse cohere_rerank(const Call& call);

/// {"message": reason}, 400 in the place of 422.
ServerResponse cohere_refusal(const HttpError& error);

}  // namespace bert
