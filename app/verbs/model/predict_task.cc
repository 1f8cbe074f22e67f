#include "app/verbs/model/predict_task.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "app/inference/answer_json.h"
#include "data/io/error.h"
#include "data/tasks/entity_markers.h"

namespace bert {
namespace {

using Json = nlohmann::ordered_json;

/// The task of `bert predict` that a kind of fine-tuned model serves; empty if there is none.
std::optional<Task> task_of(TaskKind kind) {
  switch (kind) {
    case TaskKind::kClassification:
    case TaskKind::kRegression:
      return Task::kTextClassification;
    case TaskKind::kTokenClassification:
      return Task::kTokenClassification;
    case TaskKind::kQuestionAnswering:
      return Task::kQuestionAnswering;
    case TaskKind::kMultipleChoice:
    case TaskKind::kEmbedding:
      break;
  }
  return std::nullopt;
}

}  // namespace

TaskInput task_input(const InputText& text, const std::string& question, const std::string& pair_field) {
  if (pair_field.empty()) return {.text = text.text, .second = question};
  const auto field = text.object.find(pair_field);
  if (field == text.object.end() || !field->is_string())
    throw DataError(fmt::format("no text in the field \"{}\" (--pair-field)", pair_field));
  return {.text = text.text, .second = field->get<std::string>()};
}

TaskInput marked_input(TaskInput input, const InputText& text, const std::string& spans_field) {
  if (const auto spans = text.object.find(spans_field); spans != text.object.end())
    input.text = marked_text(input.text, *spans);
  return input;
}

void check_model_of_task(const Pretrained& pretrained, Task wanted) {
  const std::string& task = pretrained.model.task;
  if (task.empty()) {
    constexpr size_t kShown = 3;
    std::string unread;
    for (size_t i = 0; i < std::min(kShown, pretrained.unread.size()); ++i)
      unread += (i == 0 ? "" : ", ") + pretrained.unread[i];
    if (!unread.empty()) unread = fmt::format("; its file also has {}, of no head that this program knows", unread);
    throw DataError(
        fmt::format("{}: was not fine-tuned, and --task {} needs the head of a task; `bert finetune` makes it{}",
                    pretrained.name, name_of_value(wanted), unread));
  }
  const std::optional<TaskKind> kind = kind_of_task(task);
  const std::optional<Task> serves = kind ? task_of(*kind) : std::nullopt;
  if (wanted == Task::kRerank && serves == Task::kTextClassification) {
    const size_t outputs = std::max<size_t>(1, pretrained.model.labels.size());
    if (outputs == 1) return;
    throw DataError(fmt::format("{}: has {} labels; a reranker has one output", pretrained.name, outputs));
  }
  if (serves == wanted) return;
  throw DataError(fmt::format(
      "{}: was fine-tuned on {}, {}", pretrained.name, task,
      serves ? fmt::format("expected --task {}", name_of_value(*serves)) : "for which bert predict has no task"));
}

std::vector<Json> task_answers(const TaskPredictor& predictor, std::span<const EncodedInput> inputs) {
  std::vector<Json> answers;
  predictor.visit_answers(inputs, [&](size_t i, const auto& answer) { answers.push_back(to_json(inputs[i], answer)); });
  return answers;
}

}  // namespace bert
