#include "app/retrieval/text_vectors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <initializer_list>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "app/retrieval/vector_search.h"
#include "app/system/errors.h"

namespace bert {
namespace {

/// `option` begins the names of the options, "--query"; `usual` are the prompts that the model may have for such texts.
AnswerOptions options_with_prompt(const SentenceEncoder& encoder, const PromptWish& wish, const char* option,
                                  std::initializer_list<const char*> usual) {
  if (wish.text) return {.prompt = wish.text};
  const std::vector<std::string> names =
      wish.name ? std::vector<std::string>{*wish.name} : std::vector<std::string>(usual.begin(), usual.end());
  for (const std::string& name : names) {
    const auto found = encoder.prompts.find(name);
    if (found != encoder.prompts.end()) return {.prompt = found->second};
  }
  if (wish.name) {
    std::vector<std::string> known;
    for (const auto& [name, text] : encoder.prompts) known.push_back(name);
    throw UsageError(
        fmt::format("{}-prompt-name {}: the model has the prompts [{}]", option, *wish.name, fmt::join(known, ", ")));
  }
  return {};  // the model's default prompt, if it has one
}

}  // namespace

AnswerOptions query_options(const SentenceEncoder& encoder, const RetrievalPrompts& prompts) {
  return options_with_prompt(encoder, prompts.query, "--query", {"query"});
}

AnswerOptions corpus_options(const SentenceEncoder& encoder, const RetrievalPrompts& prompts) {
  return options_with_prompt(encoder, prompts.corpus, "--corpus", {"document", "passage", "corpus"});
}

torch::Tensor TextVectors::of(std::span<const std::string> texts) {
  std::unordered_map<std::string_view, int64_t> places;
  std::vector<EncodedText> distinct;
  std::vector<int64_t> rows;
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto [found, is_new] = places.try_emplace(texts[i], std::ssize(distinct));
    rows.push_back(found->second);
    if (is_new) {
      try {
        distinct.push_back(predictor_.encode(Task::kEmbedding, texts[i], options_));
      } catch (const TextError& error) {
        throw TextError(i, error.reason, texts[i]);
      }
    }
    cut_ += distinct[static_cast<size_t>(found->second)].cut ? 1 : 0;
  }
  texts_ += std::ssize(texts);
  const torch::Tensor vectors = torch::stack(predictor_.sentence_embeddings(distinct));
  return distinct.size() == texts.size() ? vectors : vectors.index_select(0, torch::tensor(rows));
}

std::vector<Ranking> rank_documents(RetrievalModel& model, const std::vector<NamedText>& queries,
                                    const Judgments& judgments, const std::string& corpus, int64_t most,
                                    const CorpusProgress& progress) {
  const auto vectors_of = [](TextVectors& vectors, const std::vector<std::string>& texts, auto&& name_of) {
    try {
      return vectors.of(texts);
    } catch (const TextError& error) {
      throw DataError(fmt::format("{}: {}; --long truncate cuts such texts", name_of(error.index), error.what()));
    }
  };
  std::vector<std::string> texts;
  for (const NamedText& query : queries) texts.push_back(query.text);
  VectorSearch search(
      model.similarity,
      vectors_of(model.queries, texts, [&](size_t i) { return "query " + queries[i].id; }).to(model.device),
      most + 1);  // one may be the query itself
  std::vector<std::string> ids;
  CorpusReader reader(corpus);
  for (bool more = true; more;) {
    texts.clear();
    const size_t before = ids.size();
    for (NamedText document; texts.size() < kPieceDocuments && (more = reader.next(document));) {
      ids.push_back(document.id);
      texts.push_back(std::move(document.text));
    }
    if (texts.empty()) break;
    search.add(vectors_of(model.documents, texts,
                          [&](size_t i) { return fmt::format("{}: document {}", corpus, ids[before + i]); }));
    progress(reader.share());
  }
  if (ids.empty()) throw DataError(corpus + ": has no document; expected one JSON object a line");
  std::vector<Ranking> rankings;
  const auto nearest = search.nearest();
  for (size_t i = 0; i < queries.size(); ++i) {
    Ranking& ranking = rankings.emplace_back(Ranking{.query = queries[i].id, .documents = {}});
    for (const Neighbour& neighbour : nearest[i])
      ranking.documents.push_back({ids[static_cast<size_t>(neighbour.place)], neighbour.score});
    ranking.documents = without_query(ranking, judgments, static_cast<size_t>(most));
  }
  return rankings;
}

}  // namespace bert
