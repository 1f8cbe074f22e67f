#include "app/serve/protocols/rerank.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "app/serve/protocols/json_body.h"
#include "app/serve/protocols/number_text.h"
#include "app/system/crypto.h"

namespace bert {

using nlohmann::json;

Ranks ranks_of(const Call& call, ServedModel& model, const std::string& query, const std::vector<std::string>& passages,
               const std::string& name, const AnswerOptions& wishes) {
  constexpr int64_t kMostQueryBytes = 64 << 20;  // of all pairs, each of which has the query
  model.expect_count(name, passages.size());
  if (std::ssize(query) * std::ssize(passages) > kMostQueryBytes)
    throw HttpError(
        413, fmt::format("query: {} bytes for {} passages are too many; shorten it", query.size(), passages.size()));
  Texts pairs{.inputs = {}, .name = name, .list = true};
  for (const std::string& passage : passages) pairs.inputs.push_back({.text = query, .second = passage});
  if (pairs.inputs.empty()) throw NothingAsked(name + ": want one passage or more");
  const Answers answers = model.ask(pairs, wishes, call.deadline);
  Ranks ranks{.best = {}, .tokens = answers.tokens};
  for (const auto& answer : answers.all) ranks.best.push_back({ranks.best.size(), answer->numbers().front()});
  std::stable_sort(ranks.best.begin(), ranks.best.end(),
                   [](const Rank& x, const Rank& y) { return x.score > y.score; });
  return ranks;
}

namespace {

/// A document, a text or an object of texts: those of `fields`, in that order.
std::string passage_of(const json& document, const std::vector<std::string>& fields, const std::string& place) {
  if (!document.is_object()) return string_of(document, place);
  std::vector<std::string> values;
  for (const std::string& field : fields) {
    if (const json* value = find_member(document, field.c_str()); value != nullptr)
      values.push_back(string_of(*value, fmt::format("{}: {}", place, field)));
  }
  if (values.empty()) throw HttpError(422, fmt::format("{}: {}: is missing", place, fmt::join(fields, ", ")));
  return fmt::format("{}", fmt::join(values, " "));
}

}  // namespace

ServerResponse cohere_rerank(const Call& call) {
  const json body = parse_body(call.request.body);
  check_keys(body, "body",
             {"model", "query", "documents", "top_n", "return_documents", "truncation", "user", "max_tokens_per_doc",
              "max_chunks_per_doc", "priority", "rank_fields"});
  const json* name = find_member(body, "model");
  ServedModel& model = model_for(call, kRerankTask, 422, name == nullptr ? "" : string_of(*name, "model"));
  const json& documents = wanted_member(body, "documents");
  if (!documents.is_array()) throw HttpError(422, "documents: want a list of texts");
  const json* named = find_member(body, "rank_fields");
  const std::vector<std::string> fields =
      named == nullptr ? std::vector<std::string>{"text"} : texts_of(*named, "rank_fields");
  std::vector<std::string> passages;
  for (const json& document : documents)
    passages.push_back(passage_of(document, fields, fmt::format("documents[{}]", passages.size())));
  AnswerOptions wishes{.function_to_apply = FunctionToApply::kSigmoid};
  if (find_member(body, "truncation") != nullptr)
    wishes.long_texts = boolean_member_of(body, "truncation", true) ? LongTexts::kTruncate : LongTexts::kRefuse;
  constexpr int64_t kMost = 1 << 20;
  if (const json* tokens = find_member(body, "max_tokens_per_doc"); tokens != nullptr)
    wishes.max_second_tokens = integer_of(*tokens, "max_tokens_per_doc", kMost);
  const json* most = find_member(body, "top_n");
  const int64_t top_n = most == nullptr ? std::ssize(passages) : integer_of(*most, "top_n", kMost);
  const bool with_documents = boolean_member_of(body, "return_documents", false);
  const std::string query = string_of(wanted_member(body, "query"), "query");
  const Ranks ranks = ranks_of(call, model, query, passages, "documents", wishes);
  std::string text =
      fmt::format(R"({{"object":"list","id":"{}","model":{},"results":[)", random_uuid(), json_text(model.name()));
  const auto count = static_cast<size_t>(std::min(top_n, std::ssize(ranks.best)));
  for (size_t i = 0; i < count; ++i) {
    const Rank& rank = ranks.best[i];
    text += fmt::format(R"({}{{"index":{},"relevance_score":)", i == 0 ? "" : ",", rank.index);
    append_number(text, rank.score);
    if (with_documents) text += ",\"document\":" + json_text({{"text", passages[rank.index]}});
    text += '}';
  }
  text += fmt::format(R"(],"meta":{{"api_version":{{"version":"{}"}},"tokens":{{"input_tokens":{}}}}})",
                      call.request.path.starts_with("/v2") ? 2 : 1, ranks.tokens);
  text += fmt::format(R"(,"usage":{{"prompt_tokens":{},"total_tokens":{}}}}})", ranks.tokens, ranks.tokens);
  return {.body = std::move(text)};
}

ServerResponse cohere_refusal(const HttpError& error) {
  constexpr int kBadRequest = 400, kUnanswerable = 422;
  return {.status = error.status == kUnanswerable ? kBadRequest : error.status,
          .body = json_text({{"message", error.what()}}),
          .fields = error.fields};
}

}  // namespace bert
