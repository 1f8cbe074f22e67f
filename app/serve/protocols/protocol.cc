#include "app/serve/protocols/protocol.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "app/serve/protocols/json_body.h"

namespace bert {

using nlohmann::json;
using nlohmann::ordered_json;

ServedModel& model_named(const Call& call, const std::string& name) {
  if (name.empty()) return call.model();
  const auto found =
      std::find_if(call.models.begin(), call.models.end(), [&](const auto& model) { return model->name() == name; });
  if (found != call.models.end()) return **found;
  std::string known;
  for (const auto& model : call.models) known += (known.empty() ? "" : ", ") + model->name();
  throw HttpError(404, "model: there is no " + json_text(name) + "; this server has " + known);
}

ServedModel& model_for(const Call& call, const std::string& task, int status, const std::string& name) {
  if (name.empty()) {
    for (const auto& model : call.models)
      if (model->task() == task) return *model;
  }
  ServedModel& model = model_named(call, name);
  if (model.task() == task) return model;
  throw HttpError(status, "model: " + model.name() + " is served for " + model.task() +
                              "; this path needs bert serve --task " + task);
}

namespace {

/// True unless the members of `body` are none that a model for `task` takes.
bool takes(const std::string& task, const json& body) {
  const bool ranks = task == kRerankTask, of_pairs = ranks || task == name_of_value(Task::kTextClassification);
  if (body.contains("query")) return ranks;
  const auto inputs = body.find("inputs");
  if (inputs == body.end()) return true;
  const json& first = inputs->is_array() && !inputs->empty() ? inputs->front() : *inputs;
  if (first.is_number()) return task == kEmbeddingTask;  // ids
  if (first.is_array()) return !first.empty() && first.front().is_number() ? task == kEmbeddingTask : of_pairs;
  if (first.is_string()) return task != name_of_value(Task::kQuestionAnswering) && (!ranks || inputs->is_array());
  if (first.contains("source_sentence")) return task == kEmbeddingTask;
  return first.contains("question") ? task == name_of_value(Task::kQuestionAnswering) : of_pairs;
}

}  // namespace

Call for_body(const Call& call, const json& body) {
  Call fitting = call;
  if (!body.is_object()) return fitting;
  const auto found = std::ranges::find_if(call.models, [&](const auto& model) { return takes(model->task(), body); });
  if (found != call.models.end())
    fitting.models = call.models.subspan(static_cast<size_t>(found - call.models.begin()));
  return fitting;
}

std::string json_text(const ordered_json& value) {
  return value.dump(-1, ' ', /*ensure_ascii=*/false, ordered_json::error_handler_t::replace);
}

ServerResponse json_response(const ordered_json& value) { return {.body = json_text(value)}; }

ServerResponse list_response(std::string begin, size_t count, std::function<void(size_t i, std::string& out)> append,
                             std::string end) {
  constexpr size_t kPartBytes = 256 << 10;
  auto next_part = [out = std::move(begin), end = std::move(end), append = std::move(append), count, i = size_t{0},
                    ended = false]() mutable -> std::string {
    for (; i < count && out.size() < kPartBytes; ++i) {
      if (i > 0) out += ',';
      append(i, out);
    }
    if (i == count && !std::exchange(ended, true)) out += end;
    return std::exchange(out, {});
  };
  std::string first = next_part(), second = next_part();
  if (second.empty()) return {.body = std::move(first)};
  return {.next_part = [waiting = std::vector<std::string>{std::move(second), std::move(first)},
                        next_part = std::move(next_part)]() mutable {
    if (waiting.empty()) return next_part();
    std::string part = std::move(waiting.back());
    waiting.pop_back();
    return part;
  }};
}

namespace {

std::vector<int32_t> ids_of(const json& list, const std::string& name) {
  std::vector<int32_t> ids;
  for (const json& id : list) {
    const bool fits = id.is_number_integer() && id >= 0 && id <= std::numeric_limits<int32_t>::max();
    if (!fits) throw HttpError(422, name + ": want ids of tokens, got " + id.dump());
    ids.push_back(id.get<int32_t>());
  }
  if (ids.empty()) throw NothingAsked(name + ": want one id of a token or more");
  return ids;
}

}  // namespace

Texts texts_or_ids(const json& value, const std::string& name) {
  Texts texts{.inputs = {}, .name = name, .list = value.is_array()};
  const char* const forms = ": want a text, a list of texts, ids of tokens, or a list of such lists; got ";
  if (value.is_string()) {
    texts.inputs.push_back({.text = value.get<std::string>()});
    return texts;
  }
  if (!value.is_array()) throw HttpError(422, name + forms + value.type_name());
  if (value.empty()) throw NothingAsked(name + ": want one text or more");
  if (value.front().is_number()) {
    texts.list = false;
    texts.inputs.push_back({.text = {}, .ids = ids_of(value, name)});
    return texts;
  }
  for (const json& each : value) {
    const std::string place = name + "[" + std::to_string(texts.inputs.size()) + "]";
    if (!each.is_array() && !each.is_string()) throw HttpError(422, place + forms + each.type_name());
    if (each.is_array()) {
      texts.inputs.push_back({.text = {}, .ids = ids_of(each, place)});
    } else {
      texts.inputs.push_back({.text = each.get<std::string>()});
    }
  }
  return texts;
}

}  // namespace bert
