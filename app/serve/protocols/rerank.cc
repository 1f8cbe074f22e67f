#include "app/serve/protocols/rerank.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "app/serve/protocols/json_body.h"
#include "app/serve/protocols/number_text.h"

namespace bert {

using nlohmann::json;

Ranks ranks_of(const Call& call, ServedModel& model, const std::string& query, const std::vector<std::string>& passages,
               const std::string& name, const AnswerOptions& wishes) {
  Texts pairs{.inputs = {}, .name = name, .list = true};
  for (const std::string& passage : passages) {
    if (passage.empty()) throw HttpError(422, fmt::format("{}[{}]: the passage is empty", name, pairs.inputs.size()));
    pairs.inputs.push_back({.text = query, .second = passage});
  }
  if (pairs.inputs.empty()) throw HttpError(422, name + ": want one passage or more");
  const Answers answers = model.ask(pairs, wishes, call.deadline);
  Ranks ranks{.best = {}, .tokens = answers.tokens};
  for (const auto& answer : answers.all) ranks.best.push_back({ranks.best.size(), answer->numbers().front()});
  std::stable_sort(ranks.best.begin(), ranks.best.end(),
                   [](const Rank& x, const Rank& y) { return x.score > y.score; });
  return ranks;
}

ServerResponse cohere_rerank(const Call& call) {
  const json body = parse_body(call.request.body);
  check_keys(body, "body", {"model", "query", "documents", "top_n", "return_documents", "truncation", "user"});
  const json* name = find_member(body, "model");
  ServedModel& model = model_for(call, kRerankTask, 422, name == nullptr ? "" : string_of(*name, "model"));
  const json& documents = wanted_member(body, "documents");
  if (!documents.is_array()) throw HttpError(422, "documents: want a list of texts");
  std::vector<std::string> passages;
  for (const json& document : documents) {
    const std::string place = fmt::format("documents[{}]", passages.size());
    passages.push_back(document.is_object() ? string_of(wanted_member(document, "text"), place + ": text")
                                            : string_of(document, place));
  }
  AnswerOptions wishes{.function_to_apply = FunctionToApply::kSigmoid};
  if (find_member(body, "truncation") != nullptr)
    wishes.long_texts = boolean_member_of(body, "truncation", true) ? LongTexts::kTruncate : LongTexts::kRefuse;
  const json* most = find_member(body, "top_n");
  const int64_t top_n = most == nullptr ? std::ssize(passages) : integer_of(*most, "top_n", 1 << 20);
  const bool with_documents = boolean_member_of(body, "return_documents", false);
  const std::string query = string_of(wanted_member(body, "query"), "query");
  const Ranks ranks = ranks_of(call, model, query, passages, "documents", wishes);
  std::string text = fmt::format(R"({{"object":"list","model":{},"results":[)", json_text(model.name()));
  const auto count = static_cast<size_t>(std::min(top_n, std::ssize(ranks.best)));
  for (size_t i = 0; i < count; ++i) {
    const Rank& rank = ranks.best[i];
    text += fmt::format(R"({}{{"index":{},"relevance_score":)", i == 0 ? "" : ",", rank.index);
    append_number(text, rank.score);
    if (with_documents) text += ",\"document\":" + json_text({{"text", passages[rank.index]}});
    text += '}';
  }
  text += fmt::format(R"(],"usage":{{"prompt_tokens":{},"total_tokens":{}}}}})", ranks.tokens, ranks.tokens);
  return {.body = std::move(text)};
}

ServerResponse cohere_refusal(const HttpError& error) {
  constexpr int kBadRequest = 400, kUnanswerable = 422;
  return {.status = error.status == kUnanswerable ? kBadRequest : error.status,
          .body = json_text({{"message", error.what()}}),
          .fields = error.fields};
}

}  // namespace bert
